"""GROUP BY: aggregates of a select list, with the types that Flink gives them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from upsert_platform.plan import Aggregate, Call, Expression, Field, Node, Project, column
from upsert_platform.sql.functions import AGGREGATES
from upsert_platform.sql.planning.scope import Columns, Named, Names
from upsert_platform.sql.rendered import INTEGERS
from upsert_platform.types import LogicalType, TypeName

_KEPT: Final = {"COUNT": "count", "SUM": "sum", "AVG": "avg", "MIN": "min", "MAX": "max"}
_NUMBERS: Final = (*INTEGERS, TypeName.DECIMAL, TypeName.FLOAT, TypeName.DOUBLE)
_UNORDERED: Final = (TypeName.ARRAY, TypeName.MAP, TypeName.MULTISET, TypeName.ROW)
_MOMENTS: Final = "keep COUNT(x), SUM(x) and SUM(x * x) of a DOUBLE, from which readers of the table compute it"
_VALUES: Final = "write the rows to a table whose key ends with the value; its readers put them together"
_NEAREST: Final = {
    "APPROX_COUNT_DISTINCT": "COUNT(DISTINCT ...) is exact and kept up to date",
    "FIRST_VALUE": "ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) with WHERE rn = 1 gives the first row",
    "LAST_VALUE": "ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ... DESC) with WHERE rn = 1 gives the last row",
    "LISTAGG": _VALUES, "STRING_AGG": _VALUES, "COLLECT": _VALUES, "ARRAY_AGG": _VALUES, "JSON_ARRAYAGG": _VALUES,
    "JSON_OBJECTAGG": _VALUES, "VAR_POP": _MOMENTS, "VAR_SAMP": _MOMENTS, "VARIANCE": _MOMENTS, "STDDEV": _MOMENTS,
    "STDDEV_POP": _MOMENTS, "STDDEV_SAMP": _MOMENTS,
    "GROUPING": "it belongs to GROUPING SETS, which are not supported",
    "GROUPING_ID": "it belongs to GROUPING SETS, which are not supported",
}  # fmt: skip


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is a call of an aggregate, not of a window function."""
    if isinstance(node, exp.Filter):
        return True
    if not isinstance(node, exp.Anonymous) or str(node.this).upper() not in AGGREGATES:
        return False
    return not isinstance(node.parent, exp.Window)


def has_aggregate(node: exp.Expr) -> bool:
    """Whether an expression contains an aggregate, subqueries left aside."""
    return any(is_aggregate(item) for item in node.walk(prune=lambda item: isinstance(item, exp.Select)))


@dataclass(frozen=True)
class Grouped:
    """A GROUP BY, and what its results are called in expressions over it.

    Attributes:
        columns: over the result, for the select list and HAVING after `replaced`.
    """

    node: Node
    columns: Columns
    known: tuple[tuple[exp.Expr, Field], ...]

    def replaced(self, node: exp.Expr) -> exp.Expr:
        """An expression with aggregates and grouped expressions as columns of the result."""

        def swap(item: exp.Expr) -> exp.Expr:
            for known, field in self.known:
                if item == known:
                    found = exp.Column(this=exp.Identifier(this=field.name, quoted=True))
                    found.meta.update(item.meta)
                    return found
            return item

        return node.transform(swap)


def group_rows(source: Node, columns: Columns, names: Names, *, by: list[exp.Expr], asked: list[exp.Expr]) -> Grouped:
    """Plans a GROUP BY.

    Args:
        by: expressions to group by; empty for one row for everything.
        asked: select list and HAVING, where aggregates stand.
    """
    given: list[tuple[str, Expression]] = []
    known: list[tuple[exp.Expr, Field]] = []

    def add(expression: Expression, wish: str) -> str:
        same = next((name for name, other in given if other == expression), None)
        if same is not None:
            return same
        name = names.fresh(wish)
        given.append((name, expression))
        return name

    group: list[str] = []
    for item in by:
        expression = columns.expression(item)
        name = add(expression, item.name if isinstance(item, exp.Column) else "g")
        if name not in group:
            group.append(name)
        known.append((_bare(item), Field(name, expression.type)))
    calls: list[Call] = []
    for root in asked:
        for node in list(root.walk(prune=lambda item: isinstance(item, exp.Select) or is_aggregate(item))):
            if is_aggregate(node) and not any(node == other for other, _ in known):
                call = _call(node, columns, names, add)
                calls.append(call)
                known.append((node.copy(), Field(call.name, call.type)))
    result = Aggregate(Project(source, tuple(given)), tuple(group), tuple(calls))
    shown = [
        Named(item.qualifiers, item.shown, field)
        for node, field in known
        if isinstance(node, exp.Column)
        for item in [found[0] for found in [columns.find(node)] if found is not None]
    ]
    own = [Named((), field.name, field) for _, field in known]
    shown += [item for item in own if all(item.shown != other.shown for other in shown)]
    return Grouped(result, Columns(shown, columns.first_line), tuple(known))


def distinct_rows(source: Node) -> Aggregate:
    """SELECT DISTINCT."""
    return Aggregate(Project(source, tuple((field.name, column(field)) for field in source.fields)),
                     tuple(field.name for field in source.fields), ())  # fmt: skip


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node.copy()


def _call(node: exp.Expr, columns: Columns, names: Names, add: object) -> Call:
    condition: Expression | None = None
    inner = node
    if isinstance(node, exp.Filter):
        inner = node.this
        condition = columns.expression(node.expression.this)
        if condition.type.name is not TypeName.BOOLEAN:
            raise columns.fault(f"FILTER takes a condition, not {condition.type}", node)
    name = str(inner.this).upper() if isinstance(inner, exp.Anonymous) else inner.key.upper()
    function = _KEPT.get(name)
    if function is None:
        remedy = _NEAREST.get(name, f"kept up to date are {', '.join(_KEPT)}")
        raise columns.fault(f"the aggregate {name} is not supported: {remedy}", node)
    arguments = list(inner.expressions)
    distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = list(arguments[0].expressions)
    if len(arguments) != 1:
        remedy = "; group by them in a subquery first" if distinct else ""
        raise columns.fault(f"{name} takes one argument, not {len(arguments)}{remedy}", node)
    filtered = add(condition, "filter") if condition is not None else None  # type: ignore[operator]
    wish = function
    if isinstance(arguments[0], exp.Star):
        if function != "count" or distinct:
            raise columns.fault(f"{name} takes an expression, not *", node)
        return Call(names.fresh(wish), function, _count_type(), None, filter=filtered)
    argument = columns.expression(arguments[0])
    kind = _result_type(function, argument.type)
    if kind is None:
        raise columns.fault(f"{name} does not take a value of type {argument.type}", node)
    # Of counts without DISTINCT only nulls matter, and there are none: the same as COUNT(*).
    if function == "count" and not distinct and not argument.type.nullable:
        return Call(names.fresh(wish), function, _count_type(), None, filter=filtered)
    distinct = distinct and function not in ("min", "max")
    return Call(names.fresh(wish), function, kind, add(argument, "arg"), distinct, filtered)  # type: ignore[operator]


def _count_type() -> LogicalType:
    return LogicalType(TypeName.BIGINT, nullable=False)


def _result_type(function: str, argument: LogicalType) -> LogicalType | None:
    """Flink's type of an aggregate's result; None for one that does not take such values."""
    if function == "count":
        return _count_type()
    if function in ("min", "max"):
        return None if argument.name in _UNORDERED else replace(argument, nullable=True)
    if argument.name not in _NUMBERS:
        return None
    if argument.name is TypeName.DECIMAL:
        scale = argument.scale or 0
        return LogicalType(TypeName.DECIMAL, precision=38, scale=scale if function == "sum" else max(scale, 6))
    return replace(argument, nullable=True)
