"""Dates and times as ``java.time`` reads them in Flink's formats.

Two manners exist side by side: formatters of the JDK resolve strictly, those that Flink builds resolve smartly (30
February is the last day of that month, 24:00:00 is midnight, of the next day in a timestamp).
"""

from __future__ import annotations

import re
from typing import Final

from upsert_platform.formats.java.text import shorten

_DATE_TEXT: Final = r"([+-]?[0-9]{4,10})-([0-9]{2})-([0-9]{2})"
_SQL_TIME_TEXT: Final = r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{0,9}))?"
_ISO_TIME_TEXT: Final = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{0,9}))?)?"
_DATE = re.compile(_DATE_TEXT)
_TIME = re.compile(_SQL_TIME_TEXT)
_TIMESTAMPS = {
    ("SQL", False): re.compile(f"{_DATE_TEXT} {_SQL_TIME_TEXT}"),
    ("SQL", True): re.compile(f"{_DATE_TEXT} {_SQL_TIME_TEXT}Z"),
    ("ISO-8601", False): re.compile(f"{_DATE_TEXT}[Tt]{_ISO_TIME_TEXT}"),
    ("ISO-8601", True): re.compile(f"{_DATE_TEXT}T{_ISO_TIME_TEXT}Z"),
}
_LONG_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
DAY_NS: Final = 86_400_000_000_000


def days_from_date(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar, for any year."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def date_from_days(days: int) -> tuple[int, int, int]:
    """Year, month and day of days since 1970-01-01."""
    era, of_era = divmod(days + 719_468, 146_097)
    years = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * years + years // 4 - years // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)
    return years + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def format_date(days: int) -> str:
    """ISO text of days since 1970-01-01; years beyond 9999 carry a plus."""
    year, month, day = date_from_days(days)
    if year > 9999:
        return f"+{year}-{month:02}-{day:02}"
    return f"{'-' if year < 0 else ''}{abs(year):04}-{month:02}-{day:02}"


def parse_date(text: str) -> int:
    """Reads ``yyyy-MM-dd`` strictly, into days since 1970-01-01.

    Raises:
        ValueError: another form, or no such day.
    """
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"'{shorten(text)}' is not a date yyyy-MM-dd")
    return _days(match, text, smart=False)


def parse_time(text: str) -> int:
    """Reads ``HH:mm:ss`` with an optional fraction, into milliseconds of the day; Flink drops the fraction.

    Raises:
        ValueError: another form, or no such time.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"'{shorten(text)}' is not a time HH:mm:ss")
    return _nanos(match, 1, text, smart=True) % DAY_NS // 1_000_000_000 * 1000


def parse_timestamp(text: str, *, standard: str, local_zone: bool) -> int:
    """Reads a timestamp into nanoseconds since 1970-01-01 00:00:00.

    Args:
        standard: ``SQL`` or ``ISO-8601``.
        local_zone: a TIMESTAMP_LTZ, which ends with ``Z``.

    Raises:
        ValueError: another form, or no such time.
    """
    match = _TIMESTAMPS[standard, local_zone].fullmatch(text)
    if match is None:
        zone = "Z" if local_zone else ""
        form = "yyyy-MM-dd HH:mm:ss" if standard == "SQL" else "yyyy-MM-ddTHH:mm:ss"
        raise ValueError(f"'{shorten(text)}' is not a timestamp {form}{zone} ({standard})")
    smart = standard == "SQL" or local_zone
    return _days(match, text, smart=smart) * DAY_NS + _nanos(match, 4, text, smart=smart)


def _days(match: re.Match[str], text: str, *, smart: bool) -> int:
    written, month, day = match[1], int(match[2]), int(match[3])
    signed = written[0] in "+-"
    year = int(written)
    plain = len(written) == 4 if not signed else written[0] == "-" or len(written) > 5
    if not plain or (written[0] == "-" and year == 0) or abs(year) > 999_999_999:
        raise ValueError(f"'{shorten(text)}' has a year that is not written with four digits (or a sign and more)")
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise ValueError(f"'{shorten(text)}' is not a day of the calendar")
    last = _LONG_MONTHS[month - 1]
    if month == 2 and not (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)):
        last = 28
    if day > last:
        if not smart:
            raise ValueError(f"'{shorten(text)}' is not a day of the calendar")
        day = last
    return days_from_date(year, month, day)


def _nanos(match: re.Match[str], first: int, text: str, *, smart: bool) -> int:
    hour, minute, second = int(match[first]), int(match[first + 1]), int(match[first + 2] or 0)
    fraction = int((match[first + 3] or "").ljust(9, "0"))
    midnight = smart and hour == 24 and minute == second == fraction == 0
    if minute > 59 or second > 59 or (hour > 23 and not midnight):
        raise ValueError(f"'{shorten(text)}' is not a time of the day")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + fraction
