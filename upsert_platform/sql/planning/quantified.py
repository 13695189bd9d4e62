"""Comparisons with the rows of a subquery, ``x > ANY (SELECT ...)``, ``x <= ALL (SELECT ...)``, by its extremes.

``x > ALL (S)`` holds where S has no rows, is false where x is not above the greatest value of S, and else unknown while
x or a value of S is null. ``x > ANY (S)`` is ``NOT (x <= ALL (S))``, in which both are unknown for the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Aggregate, Call, Expression, Field, Join, Node, Project, column
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.planning.aggregates import result_type
from upsert_platform.sql.planning.joins import compared_keys, compared_type, join_rows
from upsert_platform.sql.planning.scope import Columns, Named, Names
from upsert_platform.sql.reader import Fault

_INVERSE: Final[dict[type[exp.Expr], type[exp.Expr]]] = {
    exp.GT: exp.LTE, exp.GTE: exp.LT, exp.LT: exp.GTE, exp.LTE: exp.GT, exp.NEQ: exp.EQ,
}  # fmt: skip
_BOUNDS: Final[dict[type[exp.Expr], tuple[str, ...]]] = {
    exp.GT: ("max",), exp.GTE: ("max",), exp.LT: ("min",), exp.LTE: ("min",), exp.EQ: ("min", "max"),
}  # fmt: skip
"""By which of its values a comparison with all of them is decided: of a list of one value both are that value."""
_COUNT: Final = LogicalType(TypeName.BIGINT, nullable=False)


def is_quantified(node: exp.Expr) -> bool:
    """Return whether a node compares a value with the rows of a subquery, otherwise than IN does."""
    return isinstance(node, exp.Binary) and isinstance(node.expression, (exp.Any, exp.All))


def numbered(columns: Columns) -> int:
    """Return the number of the next subquery of a condition: that of each is part of its columns' names."""
    return 1 + sum(item.shown.startswith(("match ", "all rows ")) for item in columns.named)


def counted_rows(
    rows: Node,
    inside: Node,
    pairs: Sequence[tuple[Expression, Expression]],
    value: Expression,
    names: Names,
    fault: Fault,
    *,
    more: Sequence[tuple[str, LogicalType]] = (),
) -> tuple[Node, list[Field]]:
    """The rows with the number of rows of a subquery, the number of its values that are not null, and aggregates.

    Args:
        pairs: what the subquery sets equal to expressions of the query around it.
        value: the column of the subquery.
        more: further aggregates of its values, with their types.
    """
    own = [(names.fresh("k"), other) for other in compared_keys(pairs)]
    given = names.fresh("given")
    calls = [Call(names.fresh("rows"), "count", _COUNT), Call(names.fresh("values"), "count", _COUNT, given)]
    calls += [Call(names.fresh(function), function, kind, given) for function, kind in more]
    counts = Aggregate(Project(inside, (*own, (given, value))), tuple(name for name, _ in own), tuple(calls))
    fields = {item.name: item for item in counts.fields}
    if pairs:
        on = [(one, column(fields[name])) for (one, _), (name, _) in zip(pairs, own, strict=True)]
        joined = join_rows(rows, counts, "left", on, names, fault=fault)
    else:
        joined = Join(rows, counts, "inner", (), ())
    found = {item.name: item for item in joined.fields}
    return joined, [found[call.name] for call in calls]


def compared_rows(
    rows: Node,
    columns: Columns,
    node: exp.Binary,
    inside: Node,
    pairs: Sequence[tuple[Expression, Expression]],
    value: Expression,
    number: int,
    names: Names,
) -> tuple[Node, list[Named], exp.Expr]:
    """The rows with what a subquery has to be compared by, these columns, and the comparison over them.

    Args:
        inside: the rows of the subquery.
        pairs: what the subquery sets equal to expressions of the query around it.
        value: the column of the subquery.
        number: tells the columns of several subqueries apart.

    Raises:
        Fault: the values cannot be compared, or have no order.
    """
    fault = columns.fault("", node)
    given = columns.expression(node.this)
    if compared_type(given.type, value.type) is None:
        raise Fault(
            f"ANY and ALL compare {given.type} with {value.type}; CAST one to the type of the other", fault.line
        )
    some = isinstance(node.expression, exp.Any)
    operator = _INVERSE[type(node)] if some else type(node)
    bounds = [(function, result_type(function, value.type)) for function in _BOUNDS[operator]]
    known = [(function, kind) for function, kind in bounds if kind is not None]
    if len(known) < len(bounds):
        raise Fault(f"values of type {value.type} have no order: compare by = ANY or <> ALL", fault.line)
    joined, found = counted_rows(rows, inside, pairs, value, names, fault, more=known)
    words = ("all rows", "all values", "bound", "other bound")
    shown = [f"{word} {number}" for word in words[: len(found)]]
    named = [Named((), name, item) for name, item in zip(shown, found, strict=True)]
    mark = _of_all(node, operator, shown)
    return joined, named, exp.Paren(this=exp.Not(this=mark) if some else mark)


def _of_all(node: exp.Binary, operator: type[exp.Expr], shown: Sequence[str]) -> exp.Expr:
    """The condition that a value compares so with all values of a subquery.

    Args:
        shown: names of the number of its rows, null for none, of its values that are not null, and of its bounds.
    """
    rows, values, *bounds = (_column(name, node) for name in shown)
    none = exp.Or(
        this=exp.Is(this=rows, expression=exp.Null()),
        expression=exp.EQ(this=rows.copy(), expression=exp.Literal.number(0)),
    )
    # True, or unknown: a null among the values may be anything.
    held: exp.Expr = exp.Paren(
        this=exp.Or(this=exp.EQ(this=rows.copy(), expression=values), expression=exp.Null()),
    )
    for bound in bounds:
        held = exp.And(this=operator(this=exp.Paren(this=node.this.copy()), expression=bound), expression=held)
    return exp.Paren(this=exp.Or(this=none, expression=exp.Paren(this=held)))


def _column(shown: str, like: exp.Expr) -> exp.Column:
    found = exp.Column(this=exp.Identifier(this=shown, quoted=True))
    found.meta.update(like.meta)
    return found
