"""ROW_NUMBER with its limit: the first rows of each partition."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from upsert_platform.plan import Field, Node, Order, TopN
from upsert_platform.sql.planning.scope import Columns, Rank
from upsert_platform.types import LogicalType, TypeName

REMEDY = "write SELECT ... FROM (SELECT ..., ROW_NUMBER() OVER (...) AS rn ...) WHERE rn <= n"
_MIRRORED: dict[type, type] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ}


def check_rank(node: exp.Window, columns: Columns) -> None:
    """Refuses window functions that are not kept up to date."""
    inner = node.this
    name = str(inner.this).upper() if isinstance(inner, exp.Anonymous) else inner.key.upper()
    if name != "ROW_NUMBER":
        remedy = REMEDY if name in ("RANK", "DENSE_RANK") else "group in a subquery and join it"
        raise columns.fault(f"{name} OVER is not supported: {remedy}", node)
    if node.args.get("spec") is not None:
        raise columns.fault("ROW_NUMBER takes no frame (ROWS, RANGE)", node)
    if node.args.get("order") is None:
        raise columns.fault("ROW_NUMBER needs an ORDER BY", node)


def bound_of(part: exp.Expr, shown: str) -> tuple[int, bool] | None:
    """The greatest row number that a condition lets pass, and whether it lets all up to there pass; None for others."""
    if isinstance(part, exp.Between) and _is(part.this, shown):
        low, high = part.args["low"], part.args["high"]
        if _number(low) is not None and _number(high) is not None:
            return _number(high) or 0, (_number(low) or 0) <= 1
    kind = type(part)
    if kind not in _MIRRORED:
        return None
    left, right = part.this, part.expression
    if _is(right, shown):
        left, right, kind = right, left, _MIRRORED[kind]
    number = _number(right)
    if not _is(left, shown) or number is None or kind in (exp.GT, exp.GTE):
        return None
    if kind is exp.EQ:
        return number, number == 1
    return (number, True) if kind is exp.LTE else (number - 1, True)


def _is(node: exp.Expr, shown: str) -> bool:
    return isinstance(node, exp.Column) and node.name == shown


def _number(node: exp.Expr) -> int | None:
    return int(node.name) if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() else None


def limit_rows(node: Node, rank: Rank, limit: int, *, shown_as: str | None) -> TopN:
    """The first rows of each partition.

    Args:
        shown_as: name of the row number's column, None when nothing reads it.
    """
    order = tuple(Order(name, descending, first) for name, descending, first in rank.order)
    field = Field(shown_as, LogicalType(TypeName.BIGINT, nullable=False)) if shown_as else None
    return TopN(node, rank.partition, order, limit, field)


def mentions(parts: Sequence[exp.Expr], shown: str) -> bool:
    """Whether a column is named in one of these, or all are asked for."""
    for part in parts:
        if isinstance(part, exp.Star) or any(isinstance(item.this, exp.Star) for item in part.find_all(exp.Column)):
            return True
        if any(item.name == shown for item in part.find_all(exp.Column)):
            return True
    return False
