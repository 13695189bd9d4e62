"""Texts that are values of a type, as far as that is known before anything runs: literals, and casts of them."""

from __future__ import annotations

import re
from datetime import date, time
from decimal import Decimal
from typing import Final

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.rendered import INTEGERS, TIMESTAMPS

_DATE: Final = r"(\d{4})-(\d{1,2})-(\d{1,2})"
_TIME: Final = r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.\d{1,9})?)?"
_FORMS: Final = {
    "DATE": re.compile(rf"{_DATE}()()()", re.ASCII),
    "TIME": re.compile(rf"()()(){_TIME}", re.ASCII),
    "TIMESTAMP": re.compile(rf"{_DATE}(?:[ T]{_TIME})?", re.ASCII),
}
_BITS: Final = {TypeName.TINYINT: 7, TypeName.SMALLINT: 15, TypeName.INT: 31, TypeName.BIGINT: 63}
_NUMBER: Final = re.compile(r"-?\d{1,30}(\.\d{1,30})?", re.ASCII)


def is_moment(kind: str, text: str) -> bool:
    """Return whether a text is that of a literal: a day of the calendar, a time of a day.

    Args:
        kind: ``DATE``, ``TIME`` or ``TIMESTAMP``.
    """
    match = _FORMS[kind].fullmatch(text.strip())
    if match is None:
        return False
    year, month, day, hour, minute, second = (int(part) if part else 0 for part in match.groups())
    try:
        if kind != "TIME":
            date(year or 4, month, day)  # the year 0 is a leap year, and Python has none
        time(hour, minute, second)
    except ValueError:
        return False
    return True


def is_value(text: str, kind: LogicalType) -> bool:
    """Return whether a text is surely a value of a type, so that a CAST of it does not fail."""
    name = kind.name
    if name is TypeName.DATE or name in TIMESTAMPS:
        return re.fullmatch(r"[0-9-]{10}(?: [0-9:]{8}(?:\.\d{1,9})?)?", text) is not None and is_moment(
            "DATE" if name is TypeName.DATE else "TIMESTAMP", text
        )
    if name is TypeName.TIME:
        return len(text) == 8 and is_moment("TIME", text)
    if name is TypeName.BOOLEAN:
        return text in ("true", "false", "TRUE", "FALSE")
    if _NUMBER.fullmatch(text) is None:
        return False
    if name in INTEGERS:
        return "." not in text and -(1 << _BITS[name]) <= int(text) < 1 << _BITS[name]
    if name is TypeName.DECIMAL:
        whole = (kind.precision or 0) - (kind.scale or 0)
        return abs(Decimal(text)) <= Decimal(10) ** whole - 1
    return name in (TypeName.DOUBLE, TypeName.FLOAT)
