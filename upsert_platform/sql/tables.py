"""Declared tables to `model.Table`: LIKE, keys, partitions, computed columns, and everything wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Column, ColumnKind, Table
from upsert_platform.core.options import nearest
from upsert_platform.core.types import LogicalType, quote_name
from upsert_platform.sql.declarations import ColumnDeclaration, TableDeclaration
from upsert_platform.sql.expressions import Scope, render
from upsert_platform.sql.flink import parse_query
from upsert_platform.sql.like import apply_likes
from upsert_platform.sql.reader import Fault
from upsert_platform.sql.rendered import Rendered


@dataclass(frozen=True)
class Tables:
    """Declared tables by name, in order of declaration; those with errors too, as far as they can be told.

    Attributes:
        elided: names of tables of which columns were left out (``...``).
        faulty: names of tables whose columns are not all known because of an error that was told.
        keyed: names of tables that declare a primary key, a faulty one too.
    """

    by_name: dict[str, Table]
    elided: frozenset[str]
    faulty: frozenset[str]
    keyed: frozenset[str]


def resolve_tables(declarations: Sequence[TableDeclaration]) -> tuple[Tables, list[Problem]]:
    """Makes tables of declarations; returns them and the problems."""
    problems: list[Problem] = []
    unique: dict[str, TableDeclaration] = {}
    for declaration in declarations:
        first = unique.get(declaration.name)
        if first is None:
            unique[declaration.name] = declaration
        elif first.path and declaration.path and first.path != declaration.path:
            message = (
                f"tables {_shown(first.path)} (at {first.location}) and {_shown(declaration.path)} have one name here,"
                f" '{declaration.name}': rename one"
            )
            problems.append(Problem(message, declaration.location))
        elif not declaration.if_not_exists:
            message = f"table '{declaration.name}' is declared twice (first at {first.location}); rename or remove one"
            problems.append(Problem(message, declaration.location))
        else:
            message = f"table '{declaration.name}' is declared at {first.location} already; this one is not used"
            problems.append(Problem(message, declaration.location, "warning"))
    resolved = apply_likes(unique, problems)
    tables = {name: _TableResolver(declaration, problems).resolve() for name, declaration in resolved.items()}
    elided = frozenset(name for name, declaration in resolved.items() if declaration.elided)
    faulty = frozenset(name for name in unique if name not in resolved or resolved[name].faulty)
    keyed = frozenset(name for name, declaration in resolved.items() if declaration.key is not None)
    return Tables(tables, elided, faulty, keyed), problems


def _shown(path: Sequence[str]) -> str:
    return ".".join(map(quote_name, path))


class _TableResolver:
    def __init__(self, declaration: TableDeclaration, problems: list[Problem]) -> None:
        self.declaration = declaration
        self.problems = problems

    def error(self, message: str, location: SourceLocation) -> None:
        self.problems.append(Problem(f"table '{self.declaration.name}': {message}", location))

    def resolve(self) -> Table:
        declaration = self.declaration
        if not declaration.columns and declaration.complete:
            self.error("it declares no columns", declaration.location)
        self._check_names()
        key = self._key()
        self._check_mentions()
        columns = tuple(self._column(column, key) for column in declaration.columns)
        return Table(
            name=declaration.name,
            columns=columns,
            primary_key=key,
            options=declaration.options,
            location=declaration.location,
            partitioned_by=declaration.partitioned_by,
            comment=declaration.comment,
            watermark=declaration.watermark.text if declaration.watermark else None,
        )

    def _check_names(self) -> None:
        seen: dict[str, str] = {}
        for column in self.declaration.columns:
            folded = column.name.lower()
            if folded in seen:
                same = seen[folded] == column.name
                what = "is declared twice" if same else f"differs from '{seen[folded]}' in case only, which Spark folds"
                self.error(f"column '{column.name}' {what}; rename one", column.location)
            seen.setdefault(folded, column.name)

    def _key(self) -> tuple[str, ...]:
        key = self.declaration.key
        if key is None:
            return ()
        kinds = {column.name: column.kind for column in self.declaration.columns}
        names: list[str] = []
        for name in key.columns:
            kind = kinds.get(name)
            if kind is None:
                if self.declaration.complete:
                    self.error(f"PRIMARY KEY names '{name}', which is not a column{nearest(name, kinds)}", key.location)
            elif kind is not ColumnKind.PHYSICAL:
                self.error(f"PRIMARY KEY takes physical columns, '{name}' is {kind}", key.location)
            elif name in names:
                self.error(f"PRIMARY KEY names '{name}' twice", key.location)
            else:
                names.append(name)
        return tuple(names)

    def _check_mentions(self) -> None:
        names = [column.name for column in self.declaration.columns]
        if not self.declaration.complete:
            return
        for name in self.declaration.partitioned_by:
            if name not in names:
                place = self.declaration.partition_location or self.declaration.location
                self.error(f"PARTITIONED BY names '{name}', which is not a column{nearest(name, names)}", place)
        watermark = self.declaration.watermark
        if watermark is not None and watermark.column.split(".")[0] not in names:
            hint = nearest(watermark.column, names)
            self.error(f"WATERMARK FOR names '{watermark.column}', which is not a column{hint}", watermark.location)

    def _column(self, column: ColumnDeclaration, key: tuple[str, ...]) -> Column:
        # Flink makes key columns NOT NULL; formats with schemas show it.
        kind = replace(column.type, nullable=False) if column.type and column.name in key else column.type
        computed = self._expression(column) if column.kind is ColumnKind.COMPUTED else None
        return Column(
            name=column.name,
            type=kind,
            kind=column.kind,
            metadata_key=column.metadata_key,
            virtual=column.virtual,
            expression=computed.sql if computed else None,
            expression_type=computed.type if computed else None,
            failure=computed.fails if computed else None,
            varies=computed.varies if computed else None,
            comment=column.comment,
            location=column.location,
        )

    def _expression(self, column: ColumnDeclaration) -> Rendered:
        """A computed column, over the columns that are stored."""
        stored = {
            other.name: Rendered(quote_name(other.name), _some(other.type), simple=True, column=other.name)
            for other in self.declaration.columns
            if other.kind is not ColumnKind.COMPUTED
        }
        try:
            node = parse_query(column.expression, "expression")
            return render(node, Scope(stored), column.expression[0].line)
        except Fault as fault:
            hint = ""
            if not self.declaration.complete:
                return Rendered("NULL", simple=True)
            if any(other.kind is ColumnKind.COMPUTED and f"'{other.name}'" in fault.message
                   for other in self.declaration.columns):  # fmt: skip
                hint = " (a computed column cannot use another one)"
            place = SourceLocation(column.location.file, fault.line)
            self.error(f"computed column '{column.name}': {fault.message}{hint}", place)
            return Rendered("NULL", simple=True)


def _some(logical: LogicalType | None) -> LogicalType:
    assert logical is not None
    return logical
