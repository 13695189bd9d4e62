"""Texts as dates and timestamps, as Spark reads them: those with all their digits at once, and each other by a model.

What there is no day or time of day of is null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from upsert_platform.core.types import LogicalType, arrow_type
from upsert_platform.engine.text_readings import LINE_END, is_valid, one_array, places_of, with_others

_NAMES: Final = {"yyyy": "year", "MM": "month", "dd": "day", "HH": "hour", "mm": "minute", "ss": "second"}
_PARTS: Final = re.compile(f"{'|'.join(_NAMES)}|S+|'T'|.")
_MICRO_DIGITS: Final = 6
_MOST_DIGITS: Final = 9
_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_DATE: Final = "yyyy-MM-dd"
_TO_SECONDS: Final = f"{_DATE} HH:mm:ss"
_STAMPS: Final = (_DATE, _TO_SECONDS, *(f"{_TO_SECONDS}.{'S' * digits}" for digits in range(1, _MOST_DIGITS + 1)))
_STAMP_TEXT: Final = re.compile(
    r"(?P<year>(?!0000)\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"(?: (?P<hour>\d{1,2}):(?P<minute>\d{1,2}):(?P<second>\d{1,2})(?:\.(?P<fraction>\d{1,9}))?)?(?:\r\n|\r|\n)?",
    re.ASCII,
)
"""What `casts.parse_timestamp` lets pass. Spark trims the ends of lines that these are, and no others."""
_DAY_TEXT: Final = re.compile(
    rf"\s*0*(?P<year>\d{{1,4}})\s*(?:-\s*(?P<month>\d+)\s*(?:-\s*(?P<day>\d+)\s*)?)?{LINE_END}", re.ASCII
)
"""What `casts` takes for a date."""
_MOST_YEAR_DIGITS: Final = 19
_LAST_YEAR: Final = 294_247
"""That has moments of 64 bits of microseconds. Spark stops at one beyond, where a pattern takes it; it is null here."""
_FEBRUARY: Final = 2
_LENGTHS: Final = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_ZERO: Final = ord("0")


def _moments_of(texts: Any, kind: LogicalType) -> Any:
    """Texts as `casts.parse_timestamp` reads them, cut to the precision of a type."""
    array = one_array(texts)
    micros, others = _plain(array, _STAMPS)
    micros = with_others(micros, array, others, partial(_moment, written=_STAMP_TEXT))
    step = 10 ** (_MICRO_DIGITS - min(kind.precision or 0, _MICRO_DIGITS))
    if step > 1:
        numbers = micros.fill_null(0).to_numpy()
        micros = pa.array(numbers - numbers % step, mask=~is_valid(micros))
    return pa.chunked_array([micros.cast(arrow_type(kind))])


def _moments_by(texts: Any, pattern: str, kind: LogicalType) -> Any:
    """Texts as TRY_TO_TIMESTAMP reads them by a pattern of Java."""
    array = one_array(texts)
    layouts, written = _read_pattern(pattern)
    micros, others = _plain(array, layouts, least_year=0)
    micros = with_others(micros, array, others, partial(_moment, written=written, least_year=-_LAST_YEAR))
    return pa.chunked_array([micros.cast(arrow_type(kind))])


def _days_of(texts: Any) -> Any:
    """Texts as `casts` reads them for a DATE: nothing that follows a blank counts."""
    array = one_array(texts)
    micros, others = _plain(array, [_DATE], least_year=0, cut=True)
    days = pa.array(micros.fill_null(0).to_numpy() // _DAY, mask=~is_valid(micros))
    days = with_others(days, array, others, _day)
    return pa.chunked_array([days.cast(pa.int32()).cast(pa.date32())])


@cache
def _read_pattern(pattern: str) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """The layouts of texts with all their digits, and of every text that a pattern reads.

    Without a quote in it, Spark takes fewer digits of a fraction than there are letters.
    """
    parts = _PARTS.findall(pattern)
    fraction = next((part for part in parts if part[0] == "S"), "")
    least = len(fraction) if "'" in pattern else 1
    layouts = [
        "".join("S" * digits if part == fraction else part for part in parts)
        for digits in (range(least, len(fraction) + 1) if fraction else [0])
    ]
    texts = {
        **{part: rf"(?P<{name}>\d{{2}})" for part, name in _NAMES.items()},
        "yyyy": rf"(?P<year>\d{{4}}|\+\d{{5,{_MOST_YEAR_DIGITS}}}|-\d{{4,{_MOST_YEAR_DIGITS}}})",
        fraction: rf"(?P<fraction>\d{{{least},{len(fraction)}}})",
        "'T'": "[Tt]",
    }
    return tuple(layouts), re.compile("".join(texts.get(part) or re.escape(part) for part in parts), re.ASCII)


def _plain(
    array: pa.StringArray, layouts: Iterable[str], *, least_year: int = 1, cut: bool = False
) -> tuple[pa.Array, np.ndarray]:
    """Microseconds since 1970 of texts that have every digit of a layout, and which texts have other shapes.

    Args:
        layouts: of different lengths.
        cut: texts are read up to a blank.
    """
    data, places = places_of(array)
    starts, lengths, given = places[:-1], np.diff(places), is_valid(array)
    micros, found, others = np.zeros(len(array), np.int64), np.zeros(len(array), np.bool_), given.copy()
    for layout in layouts:
        parts = _PARTS.findall(layout)
        length = sum(len(part.strip("'")) for part in parts)
        rows = np.flatnonzero(given & (lengths == length))
        if cut:
            longer = np.flatnonzero(given & (lengths > length))
            rows = np.concatenate([rows, longer[data[starts[longer] + length] == ord(" ")]])
        if len(rows):
            plain, fields = _fields(data, starts[rows], parts)
            exists = plain & _exist(fields, least_year)
            micros[rows], found[rows], others[rows] = (
                _seconds(fields) * _SECOND + fields.get("fraction", 0),
                exists,
                ~plain,
            )
    return pa.array(micros, mask=~found), others


def _fields(data: np.ndarray, starts: np.ndarray, parts: Iterable[str]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return which texts have digits and marks where they belong, and the numbers in them."""
    plain = np.ones(len(starts), np.bool_)
    fields: dict[str, np.ndarray] = {}
    at = 0
    for part in parts:
        name = _NAMES.get(part, "fraction" if part[0] == "S" else None)
        if name is None:
            plain &= data[starts + at] == ord(part.strip("'"))
            at += 1
            continue
        number = np.zeros(len(starts), np.int64)
        for _ in part:
            digit = data[starts + at] - np.uint8(_ZERO)  # what is less wraps around
            plain &= digit < 10
            number = number * 10 + digit
            at += 1
        fields[name] = _micro_fraction(number, len(part)) if name == "fraction" else number
    return plain, fields


def _micro_fraction(number: Any, digits: int) -> Any:
    less = digits - _MICRO_DIGITS
    return number // 10**less if less > 0 else number * 10**-less


def _exist(fields: Mapping[str, Any], least_year: int) -> Any:
    """Return whether there is such a day, and such a time of day."""
    year, month, day = fields["year"], fields["month"], fields["day"]
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    length = _LENGTHS[np.clip(month - 1, 0, len(_LENGTHS) - 1)] + (leap & (month == _FEBRUARY))
    real = (year >= least_year) & (month >= 1) & (month <= len(_LENGTHS)) & (day >= 1) & (day <= length)
    for name, size in (("hour", 24), ("minute", 60), ("second", 60)):
        if name in fields:
            real &= fields[name] < size
    return real


def _seconds(fields: Mapping[str, Any]) -> Any:
    """Seconds since 1970."""
    months = (fields["year"] - 1970) * 12 + fields["month"] - 1
    days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + fields["day"] - 1
    seconds = days * 86_400
    for name, size in (("hour", 3600), ("minute", 60), ("second", 1)):
        if name in fields:
            seconds += fields[name] * size
    return seconds


def _moment(text: str, written: re.Pattern[str], least_year: int = 1) -> int | None:
    """Microseconds since 1970 of a text."""
    found = written.fullmatch(text)
    if found is None:
        return None
    named = {name: digits for name, digits in found.groupdict().items() if digits is not None}
    return _of_digits(named, least_year)


def _day(text: str) -> int | None:
    """The day since 1970 of a text; month and day may be left out, and have at most two digits."""
    blank = text.find(" ", 1) if text[:1] != " " else -1
    found = _DAY_TEXT.match(text if blank < 0 else text[:blank])
    if found is None or any(len(found[name] or "") > 2 for name in ("month", "day")):
        return None
    micros = _of_digits({"year": found["year"], "month": found["month"] or "1", "day": found["day"] or "1"}, 0)
    return None if micros is None else micros // _DAY


def _of_digits(named: Mapping[str, str], least_year: int) -> int | None:
    year, fraction = int(named["year"]), named.get("fraction", "0")
    if abs(year) > _LAST_YEAR or (year == 0 and named["year"][0] == "-"):
        return None
    fields = {name: np.int64(digits) for name, digits in named.items() if name != "fraction"}
    if not _exist(fields, least_year):
        return None
    micros = int(_seconds(fields)) * _SECOND + _micro_fraction(int(fraction), len(fraction))
    return micros if -(1 << 63) <= micros < 1 << 63 else None


FORMS: Final[Mapping[str, Callable[..., Any]]] = {
    "text to moment": _moments_of,
    "text to moment by": _moments_by,
    "text to day": _days_of,
}
"""Operators of forms: what they take, then what else stands in the form."""
