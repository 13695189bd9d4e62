"""Comparisons of several values at once, and of a value with several, as IN, AND and OR.

``(a, b) = (1, 2)``, ``(a, b) IN ((1, 2), (3, 4))``, ``(a, b) OVERLAPS (c, d)``, ``x > ANY (1, 2)``, ``x = ANY (SELECT
...)`` and ``x <> ALL (SELECT ...)``: the parser leaves them as they are written, and nothing behind it has to know
them. Nulls count as in the forms that they become. Other comparisons with the rows of a subquery stay, for
`planning.quantified`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from sqlglot import exp

from upsert_platform.sql.reader import Fault

_ORDERED: Final = (exp.LT, exp.LTE, exp.GT, exp.GTE)


def without_rows(root: exp.Expr, first_line: int) -> exp.Expr:
    """An expression or query without such comparisons; IN with several values before it and a subquery stays.

    Raises:
        Fault: the numbers of values differ, or there is no such form; with its line.
    """

    def line(node: exp.Expr) -> int:
        at = next((part.meta["line"] for part in node.walk() if isinstance(part.meta.get("line"), int)), 1)
        return first_line + int(at) - 1

    def swap(node: exp.Expr) -> exp.Expr:
        if isinstance(node, (exp.EQ, exp.NEQ, *_ORDERED)):
            if _is_quantifier(node.expression):
                return _with_rows(node, line(node))
            if isinstance(node.this, exp.Tuple) and isinstance(node.expression, exp.Tuple):
                if isinstance(node, _ORDERED):
                    raise Fault("(a, b) is compared by = and <> alone: write the order of each value", line(node))
                equal = _equal(node.this, node.expression, line(node))
                return equal if isinstance(node, exp.EQ) else exp.Not(this=equal)
        if isinstance(node, exp.Overlaps):
            return _overlapping(node, line(node))
        if isinstance(node, exp.In) and isinstance(node.this, exp.Tuple) and node.args.get("query") is None:
            rows = [_equal(node.this, item, line(node)) for item in node.expressions]
            return exp.Paren(this=_joined(exp.Or, rows))
        return node

    # From the leaves on: what a comparison becomes may stand in another one.
    for node in reversed(list(root.walk())):
        other = swap(node)
        if other is node:
            continue
        if node is root:
            root = other
        else:
            node.replace(other)
    return root


def _with_rows(node: exp.Expr, line: int) -> exp.Expr:
    """A comparison by ANY or ALL, as IN where it means the same."""
    some, given = _quantifier(node.expression)
    if len(given) != 1 or not isinstance(given[0], exp.Query):
        if not given or any(item.find(exp.Select) for item in given):
            raise Fault("ANY and ALL compare with a subquery or with values: x = ANY (SELECT ...)", line)
        if isinstance(node.this, exp.Tuple):
            raise Fault("ANY and ALL compare one value with several: (a, b) IN ((1, 2), (3, 4))", line)
        parts = [type(node)(this=node.this.copy(), expression=item.copy()) for item in given]
        return exp.Paren(this=_joined(exp.Or if some else exp.And, parts))
    if isinstance(node, exp.EQ if some else exp.NEQ):
        listed = exp.In(this=node.this, query=given[0])
        return listed if some else exp.Not(this=listed)
    if isinstance(node.this, exp.Tuple):
        raise Fault("ANY and ALL compare one value: (a, b) IN (SELECT ...), or NOT EXISTS (SELECT 1 ...)", line)
    node.set("expression", (exp.Any if some else exp.All)(this=given[0]))
    return node


def _overlapping(node: exp.Overlaps, line: int) -> exp.Expr:
    """``(a, b) OVERLAPS (c, d)`` of points in time; an interval in the place of an end counts from the beginning.

    The earlier point of each pair counts as its beginning, and pairs that have one point in common overlap.
    """
    ends: list[tuple[exp.Expr, exp.Expr]] = []
    for side in (node.this, node.expression):
        if not isinstance(side, exp.Tuple) or len(side.expressions) != 2:
            raise Fault("OVERLAPS takes a beginning and an end on both sides: (a, b) OVERLAPS (c, d)", line)
        start, end = side.expressions
        if isinstance(end, exp.Interval):
            end = exp.Add(this=start.copy(), expression=end)

        def chosen(one: exp.Expr, other: exp.Expr, start: exp.Expr = start, end: exp.Expr = end) -> exp.Expr:
            branch = exp.If(this=exp.LTE(this=start.copy(), expression=end.copy()), true=one.copy())
            return exp.Case(ifs=[branch], default=other.copy())

        ends.append((chosen(start, end), chosen(end, start)))
    (one_start, one_end), (other_start, other_end) = ends
    pairs = [(one_end, other_start), (other_end, one_start)]
    return exp.Paren(this=_joined(exp.And, [exp.GTE(this=high, expression=low) for high, low in pairs]))


def _quantifier(node: exp.Expr) -> tuple[bool, list[exp.Expr]]:
    """Return whether ANY (SOME) stands before what a value is compared with, not ALL; and this."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).upper() != "ALL", list(node.expressions)
    return isinstance(node, exp.Any), node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]


def _is_quantifier(node: exp.Expr) -> bool:
    return isinstance(node, (exp.Any, exp.All)) or (
        isinstance(node, exp.Anonymous) and str(node.this).upper() in ("ANY", "SOME", "ALL")
    )


def _equal(values: exp.Expr, others: exp.Expr, line: int) -> exp.Expr:
    """The condition that each of several values equals its own of others."""
    given = others.expressions if isinstance(others, exp.Tuple) else [others]
    if len(given) != len(values.expressions):
        raise Fault(f"{len(values.expressions)} values are compared with {len(given)}: (a, b) IN ((1, 2), ...)", line)
    pairs = zip(values.expressions, given, strict=True)
    return exp.Paren(this=_joined(exp.And, [exp.EQ(this=one.copy(), expression=other.copy()) for one, other in pairs]))


def _joined(kind: type[exp.Connector], parts: Sequence[exp.Expr]) -> exp.Expr:
    return reduce(lambda one, other: kind(this=one, expression=other), parts)
