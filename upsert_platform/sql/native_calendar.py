"""Months and days that are added to dates and moments, the first day of a month, and units of fixed length that a row
brings, which Arrow computes as Spark does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Native
from upsert_platform.core.types import TypeName
from upsert_platform.sql import native_times
from upsert_platform.sql.native_types import Form, Reading, has_only, text_literal, whole_literal
from upsert_platform.sql.rendered import TIMESTAMPS

_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_SECONDS: Final = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600}
_COUNTS: Final = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT)
"""Types of numbers of hours, of which none leads out of 64 bits of microseconds."""
_MOST_MONTHS: Final = 120_000


def _months_later(node: exp.Expr, reading: Reading) -> Native | None:
    """ADD_MONTHS by a literal."""
    inner, months = reading.of(node.this, TypeName.DATE), _product(node.expression)
    if inner is None or months is None or not has_only(node, "this", "expression"):
        return None
    return ("months later", inner, months) if abs(months) <= _MOST_MONTHS else None


def _product(node: exp.Expr | None) -> int | None:
    """A product of literals, as an INT."""
    if isinstance(node, exp.Paren) or (isinstance(node, exp.Cast) and node.to.is_type("int")):
        return _product(node.this)
    if isinstance(node, exp.Mul):
        left, right = _product(node.this), _product(node.expression)
        found = None if left is None or right is None else left * right
    else:
        found = whole_literal(node)
    return found if found is not None and abs(found) < 1 << 31 else None


def _days_later(node: exp.Expr, reading: Reading) -> Native | None:
    """DATE_ADD, and DATE_SUB, which the parser writes as one with the other sign."""
    unit = node.args.get("unit")
    inner, count = reading.of(node.this, TypeName.DATE), reading.of(node.expression, *_COUNTS)
    if inner is None or count is None or not isinstance(unit, exp.Var) or unit.name.upper() != "DAY":
        return None
    return ("days later", inner, count) if has_only(node, "this", "expression", "unit") else None


def _first_day(node: exp.Expr, reading: Reading) -> Native | None:
    """TRUNC of a date to its month, quarter or year."""
    inner, unit = reading.of(node.this, TypeName.DATE), (text_literal(node.args.get("unit")) or "").upper()
    known = inner is not None and unit in _MONTHS and has_only(node, "this", "unit")
    return ("first day", inner, _MONTHS[unit]) if known else None


def _added(node: exp.Expr, reading: Reading) -> Native | None:
    """TIMESTAMPADD of months, and of hours and less that a row brings."""
    inner, unit = reading.of(node.this, *TIMESTAMPS), node.args.get("unit")
    word = unit.name.upper() if isinstance(unit, exp.Var) else ""
    if inner is None:
        return None
    count = _product(node.expression)
    if word in _MONTHS and count is not None and abs(count * _MONTHS[word]) <= _MOST_MONTHS:
        return ("months later", inner, count * _MONTHS[word])
    brought = reading.of(node.expression, *_COUNTS) if word in _SECONDS and count is None else None
    if brought is not None:
        return ("units later", inner, brought, _SECONDS[word] * 1_000_000)
    return native_times.FORMS[exp.TimestampAdd](node, reading)


FORMS: Final[Mapping[type[exp.Expr], Form]] = {
    exp.AddMonths: _months_later,
    exp.TsOrDsAdd: _days_later,
    exp.DateTrunc: _first_day,
    exp.TimestampAdd: _added,
}
