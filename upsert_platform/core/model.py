"""Declarations of users: tables, inserts, a project. Knows no connector, no Spark, no SDK."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.plan import Query
from upsert_platform.core.redaction import REDACTED, is_secret_name, redact
from upsert_platform.core.types import LogicalType

_SECRET_WORDS = (
    "password", "secret", "jaas", "token", "access.key", "access-key", "accesskey", "access.id", "key.pem", "user-info",
    "user.info", "oauthbearer.config",
)  # fmt: skip
SQL_OPTION: Final = re.compile(r"'([^'\n]+)'(\s*=\s*)'((?:[^']|'')*)'")
"""An option in Flink SQL, of WITH or of a hint: name, equals sign, value."""


def is_secret_option(name: str) -> bool:
    """Return whether the value of an option must never be shown."""
    lowered = name.lower()
    return any(word in lowered for word in _SECRET_WORDS) or lowered.endswith((".keystore.key", "ssl.key"))


def shown_option(name: str, value: str) -> str:
    """Return the value of an option as it may be shown: no secret, and no login in an address."""
    return REDACTED if is_secret_option(name) or is_secret_name(name) else redact(value)


def shown_statement(sql: str) -> str:
    """Return a statement of Flink SQL as it may be shown, with the options of its hints."""
    return SQL_OPTION.sub(lambda match: f"'{match[1]}'{match[2]}'{shown_option(match[1], match[3])}'", redact(sql))


def asset_part(name: str) -> str:
    """Return a name as a part of an asset key: what is no letter of ASCII, no digit and none of ``_-.`` is ``_``.

    Dagster derives names of steps, inputs and outputs from keys, and those are of ASCII. A name with other letters has
    a checksum at the end, so that it shares its key with no other one.
    """
    part = "".join(char if (char.isascii() and char.isalnum()) or char in "_-." else "_" for char in name)
    return part if name.isascii() else f"{part}_{zlib.crc32(name.encode()):08x}"


class Options(Mapping[str, str]):
    """Options of a table as declared, name to text; prints no value that is_secret_option names."""

    def __init__(self, values: Mapping[str, str], locations: Mapping[str, SourceLocation] | None = None) -> None:
        self._values = dict(values)
        self._locations = dict(locations or {})

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def location(self, name: str) -> SourceLocation | None:
        """Return the location of an option's declaration, if it is known."""
        return self._locations.get(name)

    def with_defaults(self, defaults: Mapping[str, str]) -> Options:
        """These options, with those of `defaults` that are not declared added."""
        return Options({**defaults, **self._values}, self._locations)

    def __repr__(self) -> str:
        shown = {name: "***" if is_secret_option(name) else value for name, value in self._values.items()}
        return f"Options({shown!r})"


class ColumnKind(StrEnum):
    """The origin of a column's value."""

    PHYSICAL = "physical"
    METADATA = "metadata"
    COMPUTED = "computed"


@dataclass(frozen=True, slots=True)
class Column:
    """A declared column.

    Attributes:
        type: of a computed column, None; its type is `expression_type`.
        metadata_key: of a METADATA column, the key after FROM, or the column's own name.
        virtual: a METADATA column that is not written.
        expression: of a computed column, Spark SQL.
        expression_type: of a computed column, its type; None where it could not be read.
        failure: of a computed column, Spark SQL of the reason why it has no value for a row; None if it cannot fail.
        varies: of a computed column, name of a function in it that gives another value each time.
    """

    name: str
    type: LogicalType | None
    kind: ColumnKind = ColumnKind.PHYSICAL
    metadata_key: str | None = None
    virtual: bool = False
    expression: str | None = None
    expression_type: LogicalType | None = None
    failure: str | None = None
    varies: str | None = None
    comment: str | None = None
    location: SourceLocation | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A declared table, of any connector.

    Attributes:
        name: as declared; unique in a project.
        primary_key: column names in the order of the PRIMARY KEY clause; empty without one.
        partitioned_by: column names of PARTITIONED BY.
        options: the WITH clause, or its equal in YAML or properties, after ``${NAME}`` was replaced.
        watermark: the text of a WATERMARK clause; kept for the record, micro-batches need none.
        platform: the platform's own options (`platform_options`), which connectors do not see.
        masked: columns that are made of masked columns of other tables, so that their values are not shown either.
    """

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    options: Options
    location: SourceLocation
    partitioned_by: tuple[str, ...] = ()
    comment: str | None = None
    watermark: str | None = None
    platform: Options = field(default_factory=lambda: Options({}))
    masked: tuple[str, ...] = ()

    @property
    def connector(self) -> str:
        """Value of the ``connector`` option, lower case; empty if absent."""
        return self.options.get("connector", "").strip().lower()

    @property
    def physical_columns(self) -> tuple[Column, ...]:
        """The columns that a format or a destination table holds."""
        return tuple(column for column in self.columns if column.kind is ColumnKind.PHYSICAL)

    def column(self, name: str) -> Column:
        """The column of that name.

        Raises:
            KeyError: there is none.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Insert:
    """One ``INSERT INTO target SELECT ... FROM source``.

    Attributes:
        source: name of the table read.
        target: name of the table written.
        projections: Spark SQL expressions over the source's columns, one per physical column of the target, in the
            target's order.
        predicate: Spark SQL of the WHERE clause, or None.
        failure: Spark SQL of the reason why the predicate or a projection has no value for a row, null where they have;
            None if they cannot fail.
        sql: the statement as written, for messages and metadata.
        overwrite: ``INSERT OVERWRITE``: every run that finds something new replaces what the target holds by the whole
            result of the query.
        query: what has to be computed first, if the statement needs more than one row at a time; `source` is its name
            then, and projections and predicate are over its result.
    """

    source: str
    target: str
    projections: tuple[str, ...]
    predicate: str | None
    sql: str
    location: SourceLocation
    overwrite: bool = False
    failure: str | None = None
    query: Query | None = None

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the declared tables that it reads."""
        return self.query.tables if self.query is not None else (self.source,)


@dataclass(frozen=True, slots=True)
class Project:
    """All declarations of a project folder."""

    path: str
    tables: Mapping[str, Table] = field(default_factory=dict)
    inserts: tuple[Insert, ...] = ()

    def sources(self) -> tuple[Table, ...]:
        """Tables that some insert reads, in order of declaration."""
        read = {name for insert in self.inserts for name in insert.tables}
        return tuple(table for name, table in self.tables.items() if name in read)

    def queries(self) -> tuple[Query, ...]:
        """Queries that inserts read, each once, in order of declaration."""
        found = {insert.query.name: insert.query for insert in self.inserts if insert.query is not None}
        return tuple(found.values())
