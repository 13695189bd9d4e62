"""Lookup joins: ``JOIN table FOR SYSTEM_TIME AS OF left.proc ON ...``, where proc is a column of processing time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from sqlglot import exp

from upsert_platform.core.model import Table
from upsert_platform.core.plan import (
    Expression,
    Field,
    Filter,
    Join,
    Lookup,
    LookupRows,
    Node,
    Over,
    Project,
    Session,
    TopN,
    Union,
    Unnest,
    Window,
    column,
)
from upsert_platform.core.types import TypeName
from upsert_platform.sql.expressions import Scope, render
from upsert_platform.sql.planning.joins import (
    all_met,
    compared_type,
    conjuncts,
    filtered,
    padded,
    where_met,
    with_columns,
)
from upsert_platform.sql.planning.scope import Columns, Named, Names, Relation, as_type
from upsert_platform.sql.rendered import STRINGS


def is_processing_time(node: Node, name: str) -> bool:
    """Return whether a column is ``PROCTIME()``, of a table's declaration or of a subquery, passed on as it is."""
    match node:
        case Project():
            expression = dict(node.columns)[name]
            if expression.column is not None:
                return is_processing_time(node.input, expression.column)
            return expression.sql == _processing_time()
        case Filter() | TopN() | Window() | Session() | Over() | Unnest() if name in {
            item.name for item in node.input.fields
        }:
            return is_processing_time(node.input, name)
        case Union():
            at = [item.name for item in node.fields].index(name)
            return all(is_processing_time(branch, branch.fields[at].name) for branch in node.branches)
        case Join() | Lookup():
            sides = node.inputs
            return any(
                is_processing_time(side, name) for side in sides if name in {field.name for field in side.fields}
            )
    return False


def _has(node: Node, name: str) -> bool:
    return any(item.name == name for item in node.fields)


@lru_cache(maxsize=1)
def _processing_time() -> str:
    return render(exp.Anonymous(this="PROCTIME"), Scope({}), 1).sql


@dataclass
class FindsRows(ABC):
    """Plans a join in which each row of the left side finds the row of a table that has its key.

    Of a table without a primary key it finds every row that has the columns that ON sets equal.

    Args:
        left: the rows that arrive, with their columns in scope.
        right: the table, with its names in the statement.
    """

    left: Relation
    named: Sequence[Named]
    right: Table
    qualifiers: tuple[str, ...]
    names: Names
    first_line: int

    def __post_init__(self) -> None:
        self.others = [Named(self.qualifiers, shown, field) for shown, field in self.named_columns()]
        self.left_columns = Columns(self.named, self.first_line)
        self.right_columns = Columns(self.others, self.first_line)

    @abstractmethod
    def named_columns(self) -> list[tuple[str, Field]]:
        """The columns that a row is found with: names in the statement, and the columns of the plan."""

    @abstractmethod
    def found(self, rows: Node, on: Sequence[tuple[str, str]], *, padded: bool) -> Node:
        """The rows with what they find.

        Args:
            on: columns of the rows, each with the column of the table that it is equal to.
            padded: rows that find nothing stay.
        """

    def planned(self, kind: str, join: exp.Join) -> tuple[Relation, list[Named]]:
        """The joined rows, and their columns in scope.

        Args:
            kind: ``inner`` or ``left``.

        Raises:
            Fault: the condition does not name one row of the table.
        """
        equal: dict[str, tuple[str, Expression]] = {}
        rest: list[exp.Expr] = []
        for part in conjuncts(join.args.get("on")):
            found = self._of_key(part)
            if found is None or found[0] in equal:
                rest.append(part)
            else:
                equal[found[0]] = (self.names.fresh("on"), found[1])
        key = self.right.primary_key or tuple(equal)
        if not key:
            raise self.left_columns.fault(
                f"rows of '{self.right.name}' are found by columns that are equal to others: ON needs an equality for"
                " one of its columns",
                join,
            )
        if kind == "left" and rest and not self.right.primary_key:
            raise self.left_columns.fault(
                f"LEFT JOIN with '{self.right.name}', of which a row may find several for it has no PRIMARY KEY, takes"
                " equalities for its columns alone: write JOIN, or declare the PRIMARY KEY that tells its rows apart",
                join,
            )
        missing = [name for name in key if name not in equal]
        if missing:
            raise self.left_columns.fault(
                f"rows of '{self.right.name}' are found by its primary key ({', '.join(self.right.primary_key)}): ON"
                f" needs an equality for {', '.join(missing)}",
                join,
            )
        given = [equal[name] for name in key]
        on = tuple((item.column or name, of_key) for (name, item), of_key in zip(given, key, strict=True))
        shaped = with_columns(self.left.node, [(item.column or name, item) for name, item in given])
        node = self.found(shaped, on, padded=kind == "left")
        scope = [*self.named, *padded(self.others, node)]
        columns = Columns(scope, self.first_line)
        node = filtered(node, columns, rest) if kind == "inner" else self._where_met(node, columns, rest)
        return Relation(node, tuple((item.shown, item.field) for item in scope)), scope

    def _of_key(self, part: exp.Expr) -> tuple[str, Expression] | None:
        """A column of the table's key and what it is equal to; None for another condition.

        Any column may be one of a table without a primary key.
        """
        if not isinstance(part, exp.EQ):
            return None
        for one, other in ((part.this, part.expression), (part.expression, part.this)):
            if not isinstance(other, exp.Column) or not self.left_columns.fits(one):
                continue
            found = self.right_columns.find(other)
            if found is None or found[1]:
                continue
            if self.right.primary_key and found[0].shown not in self.right.primary_key:
                continue
            if any(True for _ in one.find_all(exp.Column)) and self.right_columns.fits(one):
                continue
            return found[0].shown, self._as_key(self.left_columns.expression(one), found[0], part)
        return None

    def _as_key(self, value: Expression, key: Named, part: exp.Expr) -> Expression:
        """A value as the table stores its key: of the same type, or of one that widens to it."""
        wanted = key.field.type
        both = (value.type.name, wanted.name)
        if TypeName.CHAR not in both and all(name in STRINGS for name in both):
            return value
        shared = compared_type(value.type, wanted)
        if shared is None or replace(shared, nullable=True) != replace(wanted, nullable=True):
            kinds = [str(replace(kind, nullable=True)) for kind in (value.type, wanted)]
            raise self.left_columns.fault(
                f"key column '{key.shown}' of '{self.right.name}' is {kinds[1]}, what it is compared with {kinds[0]}:"
                f" write TRY_CAST(... AS {kinds[1]})",
                part,
            )
        return as_type(value, replace(wanted, nullable=value.type.nullable))

    def _where_met(self, node: Node, columns: Columns, parts: Sequence[exp.Expr]) -> Node:
        """Nulls in the place of a row that was found and does not meet what else ON says."""
        if not parts:
            return node
        met = all_met(columns, parts)
        own = {item.field.name for item in self.others}
        shown = ((item.name, column(item)) for item in node.fields)
        return Project(node, tuple((name, where_met(met, item) if name in own else item) for name, item in shown))


@dataclass
class LookupJoin(FindsRows):
    """Plans one lookup join."""

    def __post_init__(self) -> None:
        self.columns = tuple(
            (self.names.fresh(item.name), Field(item.name, item.type))
            for item in self.right.physical_columns
            if item.type is not None
        )
        super().__post_init__()

    def named_columns(self) -> list[tuple[str, Field]]:
        """Names in the statement, and the columns of the plan."""
        return [(item.name, Field(name, item.type)) for name, item in self.columns]

    def found(self, rows: Node, on: Sequence[tuple[str, str]], *, padded: bool) -> Node:
        """The rows with those of the table."""
        lookup = Lookup if self.right.primary_key else LookupRows
        return lookup(rows, self.right.name, self.columns, tuple(on), padded=padded)
