"""Options of the MySQL source of an ingestion pipeline, by the names that users of Flink CDC write.

Three kinds: those that are honoured (`MySqlSource`), those whose effect something else has (`REPLACED`, told in a
line), and those that are refused with the reason (`REFUSED`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Final, Self, TypeVar

from pydantic import BeforeValidator, SecretStr, field_validator, model_validator

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Options
from upsert_platform.core.options import Boolean, Duration, Settings, option, read_settings
from upsert_platform.mysql.columns import TypeRules, ZeroDates
from upsert_platform.mysql.connection import Server, TlsMode
from upsert_platform.mysql.names import TableSelection, parse_patterns

PAGES: Final = "flink, alibaba"
_RANGE: Final = re.compile(r"(\d+)(?:\s*-\s*(\d+))?")
_MOST_ID: Final = 2**32 - 1
_TLS: Final = "jdbc.properties.sslMode"
"""The one property of the JDBC driver that is honoured, as a synonym of ``tls.mode``."""
REPLACED: Final[Mapping[str, str]] = {
    "name": "it is shown as the description of the topics",
    "scan.incremental.snapshot.enabled": "a snapshot is always read in chunks of the primary key",
    "scan.snapshot.fetch.size": "the server's answer is taken some megabytes at a time",
    "connection.pool.size": "every task that reads has one connection",
    "scan.incremental.snapshot.unbounded-chunk-first.enabled": "no chunk is without bounds",
    "scan.newly-added-table.enabled": "tables that match later are found when a run is planned",
    "scan.incremental.close-idle-reader.enabled": "tasks end with the run",
    "scan.only.deserialize.captured.tables.changelog.enabled": "only rows of tables that 'tables' names are decoded",
    "server-time-zone": "TIMESTAMP is read in UTC, from tables and from the log, whatever the zone of the server",
    "connect.max-retries": "a run that fails is tried again by Dagster",
    "schema-change.enabled": "what a change of columns does is decided by 'schema.change.behavior' of the pipeline",
    "debezium.snapshot.locking.mode": "no lock is taken on the server",
}
"""Options without an effect, to what takes their place."""
REFUSED: Final[Mapping[str, str]] = {
    "scan.startup.specific-offset.gtid-set": (
        "a log is entered by file and position: 'scan.startup.specific-offset.file' and '.pos'"
    ),
    **dict.fromkeys(
        ("scan.startup.specific-offset.skip-events", "scan.startup.specific-offset.skip-rows"),
        "a transaction is read whole; name the position of its beginning",
    ),
    "scan.incremental.snapshot.chunk.key-column": (
        "chunks by another column than the primary key meet the log inconsistently; leave it out"
    ),
    "scan.incremental.snapshot.backfill.skip": (
        "the log is always read from where the snapshot began; leave it out, or set it to false"
    ),
    "scan.binlog.newly-added-table.enabled": (
        "a table that matches later is read by a snapshot of its own; leave it out"
    ),
    "scan.parse.online.schema.changes.enabled": (
        "tables of gh-ost and pt-online-schema-change are left out by 'tables.exclude'"
    ),
    "include-comments.enabled": "comments of columns are not carried to topics; leave it out",
    "metadata.list": "metadata columns are not carried to topics; leave it out",
}
"""Options that would change what arrives and are not honoured, to the reason; false or nothing is accepted."""
_FALSE: Final = ("", "false", "no")


class StartupMode(StrEnum):
    """The start of reading.

    Attributes:
        INITIAL: with a snapshot, then the log from where it began.
        SNAPSHOT: as initial, and it ends where the snapshot is consistent.
        EARLIEST: with the oldest change that the server's log holds, without a snapshot; so do the others.
    """

    INITIAL = "initial"
    SNAPSHOT = "snapshot"
    EARLIEST = "earliest-offset"
    LATEST = "latest-offset"
    OFFSET = "specific-offset"
    TIMESTAMP = "timestamp"


class OnTruncate(StrEnum):
    """The effect of a statement that empties a table."""

    FAIL = "fail"
    DELETE = "delete"


class OnUnloggedValues(StrEnum):
    """The effect of a statement that may change rows without a row in the log."""

    WARN = "warn"
    SNAPSHOT = "snapshot"
    FAIL = "fail"


class NewColumns(StrEnum):
    """The handling of columns that are not declared."""

    IGNORE = "ignore"
    FAIL = "fail"


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


class ServerSettings(Settings):
    """The options of every reader of a server."""

    hostname: str = option("hostname", origin=PAGES, description="Host of the MySQL or MariaDB server.", min_length=1)
    port: int = option("port", 3306, origin=PAGES, description="Its port.", ge=1, le=65_535)
    username: str = option("username", origin=PAGES, description="User with SELECT and replication grants.")
    password: SecretStr = option("password", origin=PAGES, description="Its password.")
    server_id: str | None = option(
        "server-id",
        None,
        origin=PAGES,
        description="Number, or range, of this reader among replicas of the server; any free one if left out.",
    )
    startup_mode: Annotated[StartupMode, BeforeValidator(_lower)] = option(
        "scan.startup.mode",
        StartupMode.INITIAL,
        origin=PAGES,
        description="initial: a snapshot, then the log from where it began; snapshot: the same, up to where the"
        " snapshot is consistent; earliest-offset, latest-offset, specific-offset, timestamp: the log alone.",
    )
    startup_file: str | None = option(
        "scan.startup.specific-offset.file", None, origin="flink, alibaba", description="File of the log to begin with."
    )
    startup_position: int | None = option(
        "scan.startup.specific-offset.pos", None, origin="flink, alibaba", description="Where in that file.", ge=4
    )
    startup_timestamp: int | None = option(
        "scan.startup.timestamp-millis",
        None,
        origin="flink, alibaba",
        description="Changes of statements that began before this time, in ms since 1970, are passed over.",
        ge=0,
    )
    chunk_size: int = option(
        "scan.incremental.snapshot.chunk.size",
        8096,
        origin="flink, alibaba",
        description="Rows of a part of a table that one task reads at once, by ranges of the primary key.",
        ge=1,
    )
    connect_timeout: Duration = option(
        "connect.timeout", timedelta(seconds=30), origin=PAGES, description="Longest wait for a connection."
    )
    heartbeat: Duration = option(
        "heartbeat.interval",
        timedelta(seconds=30),
        origin=PAGES,
        description="How often a silent server sends a sign of life.",
    )
    tinyint1_as_boolean: Boolean = option(
        "treat-tinyint1-as-boolean.enabled",
        True,
        origin="flink",
        description="Whether TINYINT(1) is BOOLEAN where columns follow from the server, but for those of a key; a"
        " table in SQL declares its types, and a number stays one there.",
    )
    legacy_json: Boolean = option(
        "use.legacy.json.format", True, origin="flink", description="Whether JSON has no blanks after ':' and ','."
    )
    time_as_text: Boolean = option(
        "treat-time-as-text.enabled",
        False,
        origin="platform",
        description="TIME is carried as text, as the server writes it: values below zero or beyond a day too.",
    )
    zero_dates: Annotated[ZeroDates, BeforeValidator(_lower)] = option(
        "zero-dates",
        ZeroDates.NULL,
        origin="platform",
        description="What becomes of dates that do not exist, such as 0000-00-00: null, or fail.",
    )
    on_truncate: Annotated[OnTruncate, BeforeValidator(_lower)] = option(
        "on-truncate",
        OnTruncate.FAIL,
        origin="platform",
        description="What a TRUNCATE TABLE does: fail stops with a message, delete deletes every row that was there.",
    )
    on_unlogged_values: Annotated[OnUnloggedValues, BeforeValidator(_lower)] = option(
        "on-unlogged-values",
        OnUnloggedValues.WARN,
        origin="platform",
        description="What an ALTER TABLE does that gives values to rows that are there, such as the DEFAULT of a new"
        " column, which no log contains: warn names the columns until a new snapshot, snapshot takes one, fail stops.",
    )
    tls: Annotated[TlsMode, BeforeValidator(_lower)] = option(
        "tls.mode",
        TlsMode.PREFERRED,
        origin="platform",
        description="disabled, preferred, required, verify_ca or verify_identity.",
        synonyms=("jdbc.properties.sslMode",),
    )
    authority: str | None = option(
        "tls.ca", None, origin="platform", description="PEM file of the authority behind the server's certificate."
    )

    @field_validator("server_id")
    @classmethod
    def _is_id_or_range(cls, value: str | None) -> str | None:
        if value is not None:
            match = _RANGE.fullmatch(value.strip())
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
            if not 1 <= first <= last <= _MOST_ID:
                raise ValueError(f"takes a number from 1 to {_MOST_ID}, or a range such as 5400-5404")
        return value

    @model_validator(mode="after")
    def _authority_is_used(self) -> Self:
        if self.authority is not None and self.tls not in (TlsMode.VERIFY_CA, TlsMode.VERIFY_IDENTITY):
            raise ValueError("'tls.ca' needs 'tls.mode' = 'verify_ca' or 'verify_identity'")
        return self

    @model_validator(mode="after")
    def _beginning_is_told(self) -> Self:
        file, stamp = "'scan.startup.specific-offset.file'", "'scan.startup.timestamp-millis'"
        for name, given, mode in (
            (file, self.startup_file is not None, StartupMode.OFFSET),
            ("'scan.startup.specific-offset.pos'", self.startup_position is not None, StartupMode.OFFSET),
            (stamp, self.startup_timestamp is not None, StartupMode.TIMESTAMP),
        ):
            if given != (self.startup_mode is mode):
                told = f"needs {name}" if not given else f"is what {name} goes with"
                raise ValueError(f"'scan.startup.mode' = '{mode.value}' {told}")
        return self

    @model_validator(mode="after")
    def _snapshots_are_read(self) -> Self:
        reads = self.startup_mode in (StartupMode.INITIAL, StartupMode.SNAPSHOT)
        if self.on_unlogged_values is OnUnloggedValues.SNAPSHOT and not reads:
            raise ValueError(
                f"'on-unlogged-values' = 'snapshot' reads the whole table, and 'scan.startup.mode' ="
                f" '{self.startup_mode.value}' the log alone; take 'warn' or 'fail'"
            )
        return self

    @property
    def server_ids(self) -> range | None:
        """Ids that this reader may use; None if any will do."""
        match = _RANGE.fullmatch(self.server_id.strip()) if self.server_id is not None else None
        return range(int(match[1]), int(match[2] or match[1]) + 1) if match else None

    @property
    def server(self) -> Server:
        """Return the address of the server and the login."""
        return Server(
            self.hostname,
            self.port,
            self.username,
            self.password.get_secret_value(),
            connect_timeout=self.connect_timeout.total_seconds(),
            tls=self.tls,
            authority=self.authority,
        )

    @property
    def type_rules(self) -> TypeRules:
        """Return the rules for the conversion of values."""
        return TypeRules(self.tinyint1_as_boolean, self.legacy_json, self.zero_dates, self.time_as_text)


class MySqlSource(ServerSettings):
    """A source of type ``mysql``."""

    tables: str = option(
        "tables",
        origin=PAGES,
        description="Tables to read: regular expressions of schema.table, joined by commas; \\. is any character.",
    )
    excluded: str = option(
        "tables.exclude", "", origin="flink", description="Tables that are not read although 'tables' names them."
    )

    @field_validator("tables", "excluded")
    @classmethod
    def _are_patterns(cls, value: str) -> str:
        parse_patterns(value)
        return value

    @model_validator(mode="after")
    def _tables_are_named(self) -> Self:
        if not parse_patterns(self.tables):
            raise ValueError("'tables' names no table")
        return self

    @property
    def selection(self) -> TableSelection:
        """Return the selection of tables to read."""
        return TableSelection(parse_patterns(self.tables), parse_patterns(self.excluded))


class MySqlCdcSettings(ServerSettings):
    """A table with ``'connector' = 'mysql-cdc'``: one table of a server."""

    database: str = option("database-name", origin=PAGES, description="Schema of the table.", min_length=1)
    table: str = option("table-name", origin=PAGES, description="Name of the table.", min_length=1)
    new_columns: Annotated[NewColumns, BeforeValidator(_lower)] = option(
        "new-columns",
        NewColumns.IGNORE,
        origin="platform",
        description="What columns that are not declared do: ignore passes over them, fail stops where they begin.",
    )

    @property
    def full_name(self) -> str:
        """Schema and name, joined by a point."""
        return f"{self.database}.{self.table}"


def read_source(options: Options, *, location: SourceLocation) -> tuple[MySqlSource | None, list[Problem]]:
    """Reads the options of a source, without its ``type``, and says everything that is wrong with them.

    Returns:
        The settings, or None if there are errors, and the problems.
    """
    return _read(MySqlSource, options, subject="source", location=location)


def read_cdc_settings(
    options: Options, *, subject: str, location: SourceLocation
) -> tuple[MySqlCdcSettings | None, list[Problem]]:
    """Reads the options of a table with ``'connector' = 'mysql-cdc'``, as `read_source` does."""
    return _read(MySqlCdcSettings, without(options, "connector"), subject=subject, location=location)


def without(options: Options, *names: str) -> Options:
    """Options but for some names."""
    left = {name: value for name, value in options.items() if name not in names}
    return Options(left, {name: place for name in left if (place := options.location(name)) is not None})


_S = TypeVar("_S", bound=ServerSettings)


def _read(
    model: type[_S], options: Options, *, subject: str, location: SourceLocation
) -> tuple[_S | None, list[Problem]]:
    problems: list[Problem] = []
    for name, value in options.items():
        place = options.location(name) or location
        if name in REPLACED:
            problems.append(Problem(f"{subject}: '{name}' has no effect: {REPLACED[name]}", place, "warning"))
        elif name in REFUSED and value.strip().lower() not in _FALSE:
            problems.append(Problem(f"{subject}: '{name}' is refused: {REFUSED[name]}", place))
        elif _foreign(name):
            kind = "the JDBC driver" if name.startswith("jdbc.") else "Debezium"
            told = f"{subject}: '{name}' is an option of {kind}, which the platform does not use; take it out"
            problems.append(Problem(told, place))
    settings, found = read_settings(
        model,
        options,
        subject=subject,
        location=location,
        ignore=lambda name: name in REPLACED or name in REFUSED or _foreign(name),
    )
    problems += found
    failed = any(problem.severity == "error" for problem in problems)
    return (None if failed else settings), problems


def _foreign(name: str) -> bool:
    return name.startswith(("jdbc.properties.", "debezium.")) and name not in REPLACED and name != _TLS
