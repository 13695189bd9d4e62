"""ROW_NUMBER with its limit: the first rows of each partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from upsert_platform.core.plan import (
    Expression,
    Field,
    Filter,
    Lookup,
    Node,
    Order,
    Over,
    Project,
    Session,
    TopN,
    Union,
    Unnest,
    Window,
)
from upsert_platform.core.types import LogicalType, TypeName, quote_name
from upsert_platform.sql.planning.arrivals import first_rows
from upsert_platform.sql.planning.lookups import is_processing_time
from upsert_platform.sql.planning.scope import Columns, Names, Rank

REMEDY = "write SELECT ... FROM (SELECT ..., ROW_NUMBER() OVER (...) AS rn ...) WHERE rn <= n"
_RANK_TYPE = LogicalType(TypeName.BIGINT, nullable=False)
_BOOLEAN = LogicalType(TypeName.BOOLEAN, nullable=False)
_MIRRORED: dict[type, type] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ}
_NEGATED: dict[type, type] = {exp.LT: exp.GTE, exp.LTE: exp.GT, exp.GT: exp.LTE, exp.GTE: exp.LT}


def check_rank(node: exp.Window, columns: Columns) -> None:
    """Refuses a ROW_NUMBER with a frame, or without an order."""
    if node.args.get("spec") is not None:
        raise columns.fault("ROW_NUMBER takes no frame (ROWS, RANGE)", node)
    if node.args.get("order") is None:
        raise columns.fault("ROW_NUMBER needs an ORDER BY", node)


def bound_of(part: exp.Expr, shown: str, qualifiers: Sequence[str]) -> tuple[int, bool] | None:
    """The greatest row number that a condition lets pass, and whether it lets all up to there pass; None for others.

    Args:
        shown: name of the column of row numbers.
        qualifiers: by which the relation is named.
    """
    if isinstance(part, exp.Between) and _is(part.this, shown, qualifiers):
        low, high = _number(part.args["low"]), _number(part.args["high"])
        if low is not None and high is not None:
            low, high = sorted((low, high)) if part.args.get("symmetric") else (low, high)
            return high, low <= 1
    kind, negated = type(part), False
    while isinstance(part, (exp.Not, exp.Paren)):
        negated ^= isinstance(part, exp.Not)
        part = part.this
        kind = _NEGATED.get(type(part), exp.Not) if negated else type(part)
    if kind not in _MIRRORED:
        return None
    left, right = part.this, part.expression
    if _is(right, shown, qualifiers):
        left, right, kind = right, left, _MIRRORED[kind]
    number = _number(right)
    if not _is(left, shown, qualifiers) or number is None or kind in (exp.GT, exp.GTE):
        return None
    if kind is exp.EQ:
        return number, number == 1
    return (number, True) if kind is exp.LTE else (number - 1, True)


def _is(node: exp.Expr, shown: str, qualifiers: Sequence[str]) -> bool:
    """Return whether a node is the column itself: a field of a row may have the same name."""
    if not isinstance(node, exp.Column) or node.name != shown:
        return False
    return len(node.parts) == 1 or ".".join(part.name for part in node.parts[:-1]) in qualifiers


def _number(node: exp.Expr) -> int | None:
    return int(node.name) if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() else None


def limit_rows(node: Node, rank: Rank, limit: int, names: Names, *, shown_as: str | None) -> TopN:
    """The first rows of each partition.

    Of rows that are only added, those that the order leaves equal keep the order in which they arrived, and a column of
    processing time has that order. The last row of equal event time counts where one row is kept, as Flink removes
    duplicates; everywhere else the first comes first.

    Args:
        shown_as: name of the row number's column, None when nothing reads it.
    """
    order = tuple(Order(name, descending, first) for name, descending, first in rank.order)
    field = Field(shown_as, _RANK_TYPE) if shown_as else None
    top = TopN(node, rank.partition, order, limit, field)
    if not node.appends:
        return top
    processing = next((at for at, item in enumerate(order) if is_processing_time(node, item.column)), None)
    if processing is None:
        latest = limit == 1 and len(order) == 1 and order[0].descending and is_event_time(node, order[0].column, names)
        return first_rows(top, at=len(order), latest=latest)
    rest = tuple(item for at, item in enumerate(order) if at != processing)
    return first_rows(replace(top, order=rest), at=processing, latest=order[processing].descending)


def behind(node: Node, place: str, number: int) -> Filter:
    """The rows whose place, a column, is greater than a number."""
    most = ("literal", number, _RANK_TYPE)
    condition = Expression(f"{quote_name(place)} > {number}L", _BOOLEAN, (">", ("column", place), most), reads=(place,))
    return Filter(node, condition)


def is_event_time(node: Node, name: str, names: Names) -> bool:
    """Return whether a column is that of a table's WATERMARK, passed on as it is."""
    if name in names.event_times:
        return True
    match node:
        case Project():
            expression = dict(node.columns).get(name)
            inner = expression.column if expression is not None else None
            return inner is not None and is_event_time(node.input, inner, names)
        case Filter() | Window() | Lookup() | Session() | Over() | Unnest() if name in {
            item.name for item in node.input.fields
        }:
            return is_event_time(node.input, name, names)
        case Union():
            at = [item.name for item in node.fields].index(name)
            return all(is_event_time(branch, branch.fields[at].name, names) for branch in node.branches)
    return False


def mentions(parts: Sequence[exp.Expr], shown: str) -> bool:
    """Return whether a column is named in one of these, or all are asked for."""
    for part in parts:
        if isinstance(part, exp.Star) or any(isinstance(item.this, exp.Star) for item in part.find_all(exp.Column)):
            return True
        if any(item.name == shown for item in part.find_all(exp.Column)):
            return True
    return False
