"""The declarations of a file, before tables, views and inserts of all files are joined."""

from __future__ import annotations

from dataclasses import dataclass, field

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import ColumnKind, Options
from upsert_platform.core.types import LogicalType
from upsert_platform.sql.lexer import Token
from upsert_platform.sql.session_settings import Materializes


@dataclass(frozen=True, slots=True)
class ColumnDeclaration:
    """A column as written; the expression of a computed one is still tokens."""

    name: str
    location: SourceLocation
    type: LogicalType | None = None
    kind: ColumnKind = ColumnKind.PHYSICAL
    metadata_key: str | None = None
    virtual: bool = False
    expression: tuple[Token, ...] = ()
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class KeyDeclaration:
    """PRIMARY KEY (...) NOT ENFORCED."""

    columns: tuple[str, ...]
    location: SourceLocation


@dataclass(frozen=True, slots=True)
class WatermarkDeclaration:
    """WATERMARK FOR column AS expression, kept as text."""

    column: str
    text: str
    location: SourceLocation


@dataclass(frozen=True, slots=True)
class LikeDeclaration:
    """LIKE table (INCLUDING ALL EXCLUDING OPTIONS ...): feature to INCLUDING, EXCLUDING or OVERWRITING."""

    table: str
    location: SourceLocation
    rules: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableDeclaration:
    """CREATE TABLE as written.

    Attributes:
        elided: ``...`` stands for columns that were left out.
        faulty: a column could not be read, so what refers to columns is not checked.
        path: catalog, database and table, where the name is written with more than one part.
    """

    name: str
    location: SourceLocation
    columns: tuple[ColumnDeclaration, ...] = ()
    key: KeyDeclaration | None = None
    watermark: WatermarkDeclaration | None = None
    partitioned_by: tuple[str, ...] = ()
    partition_location: SourceLocation | None = None
    options: Options = field(default_factory=lambda: Options({}))
    comment: str | None = None
    like: LikeDeclaration | None = None
    elided: bool = False
    faulty: bool = False
    if_not_exists: bool = False
    path: tuple[str, str, str] | None = None

    @property
    def complete(self) -> bool:
        """Return whether all columns are known."""
        return not self.elided and not self.faulty


@dataclass(frozen=True, slots=True)
class ViewDeclaration:
    """CREATE VIEW name [(columns)] AS query."""

    name: str
    location: SourceLocation
    query: tuple[Token, ...]
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InsertDeclaration:
    """INSERT INTO | OVERWRITE target [PARTITION (...)] [(columns)] query.

    Attributes:
        partition: columns to SQL of their constant.
        columns: the column list; empty without one.
        sql: the statement as written, on one line.
        tells_before: the target needs to know what rows were before: the query is kept up, however simple it is.
        lateness: how long after their end windows stay open, in microseconds; None where they never close.
        materializes: when rows that share a key of the target are kept, so that the last of them is shown.
        state_ttl: after how many milliseconds without a change state is let go of; None for never.
    """

    target: str
    location: SourceLocation
    query: tuple[Token, ...]
    partition: dict[str, tuple[Token, ...]]
    columns: tuple[str, ...]
    sql: str
    overwrite: bool = False
    tells_before: bool = False
    lateness: int | None = None
    materializes: Materializes = Materializes.AUTO
    state_ttl: int | None = None


@dataclass(frozen=True, slots=True)
class FunctionDeclaration:
    """CREATE FUNCTION name AS 'module.function' LANGUAGE PYTHON."""

    name: str
    location: SourceLocation
    target: str


@dataclass(slots=True)
class Declarations:
    """Everything that files declare, in order, and what is wrong with it.

    Attributes:
        lateness, materializes, state_ttl: of the inserts that follow in a file.
        connectors: names of Kafka Connect configurations, with the places of their first and any further one.
        logins: settings of a Kerberos login in a file, with their places.
        catalogs: name to its default database, of CREATE CATALOG.
        named_catalogs: names in statements, with their places; those that every session has may be left out.
        unread: words of statements that could not be read, and tables that others are made LIKE by hints: what they
            name is in use.
    """

    tables: list[TableDeclaration] = field(default_factory=list)
    views: list[ViewDeclaration] = field(default_factory=list)
    functions: list[FunctionDeclaration] = field(default_factory=list)
    inserts: list[InsertDeclaration] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    lateness: int | None = None
    materializes: Materializes = Materializes.AUTO
    state_ttl: int | None = None
    logins: dict[str, tuple[str, SourceLocation]] = field(default_factory=dict)
    connectors: dict[str, list[SourceLocation]] = field(default_factory=dict)
    catalogs: dict[str, str] = field(default_factory=dict)
    named_catalogs: list[tuple[str, SourceLocation]] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)

    def add(self, other: Declarations) -> None:
        """Appends what another file declares."""
        self.unread |= other.unread
        self.tables += other.tables
        self.views += other.views
        self.functions += other.functions
        self.inserts += other.inserts
        self.problems += other.problems
        self.catalogs |= other.catalogs
        self.named_catalogs += other.named_catalogs
        for name, places in other.connectors.items():
            known = self.connectors.setdefault(name, [])
            for place in places:
                if known and name:
                    message = f"connector '{name}' is declared at {known[0]} already; names are unique: rename one"
                    self.problems.append(Problem(message, place))
                known.append(place)
