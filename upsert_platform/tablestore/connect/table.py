"""A Tablestore table that is written by the connector's rules: a declared table of connector `tablestore-connect`.

Its declared columns are those of Kafka records; which rows come of them is what the options say. Such tables are made
of Kafka Connect configurations (`upsert_platform.declarations.connect`), whose options they have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.masking import NO_MASK, Mask
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.options import nearest, option_fields, read_settings
from upsert_platform.tablestore import limits
from upsert_platform.tablestore.connect.failure_options import FailureSettings
from upsert_platform.tablestore.connect.options import (
    TABLE_OPTIONS,
    ConnectSettings,
    ConnectTable,
    read_connect_tables,
)
from upsert_platform.tablestore.connect.record import MessageFormat
from upsert_platform.tablestore.connect.timeseries_options import TimeseriesTable, read_timeseries_table
from upsert_platform.tablestore.connect.transforms.chain import Chain
from upsert_platform.tablestore.connect.transforms.options import LISTS, PREFIXES, read_transforms
from upsert_platform.tablestore.options import TablestoreSettings

CONNECTOR: Final = "tablestore-connect"
COLUMNS: Final = {
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP_LTZ(3)",
    "key": "BYTES",
    "value": "BYTES",
}
"""Declared columns and their types; `headers` may follow."""
HEADERS: Final = ("headers", "ARRAY<ROW<`key` STRING, `value` BYTES>>")
_MODE: Final = "tablestore.mode"
_MODES: Final = ("normal", "timeseries")
_AUTH: Final = "tablestore.auth.mode"
_MOST_REFUSED: Final = "max.refused.rows"
_KEYS: Final = ("tablestore.access.key.id", "tablestore.access.key.secret")
_TEMPORARY: Final = ("role.name", "tablestore.sts.token")
"""Options that say that a key is exchanged, or is temporary already."""
_WIDE_ONLY: Final = (
    "primarykey.mode", "insert.mode", "delete.mode", "key.converter", "key.converter.schemas.enable",
    "json.field.conversion", "auto.increment.repeated-rows", "table.max-versions", "table.reserved-throughput.read",
    "table.reserved-throughput.write",
)  # fmt: skip
_OWN: Final = ("connector", "name", _MODE)
_NOT_HERE: Final = {"connector", "table.name", "insert.mode", "delete.mode", "on-error", "version.column"}
CONNECTION_OPTIONS: Final = tuple(name for name in option_fields(TablestoreSettings) if name not in _NOT_HERE)
"""Options of a `tablestore` table that mean the same here."""
RECORD_OPTIONS: Final = tuple(option_fields(ConnectSettings))
FAILURE_OPTIONS: Final = tuple(option_fields(FailureSettings))
CLIENT_PREFIX: Final = "properties."
"""Begins client properties for the topics that failed records are sent to."""


@dataclass(frozen=True, slots=True)
class ConnectSink:
    """A table that is written by the connector's rules.

    Attributes:
        name: of the declared table.
        connector: name of the connector, for messages and dead letters.
        table_name: in the instance.
        tables: topic to rules, of the wide-column model; empty for time series.
        points: rules of the time-series model; None for wide columns.
        mask: true where messages show no values: rows follow from records by rules of the connector's own, so that
            nobody can tell which of their values are made of a masked column.
    """

    name: str
    connector: str
    table_name: str
    settings: TablestoreSettings
    failures: FailureSettings
    columns: tuple[Column, ...]
    tables: Mapping[str, ConnectTable]
    points: TimeseriesTable | None = None
    mask: Mask = NO_MASK

    @property
    def wide(self) -> ConnectTable:
        """The rules of any topic; those about the table are the same for all."""
        return next(iter(self.tables.values()))

    @property
    def rows_meet(self) -> bool:
        """Return whether two records can change one row, so that their order counts."""
        return self.points is not None or not self.wide.key_mode.is_place


def read_connect_sink(table: Table) -> tuple[ConnectSink | None, list[Problem]]:
    """Reads a declared table of this connector.

    Returns:
        The sink, or None when a problem is an error, and every problem found.
    """
    return _Reader(table).read()


class _Reader:
    def __init__(self, table: Table) -> None:
        self._table = table
        self._options = table.options
        self._connector = table.options.get("name", table.name)
        self._subject = f"connector '{self._connector}'"
        self._problems: list[Problem] = []

    def read(self) -> tuple[ConnectSink | None, list[Problem]]:
        self._check_columns()
        mode = self._options.get(_MODE, "normal").strip().lower()
        transforms, problems = read_transforms(self._options, subject=self._subject, location=self._table.location)
        self._problems += problems
        if mode not in _MODES:
            self._tell(f"option '{_MODE}' takes one of {', '.join(_MODES)}, not '{mode}'", _MODE)
        failures, problems = read_settings(
            FailureSettings, self._part(FAILURE_OPTIONS), subject=self._subject, location=self._table.location
        )
        self._problems += problems
        for name, reason in failures.without_effect() if failures else ():
            self._tell(f"option '{name}' has no effect: {reason}", name, "warning")
        record = self._part(RECORD_OPTIONS)
        shared, problems = read_settings(ConnectSettings, record, subject=self._subject, location=self._table.location)
        names = sorted({shared.table_of(transforms.route(topic)) for topic in shared.named}) if shared else []
        if len(names) > 1:
            self._tell(f"topics go to several tables ({', '.join(names)}); declare one per table", "topics")
        if names:
            self._check_names(names[0])
        tables: Mapping[str, ConnectTable] = {}
        points: TimeseriesTable | None = None
        if mode == "timeseries":
            self._problems += problems
            points = self._points(shared, names[0], transforms) if shared and names else None
        else:
            own = self._part(RECORD_OPTIONS, f"tablestore.{names[0]}." if names else "tablestore.")
            tables, problems = read_connect_tables(
                own, subject=self._subject, location=self._table.location, transforms=transforms
            )
            self._problems += problems
        settings = self._settings(names[0] if names else "")
        if names and failures is not None and failures.reports_to_table and failures.table in names:
            option = "runtime.error.table.name"
            self._tell(f"'{option}' is the sink's own table '{names[0]}'; name another one", option)
        if names and settings is not None and settings.control_table in names:
            self._tell(f"'control.table' is the sink's own table '{names[0]}'; name another one", "control.table")
        if settings is None or failures is None or any(found.severity == "error" for found in self._problems):
            return None, self._problems
        sink = ConnectSink(
            self._table.name,
            self._connector,
            names[0],
            settings,
            failures,
            self._table.physical_columns,
            tables,
            points,
            Mask.of(self._table),
        )
        return sink, self._problems

    def _tell(self, message: str, name: str = "", severity: str = "error") -> None:
        place = self._options.location(name) or self._table.location
        self._problems.append(Problem(f"{self._subject}: {message}", place, severity))

    def _part(self, names: tuple[str, ...], *prefixes: str) -> Options:
        return self._options_of(
            {
                name: value
                for name, value in self._options.items()
                if name in names or (name.startswith(prefixes) and name not in CONNECTION_OPTIONS)
            }
        )

    def _options_of(self, values: Mapping[str, str]) -> Options:
        places: dict[str, SourceLocation] = {}
        for name in values:
            place = self._options.location(name)
            if place is not None:
                places[name] = place
        return Options(values, places)

    def _check_names(self, table_name: str) -> None:
        known = {*_OWN, *RECORD_OPTIONS, *CONNECTION_OPTIONS, *FAILURE_OPTIONS, *LISTS}
        prefixes = (CLIENT_PREFIX, *PREFIXES, "tablestore.timeseries.", f"tablestore.{table_name}.")
        for name in self._options:
            if name not in known and not name.startswith(prefixes):
                self._tell(f"unknown option '{name}'{nearest(name, known)}", name)

    def _check_columns(self) -> None:
        declared = {column.name: str(column.type) for column in self._table.columns}
        headers, kind = HEADERS
        if declared not in (COLUMNS, {**COLUMNS, headers: kind}):
            shown = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
            self._tell(f"a table of connector '{CONNECTOR}' has the columns of Kafka records: {shown}")

    def _points(self, shared: ConnectSettings, name: str, transforms: Chain) -> TimeseriesTable | None:
        if shared.value_format is not MessageFormat.JSON:
            self._tell(
                "a time-series row is made of a JSON value: set 'value.converter' to JsonConverter", "value.converter"
            )
        if not 1 <= len(name) <= 128 or not limits.is_valid_name(name):
            self._tell(f"Tablestore takes no table name '{name}'; use 'topics.assign.tables'")
        own = {f"tablestore.{name}.{suffix}" for suffix in TABLE_OPTIONS}
        for option in self._options:
            if option in own or (option in _WIDE_ONLY and not (transforms.reads_keys and "key.converter" in option)):
                self._tell(f"option '{option}' has no effect in mode timeseries", option, "warning")
            elif option.startswith(f"tablestore.{name}."):
                self._tell(f"unknown option '{option}'{nearest(option, own)}", option)
        points, problems = read_timeseries_table(
            self._part((), "tablestore.timeseries."),
            name,
            subject=self._subject,
            location=self._table.location,
            value_side=shared.value_side,
            key_side=shared.key_side,
            transforms=transforms,
        )
        self._problems += problems
        return points

    def _settings(self, table_name: str) -> TablestoreSettings | None:
        given = {name: value for name, value in self._options.items() if name in CONNECTION_OPTIONS}
        lasting = all(given.get(name) for name in _KEYS) and not any(given.get(name) for name in _TEMPORARY)
        mode = given.get(_AUTH, "aksk" if lasting else "sts").strip().lower()
        given[_AUTH] = mode
        given |= {"connector": "tablestore", "on-error": "quarantine"}
        if limits.is_valid_name(table_name):
            given["table.name"] = table_name
        settings, problems = read_settings(
            TablestoreSettings, self._options_of(given), subject=self._subject, location=self._table.location
        )
        self._problems += problems
        if settings is not None and _MOST_REFUSED not in given:
            return settings.model_copy(update={"max_refused_rows": None})
        return settings
