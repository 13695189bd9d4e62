"""A declared Kafka table, read into what source and sink need: sides, formats, projections, client properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from upsert_platform.core.errors import DeclarationError, Problem, SourceLocation
from upsert_platform.core.model import Column, ColumnKind, Options, Table
from upsert_platform.core.options import nearest, read_settings
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.formats import FORMATS, validate_format
from upsert_platform.formats.change.metadata import plan_metadata
from upsert_platform.kafka.change_topic import CHANGES, WITH_SCHEMA, ChangeTopicSettings
from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.metadata import format_metadata_key, metadata_key
from upsert_platform.kafka.modes import FieldsInclude
from upsert_platform.kafka.options import KafkaSettings, ScanSettings, UpsertKafkaSettings
from upsert_platform.kafka.properties import (
    HADOOP_LOGIN,
    HADOOP_LOGIN_REASON,
    KERBEROS,
    ClientProperties,
    read_properties,
)
from upsert_platform.kafka.rules import CDC_FORMATS, table_findings

MODELS: Final[Mapping[str, type[ScanSettings]]] = {
    "upsert-kafka": UpsertKafkaSettings,
    "kafka": KafkaSettings,
    CHANGES: ChangeTopicSettings,
}
"""Connector to its options."""
PARTITIONER_REASON: Final = (
    "the partition of an upsert record follows from its key alone (Kafka's murmur2), or records of one key would lose"
    " their order; remove the option"
)


@dataclass(frozen=True, slots=True)
class FormatSide:
    """One side of the records of a topic.

    Attributes:
        format: a format id such as ``json``.
        columns: names and types as the format knows them, in its order (the key: primary key order, prefix stripped).
        names: the names of the same columns in the table.
        metadata: columns that the format fills from elsewhere in the message: name in the table, key, type.
        options: of the format, without the side: ``json.ignore-parse-errors``.
    """

    format: str
    columns: tuple[tuple[str, LogicalType], ...]
    names: tuple[str, ...]
    options: Options
    metadata: tuple[tuple[str, str, LogicalType], ...] = ()

    @property
    def format_columns(self) -> tuple[tuple[str, LogicalType], ...]:
        """Columns to build a decoder with. A value whose columns are all in the key is still read, for its validity."""
        return self.columns or (("", LogicalType(TypeName.STRING)),)


@dataclass(frozen=True, slots=True)
class KafkaTable:
    """A Kafka table that passed validation. Picklable; prints no secret.

    Attributes:
        key: None on a `kafka` table without key.format.
        primary_key: names, in declared order; may be empty on a `kafka` table.
    """

    name: str
    table: Table
    settings: ScanSettings
    key: FormatSide | None
    value: FormatSide
    properties: ClientProperties

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of the primary key columns."""
        return self.table.primary_key

    @property
    def endpoint(self) -> KafkaEndpoint:
        """The cluster that holds the topics."""
        return KafkaEndpoint(self.settings.bootstrap_servers, self.properties)

    @property
    def is_upsert(self) -> bool:
        """Return whether a record replaces what its key had before (`upsert-kafka`)."""
        return isinstance(self.settings, UpsertKafkaSettings)

    @property
    def metadata_columns(self) -> tuple[Column, ...]:
        """Declared metadata columns, in order."""
        return tuple(column for column in self.table.columns if column.kind is ColumnKind.METADATA)

    @property
    def written_metadata(self) -> tuple[Column, ...]:
        """Metadata columns that a written record carries; change frames have them behind the physical columns."""
        return tuple(
            column for column in self.metadata_columns if not column.virtual and metadata_key(column) != "topic"
        )


def read_kafka_table(
    table: Table, *, writes: bool = False, ignore: Callable[[str], bool] = lambda name: False
) -> tuple[KafkaTable | None, list[Problem]]:
    """Reads the declaration of an `upsert-kafka` or `kafka` table.

    Args:
        writes: whether the table is a destination, which has rules of its own.
        ignore: names of options that another room reads.

    Returns:
        The table, or None when there are errors, and everything found, warnings included.
    """
    reader = _Reader(table, writes=writes, ignore=ignore)
    return reader.read()


class _Reader:
    def __init__(self, table: Table, *, writes: bool, ignore: Callable[[str], bool]) -> None:
        self._table = table
        self._writes = writes
        self._ignore = ignore
        self._problems: list[Problem] = []
        self._subject = f"table '{table.name}'"
        self._upserts = issubclass(MODELS.get(table.connector, KafkaSettings), UpsertKafkaSettings)

    def read(self) -> tuple[KafkaTable | None, list[Problem]]:
        table = self._table
        model = MODELS.get(table.connector)
        if model is None:
            self._report(f"connector '{table.connector}' is not a Kafka connector", "connector")
            return None, self._problems
        self._refuse_known_traps()
        declared = self._without_trap_options()
        settings, problems = read_settings(
            model, declared, subject=self._subject, location=table.location, ignore=self._read_elsewhere
        )
        self._problems += problems
        properties, property_problems = read_properties(
            {
                name.removeprefix("properties."): value
                for name, value in table.options.items()
                if name.startswith(("properties.", KERBEROS))
            }
        )
        for name, severity, message in property_problems:
            option = name if name in table.options else f"properties.{name}"
            self._report(message, option, severity=severity)
        if settings is None:
            self._check_formats_alone()
            return None, self._problems
        for message, option, severity in table_findings(table, settings, properties, writes=self._writes):
            self._report(message, option, severity=severity)
        key, value = self._sides(settings)
        if any(problem.severity == "error" for problem in self._problems) or value is None:
            return None, self._problems
        return KafkaTable(table.name, table, settings, key, value, properties), self._problems

    def _report(self, message: str, option: str = "", *, severity: str = "error") -> None:
        place = self._table.options.location(option) or self._table.location
        self._problems.append(Problem(f"{self._subject}: {message}", place, severity))

    def _refuse_known_traps(self) -> None:
        options = self._table.options
        for name in WITH_SCHEMA if self._table.connector == CHANGES else ():
            if options.get(name, "false").strip().lower() != "false":
                self._report(f"'{name}' is refused: messages are written without their schema; leave it out", name)
        if HADOOP_LOGIN in options:
            self._report(f"option '{HADOOP_LOGIN}' is refused: {HADOOP_LOGIN_REASON}", HADOOP_LOGIN)
        if "sink.partitioner" in options and self._upserts:
            self._report(f"option 'sink.partitioner' is refused: {PARTITIONER_REASON}", "sink.partitioner")
        if "scan.topic-partition-discovery.interval" in options:
            self._report(
                "option 'scan.topic-partition-discovery.interval' changes nothing: every batch looks for new partitions"
                " when it is planned, and reads them from their start",
                "scan.topic-partition-discovery.interval",
                severity="warning",
            )

    def _without_trap_options(self) -> Options:
        options = self._table.options
        kept = {
            name: value
            for name, value in options.items()
            if name not in ("sink.partitioner", HADOOP_LOGIN, *WITH_SCHEMA)
        }
        locations = {name: place for name in kept if (place := options.location(name)) is not None}
        return Options(kept, locations)

    def _format_ids(self) -> dict[str, str]:
        options = self._table.options
        value = options.get("value.format", options.get("format", ""))
        return {"key": options.get("key.format", "").strip(), "value": value.strip()}

    def _format_prefixes(self) -> dict[str, str]:
        """Prefixes of format options to the side that they belong to."""
        formats = self._format_ids()
        prefixes = {f"{side}.{name}.": side for side, name in formats.items() if name}
        if formats["value"] and ("format" in self._table.options or self._table.connector == CHANGES):
            prefixes[f"{formats['value']}."] = "value"
        if formats["key"] and self._table.connector == CHANGES:
            prefixes[f"{formats['key']}."] = "key"
        return prefixes

    def _read_elsewhere(self, name: str) -> bool:
        return (
            name.startswith(("properties.", KERBEROS, *self._format_prefixes()))
            and name != "properties.bootstrap.servers"
        ) or self._ignore(name)

    def _check_formats_alone(self) -> None:
        """Check the formats of a table whose other options are invalid, so that all problems are reported at once."""
        for side, format_id in self._format_ids().items():
            if format_id not in FORMATS:
                if format_id:
                    self._report(f"unknown {side} format '{format_id}'{nearest(format_id, FORMATS)}", f"{side}.format")
                continue
            options = self._format_options(side, format_id)
            model, place = FORMATS[format_id].settings, self._table.location
            self._problems += read_settings(model, options, subject=self._subject, location=place)[1]

    def _sides(self, settings: ScanSettings) -> tuple[FormatSide | None, FormatSide | None]:
        table = self._table
        physical = {column.name: column for column in table.physical_columns}
        formats = self._format_ids()
        upsert = isinstance(settings, UpsertKafkaSettings)
        if isinstance(settings, UpsertKafkaSettings):
            key_names = table.primary_key
        else:
            assert isinstance(settings, KafkaSettings)
            key_names = settings.key_fields
        prefix = settings.key_fields_prefix
        key_columns = []
        for name in key_names:
            if name not in physical:
                if not upsert:
                    self._report(f"'key.fields' names '{name}', which is not a physical column", "key.fields")
                continue
            if not name.startswith(prefix) or name == prefix:
                self._report(
                    f"key column '{name}' does not start with 'key.fields-prefix' = '{prefix}'", "key.fields-prefix"
                )
                continue
            key_columns.append((name.removeprefix(prefix), _type_of(physical[name])))
        except_key = settings.value_fields_include is FieldsInclude.EXCEPT_KEY
        value_names = tuple(name for name in physical if not (except_key and name in key_names))
        key = None
        if formats["key"]:
            key = self._side("key", formats["key"], tuple(key_columns), tuple(key_names))
        columns = tuple((name, _type_of(physical[name])) for name in value_names)
        value = self._side("value", formats["value"], columns, value_names)
        return key, value

    def _side(
        self,
        side: Literal["key", "value"],
        format_id: str,
        columns: tuple[tuple[str, LogicalType], ...],
        names: tuple[str, ...],
    ) -> FormatSide | None:
        if side == "key" and format_id in CDC_FORMATS and not self._upserts:
            self._report(
                f"'key.format' = '{format_id}': a key has no row kinds; use an insert-only format", "key.format"
            )
        if format_id == "raw" and len(columns) != 1:
            self._report(
                f"format 'raw' holds one column, but the {side} has {len(columns)}: {', '.join(names) or 'none'}",
                f"{side}.format",
            )
        if format_id not in ("json", "raw") and not columns:
            self._report(
                f"the {side} has no column, and an empty message of format '{format_id}' cannot be read back; use json",
                f"{side}.format",
            )
        options = self._format_options(side, format_id)
        metadata = tuple(
            (column.name, key, _type_of(column))
            for column in self._table.columns
            if column.kind is ColumnKind.METADATA and (key := format_metadata_key(column)) is not None
        )
        found = FormatSide(format_id, columns, names, options, metadata if side == "value" else ())
        try:
            plan_metadata(format_id, [(key, kind) for _, key, kind in found.metadata])
        except DeclarationError as error:
            for problem in error.problems:
                self._report(problem.message)
        self._problems += validate_format(
            format_id,
            found.options,
            found.format_columns,
            side=side,
            direction="sink" if self._writes else "source",
            subject=self._subject,
            location=self._table.options.location(f"{side}.format") or self._table.location,
        )
        return found

    def _format_options(self, side: str, format_id: str) -> Options:
        """Options of the format of one side, without the side's prefix."""
        declared = self._table.options
        options: dict[str, str] = {}
        locations: dict[str, SourceLocation] = {}
        for name, text in declared.items():
            for prefix, owner in self._format_prefixes().items():
                if owner != side or not name.startswith(prefix) or name in WITH_SCHEMA:
                    continue
                short = name if prefix == f"{format_id}." else name.removeprefix(f"{side}.")
                if short in options:
                    self._report(f"option '{name}' is given twice, with and without 'value.'; keep one", name)
                options[short] = text
                locations[short] = declared.location(name) or self._table.location
        return Options(options, locations)


def _type_of(column: Column) -> LogicalType:
    assert column.type is not None  # only computed columns have none
    return column.type
