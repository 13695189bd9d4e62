"""GROUP BY: aggregates of a select list, with the types that Flink gives them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Aggregate, Call, Expression, Field, GroupJoin, Node, Project, column
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.functions import AGGREGATES
from upsert_platform.sql.planning.arrivals import arrived_values
from upsert_platform.sql.planning.groupings import Groupings, expand_rows, is_grouping
from upsert_platform.sql.planning.percentiles import percentile_of, percentile_type
from upsert_platform.sql.planning.scope import Columns, Named, Names
from upsert_platform.sql.reader import Fault
from upsert_platform.sql.rendered import INTEGERS, STRINGS

_MOMENTS: Final = {
    "VAR_POP": "var_pop", "VAR_SAMP": "var_samp", "VARIANCE": "var_samp", "STDDEV_POP": "stddev_pop",
    "STDDEV_SAMP": "stddev_samp", "STDDEV": "stddev_samp",
}  # fmt: skip
_KEPT: Final = {
    "COUNT": "count",
    "SUM": "sum",
    "AVG": "avg",
    "MIN": "min",
    "MAX": "max",
    "LISTAGG": "listagg",
    "APPROX_COUNT_DISTINCT": "count",
    "FIRST_VALUE": "first_value",
    "LAST_VALUE": "last_value",
    "ARRAY_AGG": "array_agg",
    "COLLECT": "collect",
    "JSON_ARRAYAGG": "json_arrayagg",
    "JSON_OBJECTAGG": "json_objectagg",
    "PERCENTILE": "percentile",
    **_MOMENTS,
}
_ARRIVED: Final = ("first_value", "last_value")
_NUMBERS: Final = (*INTEGERS, TypeName.DECIMAL, TypeName.FLOAT, TypeName.DOUBLE)
_UNORDERED: Final = (TypeName.ARRAY, TypeName.MAP, TypeName.MULTISET, TypeName.ROW)
_JSON: Final = ("json_arrayagg", "json_objectagg")
_LISTED: Final = ("array_agg", "collect")
_AS_THEY_COME: Final = (
    "FIRST_VALUE and LAST_VALUE follow rows that are only added, by GROUP BY of columns; of rows that change write"
    " ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) with WHERE rn = 1, and name the order"
)
_NEAREST: Final = dict.fromkeys(("GROUPING", "GROUPING_ID", "GROUP_ID"), "it belongs to GROUP BY")


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether a node is a call of an aggregate, not of a window function."""
    if isinstance(node, exp.Filter):
        return True
    if not isinstance(node, exp.Anonymous) or str(node.this).upper() not in AGGREGATES:
        return False
    return not isinstance(node.parent, exp.Window)


def has_aggregate(node: exp.Expr) -> bool:
    """Return whether an expression contains an aggregate, subqueries left aside."""
    return any(is_aggregate(item) for item in node.walk(prune=lambda item: isinstance(item, exp.Select)))


def result_name(field: Field) -> str:
    """The name of a GROUP BY's result in expressions over it, which no column of a statement has."""
    return f"result {field.name}"


@dataclass(frozen=True)
class Grouped:
    """A GROUP BY, and what its results are called in expressions over it.

    Attributes:
        columns: over the result, for the select list and HAVING after `replaced`.
        before: over the rows that are grouped.
    """

    node: Node
    columns: Columns
    known: tuple[tuple[exp.Expr, Field], ...]
    before: Columns

    def replaced(self, node: exp.Expr) -> exp.Expr:
        """An expression with aggregates and grouped expressions as columns of the result."""
        bound = [self.before.bound(known) for known, _ in self.known]

        def swap(item: exp.Expr) -> exp.Expr:
            for (known, field), same in zip(self.known, bound, strict=True):
                # `a + 1` and `t.a + 1` are one expression.
                if item == known or (type(item) is type(same) and self.before.bound(item) == same):
                    found = exp.Column(this=exp.Identifier(this=result_name(field), quoted=True))
                    found.meta.update(item.meta)
                    return found
            return item

        return node.transform(swap)


def group_rows(source: Node, columns: Columns, names: Names, *, groupings: Groupings, asked: list[exp.Expr]) -> Grouped:
    """Plans a GROUP BY.

    Args:
        groupings: what to group by; nothing for one row for everything.
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

    grouped: list[str] = []
    types: list[LogicalType] = []
    for item in groupings.by:
        expression = columns.expression(item)
        grouped.append(add(expression, item.name if isinstance(item, exp.Column) else "g"))
        types.append(expression.type)
    known += [(_bare(item), Field(grouped[at], types[at])) for item, at in groupings.spelled]
    found: list[exp.Expr] = []
    for root in asked:
        for node in root.walk(prune=lambda item: isinstance(item, exp.Select) or is_aggregate(item)):
            if is_aggregate(node) and node not in found and all(node != other for other, _ in known):
                found.append(node)
    if groupings.sets is None and groupings.by and any(is_grouping(node) for node in found):
        groupings = replace(groupings, sets=(frozenset(range(len(groupings.by))),))
    asking = [node for node in found if is_grouping(node)] if groupings.sets is not None else []
    calls = {id(node): _call(node, columns, names, add) for node in found if node not in asking}
    rows: Node = Project(source, tuple(given))
    group, unique = tuple(dict.fromkeys(grouped)), None
    if groupings.sets is not None:
        copied = expand_rows(rows, groupings, grouped, asking, columns, names)
        rows, group, unique, known = copied.node, copied.group, copied.unique, list(copied.known)
    known += [(node.copy(), Field(call.name, call.type)) for node in found if (call := calls.get(id(node)))]
    own_calls = tuple(call for call in calls.values() if call.function not in _ARRIVED)
    result: Node = Aggregate(rows, group, own_calls, unique)
    for node, call in ((node, calls[id(node)]) for node in found if id(node) in calls):
        if call.function in _ARRIVED:
            result = _with_arrived(result, rows, group, call, names, fault=columns.fault(_AS_THEY_COME, node))
    shown = [
        replace(item, field=field)
        for node, field in known
        if isinstance(node, exp.Column)
        for item in [named[0] for named in [columns.find(node)] if named is not None]
    ]
    shown += [Named((), result_name(field), field) for _, field in known]
    # A group has a row at least; the one row of a query without GROUP BY may count none.
    counts = (call for call in own_calls if call.function == "count" and call.argument is None and call.filter is None)
    never_zero = frozenset(call.name for call in counts) if group and groupings.sets is None else frozenset()
    over = Columns(tuple(dict.fromkeys(shown)), columns.first_line, never_zero=never_zero)
    return Grouped(result, over, tuple(known), columns)


def _with_arrived(
    result: Node, rows: Node, group: tuple[str, ...], call: Call, names: Names, *, fault: Fault
) -> GroupJoin:
    """A grouping with the first or last value of each group beside it."""
    if not rows.appends or not group:
        raise fault
    assert call.argument is not None
    found = arrived_values(rows, group, call.argument, call.filter, first=call.function == "first_value")
    fields = {item.name: item for item in found.fields}
    shown = {name: names.fresh(name) for name in group}
    columns = [(new, column(fields[name])) for name, new in shown.items()]
    columns.append((call.name, column(fields[call.argument])))
    return GroupJoin(result, Project(found, tuple(columns)), "left", group, tuple(shown[name] for name in group))


def without_zeros(node: exp.Expr) -> exp.Expr:
    """An expression in which ``SUM(x) / COUNT(x)`` divides by NULLIF(COUNT(x), 0).

    The count is 0 where the sum is null: then the quotient is null in any case, and nothing fails.
    """

    def swap(item: exp.Expr) -> exp.Expr:
        if not isinstance(item, exp.Div) or not any(_counted(item.expression) == found for found in _strict(item.this)):
            return item
        nullif = exp.Anonymous(this="NULLIF", expressions=[item.expression.copy(), exp.Literal.number(0)])
        nullif.meta.update(item.meta)
        return exp.Div(this=item.this.copy(), expression=nullif)

    return node.transform(swap)


def _strict(node: exp.Expr) -> list[exp.Expr]:
    """The values of aggregates without which an expression is null, each with its filter."""
    if isinstance(node, (exp.Paren, exp.Cast, exp.TryCast, exp.Neg)):
        return _strict(node.this)
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return [*_strict(node.this), *_strict(node.expression)]
    found = _aggregated(node, ("SUM", "AVG", "MIN", "MAX"))
    return [found] if found is not None else []


def _counted(node: exp.Expr) -> exp.Expr | None:
    while isinstance(node, (exp.Paren, exp.Cast)):
        node = node.this
    return _aggregated(node, ("COUNT",))


def _aggregated(node: exp.Expr, names: tuple[str, ...]) -> exp.Expr | None:
    """Return the argument of an aggregate, DISTINCT left aside, beside its filter; None for other aggregates."""
    inner, condition = (node.this, node.expression) if isinstance(node, exp.Filter) else (node, None)
    if not isinstance(inner, exp.Anonymous) or str(inner.this).upper() not in names or len(inner.expressions) != 1:
        return None
    value = inner.expressions[0]
    if isinstance(value, exp.Distinct) and len(value.expressions) == 1:
        value = value.expressions[0]
    if isinstance(value, exp.Star):
        return None
    return exp.Tuple(expressions=[value.copy(), *([condition.copy()] if condition is not None else [])])


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
    separator: str | None = None
    if function == "array_agg":
        *arguments, nulls = arguments
        separator = nulls.name
    distinct = bool(arguments) and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = list(arguments[0].expressions)
    # What is counted exactly is within any bound of what is counted roughly.
    distinct = distinct or name == "APPROX_COUNT_DISTINCT"
    if function == "percentile":
        shares, argument = percentile_of(arguments, columns, node)
        filtered = add(condition, "filter") if condition is not None else None  # type: ignore[operator]
        listed = add(argument, "arg")  # type: ignore[operator]
        return Call(names.fresh(function), function, percentile_type(shares), listed, distinct, filtered, shares)
    if function in _JSON:
        if distinct:
            raise columns.fault(f"{name} takes no DISTINCT", node)
        arguments, separator = [_member(function, arguments, columns, node)], ","
    elif function == "listagg":
        arguments, separator = _separated(arguments, columns, node)
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
    kind = result_type(function, argument.type)
    if kind is None and function in _MOMENTS.values() and argument.type.name in _NUMBERS:
        # Flink multiplies and divides in the argument's own type: whole numbers overflow, and are cut to whole ones.
        raise columns.fault(f"{name} takes DOUBLE or FLOAT, not {argument.type}: write CAST(... AS DOUBLE)", node)
    if kind is None:
        raise columns.fault(f"{name} does not take a value of type {argument.type}", node)
    # Of counts without DISTINCT only nulls matter, and there are none: the same as COUNT(*).
    if function == "count" and not distinct and not argument.type.nullable:
        return Call(names.fresh(wish), function, _count_type(), None, filter=filtered)
    distinct = distinct and function not in ("min", "max", *_ARRIVED)
    name = add(argument, "arg")  # type: ignore[operator]
    return Call(names.fresh(wish), function, kind, name, distinct, filtered, separator)


def _member(function: str, arguments: list[exp.Expr], columns: Columns, node: exp.Expr) -> exp.Expr:
    """The JSON text that a row adds; null for a row that adds nothing.

    Raises:
        Fault: the key of an object may be null.
    """
    *given, nulls = arguments

    def call(name: str, *parts: exp.Expr) -> exp.Expr:
        made = exp.Anonymous(this=name, expressions=[part.copy() for part in parts])
        made.meta.update(node.meta)
        return made

    value = call("JSON_STRING", given[-1])
    if nulls.name == "NULL ON NULL":
        value = call("COALESCE", value, exp.Literal.string("null"))
    if function == "json_arrayagg":
        return value
    key = columns.expression(given[0])
    if key.type.name not in STRINGS or not columns.is_never_null(given[0]):
        raise columns.fault(
            f"JSON_OBJECTAGG: the key is a text that is never null, not {key.type}: declare the column NOT NULL, or"
            " write COALESCE(k, '')",
            node,
        )
    return call("CONCAT", call("JSON_STRING", given[0]), exp.Literal.string(":"), value)


def _separated(arguments: list[exp.Expr], columns: Columns, node: exp.Expr) -> tuple[list[exp.Expr], str]:
    """The value of LISTAGG and what stands between values: a comma by default."""
    if len(arguments) < 2:
        return arguments, ","
    separator = arguments[1]
    if len(arguments) > 2 or not isinstance(separator, exp.Literal) or not separator.is_string:
        raise columns.fault("LISTAGG takes a column and, if wanted, a constant text between values", node)
    return arguments[:1], separator.name


def _count_type() -> LogicalType:
    return LogicalType(TypeName.BIGINT, nullable=False)


def result_type(function: str, argument: LogicalType) -> LogicalType | None:
    """Flink's type of an aggregate's result; None for one that does not take such values."""
    if function == "count":
        return _count_type()
    if function in _ARRIVED:
        return replace(argument, nullable=True)
    if function in ("min", "max"):
        return None if argument.name in _UNORDERED else replace(argument, nullable=True)
    if function == "listagg" or function in _JSON:
        kind = LogicalType(TypeName.STRING) if argument.name in STRINGS else None
        return replace(kind, nullable=function == "listagg") if kind is not None else None
    if function in _LISTED:
        if argument.name in _UNORDERED:
            return None
        array = function == "array_agg"
        kind_of_all = TypeName.ARRAY if array else TypeName.MULTISET
        return LogicalType(
            kind_of_all, element=argument if array else replace(argument, nullable=False), nullable=array
        )
    if function in _MOMENTS.values():
        return replace(argument, nullable=True) if argument.name in (TypeName.DOUBLE, TypeName.FLOAT) else None
    if argument.name not in _NUMBERS:
        return None
    if argument.name is TypeName.DECIMAL:
        scale = argument.scale or 0
        return LogicalType(TypeName.DECIMAL, precision=38, scale=scale if function == "sum" else max(scale, 6))
    return replace(argument, nullable=True)
