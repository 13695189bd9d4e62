"""Dates and times that Arrow computes as Spark does: literals, casts between them, numbers since 1970, intervals of
fixed length, parts of dates, and DATE_FORMAT.

The session's zone is UTC: a TIMESTAMP and the TIMESTAMP_LTZ of it are the same number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Native
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.native_types import Cast, Form, Reading, text_literal, whole_literal
from upsert_platform.sql.rendered import TIMESTAMPS

_PARTS: Final = "|".join(f"(?<!{part[0]}){part}(?!{part[0]})" for part in ("yyyy", "MM", "dd", "HH", "mm", "ss"))
_PATTERN: Final = re.compile(rf"(?:{_PARTS}|[-/:. ])+(?:(?<=ss\.)S{{1,6}})?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP: Final = re.compile(rf"{_DATE.pattern} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,6}})?")
_DATE_PARTS: Final[Mapping[type[exp.Expr], str]] = {
    exp.Year: "year", exp.Quarter: "quarter", exp.Month: "month", exp.DayOfMonth: "day", exp.DayOfWeek: "day of week",
    exp.DayOfYear: "day of year",
}  # fmt: skip
_INTERVAL: Final = re.compile(r"(-?)([0-9]{1,7}) ([0-9]{2}):([0-9]{2}):([0-9]{2})\.([0-9]{3})")
_UNITS: Final = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400, "WEEK": 604_800}
_LONGEST: Final = 10_000_000 * 86_400
"""Seconds, which keep a moment that is added to them within 64 bits of microseconds."""
_LTZ: Final = LogicalType(TypeName.TIMESTAMP_LTZ, precision=6)
_LONG: Final = 1 << 63
_MOST_MILLIS: Final = _LONG // 1000
"""Of a moment in microseconds."""
_MARGIN: Final = 7 * 86_400_000
"""What may be added to the milliseconds of a moment, or taken off: Spark stops where the sum is none."""


def _millis(node: exp.Expr, reading: Reading) -> Native | None:
    inner = reading.of(node.this, TypeName.TIMESTAMP_LTZ)
    return ("millis", inner) if inner is not None else None


def _micros(node: exp.Expr, reading: Reading) -> Native | None:
    inner = reading.of(node.this, TypeName.TIMESTAMP_LTZ)
    return ("micros", inner) if inner is not None else None


def _from_micros(node: exp.Expr, reading: Reading) -> Native | None:
    """TIMESTAMP_MICROS, of a TIME as well, which is a BIGINT."""
    inner = reading.of(node.expressions[0], TypeName.BIGINT, TypeName.TIME) if len(node.expressions) == 1 else None
    return ("moment", inner, _LTZ) if inner is not None else None


def _from_millis(node: exp.Expr, reading: Reading) -> Native | None:
    """TIMESTAMP_MILLIS, which raises an error for numbers beyond every moment: of those that are none."""
    inner = _only(node, reading)
    if inner is None or not (_most(inner, reading) <= _MOST_MILLIS + _MARGIN or _is_guarded(node)):
        return None
    return ("moment", ("*", inner, ("literal", 1000, LogicalType(TypeName.BIGINT))), _LTZ)


def _only(node: exp.Expr, reading: Reading) -> Native | None:
    """The argument of a function that takes one BIGINT."""
    return reading.of(node.expressions[0], TypeName.BIGINT) if len(node.expressions) == 1 else None


def _most(native: Native, reading: Reading) -> int:
    """A number that a whole number does not exceed, whatever its sign."""
    match native:
        case ("literal", int() as value, _):
            return abs(value)
        case ("millis", _):
            return _MOST_MILLIS + 1
        case ("+" | "-", left, right):
            return _most(left, reading) + _most(right, reading)
        case ("div", left, ("literal", int() as value, _)) if value > 0:
            return _most(left, reading) // value
        case ("pmod", _, right):
            return _most(right, reading)
    return _LONG


def _is_guarded(node: exp.Expr) -> bool:
    """Return whether a number is looked at where it is a moment's, as TO_TIMESTAMP_LTZ and FROM_UNIXTIME write it."""
    branch, product = node.parent, node.expressions[0]
    if not isinstance(branch, exp.If) or branch.args.get("true") is not node or not isinstance(product, exp.Mul):
        return False
    within, times = branch.this, whole_literal(product.expression)
    if isinstance(within, exp.LT) and isinstance(within.this, exp.Abs):
        most = _long(within.expression)
        return within.this.this == product and most is not None and most <= _MOST_MILLIS
    if not isinstance(within, exp.Between) or within.this != product.this or times not in (1, 1000):
        return False
    ends = [_long(within.args[name]) for name in ("low", "high")]
    return all(end is not None and abs(end) * times <= _MOST_MILLIS for end in ends)


def _long(node: exp.Expr) -> int | None:
    """The value of a literal of a BIGINT."""
    if isinstance(node, exp.Neg):
        inner = _long(node.this)
        return None if inner is None else -inner
    return whole_literal(node.this) if isinstance(node, exp.Cast) and node.to.is_type("bigint") else whole_literal(node)


def _day_of_number(node: exp.Expr, reading: Reading) -> Native | None:
    inner = reading.of(node.this, TypeName.INT)
    return ("date", inner) if inner is not None else None


def _part(node: exp.Expr, reading: Reading) -> Native | None:
    """A part of a DATE: the parser writes a cast around it."""
    given = node.this.this if isinstance(node.this, exp.TsOrDsToDate) else node.this
    inner = reading.of(given, TypeName.DATE)
    return ("date part", inner, _DATE_PARTS[type(node)]) if inner is not None else None


def _weekday(node: exp.Expr, reading: Reading) -> Native | None:
    inner = reading.of(node.expressions[0], TypeName.DATE) if len(node.expressions) == 1 else None
    return ("date part", inner, "weekday") if inner is not None else None


def _date_format(node: exp.Expr, reading: Reading) -> Native | None:
    """DATE_FORMAT of a moment, or of the midnight of a day, by a pattern of two digits and years."""
    given = node.this.this if isinstance(node.this, exp.TimeStrToTime) else node.this
    known = reading.typed(given)
    if known is None or known[1].name not in (TypeName.DATE, *TIMESTAMPS):
        return None
    inner = ("midnight", known[0], _LTZ) if known[1].name is TypeName.DATE else known[0]
    pattern = text_literal(node.args.get("format"))
    return ("date format", inner, pattern) if pattern is not None and _PATTERN.fullmatch(pattern) else None


def shifted(node: exp.Expr, reading: Reading) -> Native | None:
    """A moment and an interval of days, hours, minutes and seconds, as `intervals.spark_interval` writes it."""
    interval, inner = node.expression, reading.of(node.this, *TIMESTAMPS)
    unit = interval.args.get("unit")
    is_long = isinstance(unit, exp.IntervalSpan) and (unit.this.name, unit.expression.name) == ("DAY", "SECOND")
    written = _INTERVAL.fullmatch(interval.this.name) if is_long and isinstance(interval.this, exp.Literal) else None
    if inner is None or written is None:
        return None
    days, hours, minutes, seconds, millis = (int(part) for part in written.groups()[1:])
    length = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000 + millis * 1000
    return ("shift", inner, -length if written[1] else length)


def _added(node: exp.Expr, reading: Reading) -> Native | None:
    """TIMESTAMPADD of units of fixed length."""
    inner, count = reading.of(node.this, *TIMESTAMPS), whole_literal(node.expression)
    unit = node.args.get("unit")
    seconds = _UNITS.get(unit.name.upper()) if isinstance(unit, exp.Var) else None
    if inner is None or count is None or seconds is None or abs(count * seconds) > _LONGEST or abs(count) >= 1 << 31:
        return None
    return ("shift", inner, count * seconds * 1_000_000)


def _to_date(node: exp.Expr, to: LogicalType, reading: Reading) -> Native | None:
    if isinstance(node, exp.Literal):
        return _moment(node, _DATE, to)
    found = reading.typed(node)
    if found is None or found[1].name not in (TypeName.DATE, *TIMESTAMPS):
        return None
    return found[0] if found[1].name is TypeName.DATE else ("day", found[0])


def _to_timestamp(node: exp.Expr, to: LogicalType, reading: Reading) -> Native | None:
    if isinstance(node, exp.Literal):
        return _moment(node, _TIMESTAMP, to)
    found = reading.typed(node)
    if found is None or found[1].name not in (TypeName.DATE, *TIMESTAMPS):
        return None
    if found[1].name is TypeName.DATE:
        return ("midnight", found[0], to)
    return found[0] if found[1].name is to.name else ("zone", found[0], to)


def _moment(node: exp.Literal, written: re.Pattern[str], to: LogicalType) -> Native | None:
    """A literal with all its digits; days that do not exist have no form."""
    if not node.is_string or not written.fullmatch(node.name):
        return None
    try:
        moment = datetime.fromisoformat(node.name)
    except ValueError:
        return None
    days = (moment.date() - date(1970, 1, 1)).days
    if to.name is TypeName.DATE:
        return ("literal", days, to)
    seconds = (days * 24 + moment.hour) * 3600 + moment.minute * 60 + moment.second
    return ("literal", seconds * 1_000_000 + moment.microsecond, to)


CASTS: Final[Mapping[TypeName, Cast]] = {
    TypeName.DATE: _to_date,
    TypeName.TIMESTAMP: _to_timestamp,
    TypeName.TIMESTAMP_LTZ: _to_timestamp,
}
FORMS: Final[Mapping[type[exp.Expr], Form]] = {
    exp.UnixMillis: _millis,
    exp.UnixMicros: _micros,
    exp.DateFromUnixDate: _day_of_number,
    exp.TimeToStr: _date_format,
    exp.TimestampAdd: _added,
    **dict.fromkeys(_DATE_PARTS, _part),
}
FUNCTIONS: Final[Mapping[str, Form]] = {
    "TIMESTAMP_MICROS": _from_micros,
    "TIMESTAMP_MILLIS": _from_millis,
    "WEEKDAY": _weekday,
}
