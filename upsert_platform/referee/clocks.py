"""Dates and times from texts: what is plainly one, what is plainly none, and what is left unjudged."""

from __future__ import annotations

import re
from datetime import date

from upsert_platform.referee.errors import UndecodableError, UnjudgedError

DAY = 86_400_000_000_000
"""Nanoseconds."""
_EPOCH = date(1970, 1, 1).toordinal()
_DATE = r"(\d{4})-(\d{2})-(\d{2})"
_CLOCK = r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?"
_DATE_ONLY = re.compile(_DATE, re.ASCII)
_CLOCK_ONLY = re.compile(_CLOCK, re.ASCII)
_STAMPS = {
    (blank, zone): re.compile(f"{_DATE}{blank}{_CLOCK}{zone}", re.ASCII) for blank in (" ", "T") for zone in ("", "Z")
}
_LOOSE = re.compile(r"[-+\dTZ:. /]+", re.ASCII)
"""What a lenient reader might take for a date or time."""


def read_date(text: str) -> int:
    """Days since 1970 of ``yyyy-MM-dd``."""
    found = _DATE_ONLY.fullmatch(text)
    if found is None:
        raise _doubt(text, "date")
    return _days(found, text)


def read_clock(text: str) -> int:
    """Nanoseconds of the day of ``HH:mm:ss`` with up to nine fraction digits, or none."""
    found = _CLOCK_ONLY.fullmatch(text)
    if found is None:
        raise _doubt(text, "time")
    return _nanos(found.groups(), text)


def read_stamp(text: str, *, blank: str, zone: str) -> int:
    """Nanoseconds since 1970 of a date, `blank`, a time and `zone`."""
    found = _STAMPS[blank, zone].fullmatch(text)
    if found is None:
        raise _doubt(text, "timestamp")
    return _days(found, text) * DAY + _nanos(found.groups()[3:], text)


def _days(found: re.Match[str], text: str) -> int:
    try:
        return date(int(found[1]), int(found[2]), int(found[3])).toordinal() - _EPOCH
    except ValueError:
        raise _doubt(text, "date") from None


def _nanos(parts: tuple[str | None, ...], text: str) -> int:
    hours, minutes, seconds, fraction = parts
    if seconds is None or int(hours or 0) > 23 or int(minutes or 0) > 59 or int(seconds) > 59:
        raise _doubt(text, "time")
    whole = (int(hours or 0) * 60 + int(minutes or 0)) * 60 + int(seconds)
    return whole * 1_000_000_000 + int((fraction or "").ljust(9, "0"))


def _doubt(text: str, what: str) -> Exception:
    if _LOOSE.fullmatch(text):
        return UnjudgedError(f"'{text[:40]}' may be a {what} for a lenient reader")
    return UndecodableError(f"'{text[:40]}' is not a {what}")
