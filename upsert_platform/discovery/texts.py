"""Types of values that are written as text: numbers, dates, times and timestamps in their spellings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.discovery.shape import BIGINT, MOST_DIGITS, STRING, Found
from upsert_platform.formats.java.time import parse_date, parse_time, parse_timestamp

SQL, ISO = "SQL", "ISO-8601"
_DECIMAL: Final = re.compile(r"-?(?:0|[1-9][0-9]*)\.([0-9]+)")
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_FRACTION: Final = re.compile(r"\.([0-9]+)Z?$")
_WITH_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
_FINEST: Final = 6
"""Fraction digits of a TIMESTAMP that the platform keeps."""
_INT64: Final = 1 << 63


def standard_of(texts: Iterable[str]) -> str:
    """Return which spelling of timestamps most texts have: SQL (with a blank) or ISO-8601 (with a T)."""
    spelled = Counter(ISO if text[10] in "Tt" else SQL for text in texts if _WITH_TIME.match(text))
    return ISO if spelled[ISO] > spelled[SQL] else SQL


def type_of_texts(texts: Sequence[str], *, standard: str, timestamps: bool = True) -> Found:
    """Return the type that reads every text.

    Args:
        texts: at least one.
        standard: spelling of timestamps that the format is told to read.
        timestamps: whether the format reads dates and times out of texts.
    """
    if timestamps:
        if _all(texts, parse_date):
            return Found(LogicalType(TypeName.DATE))
        if _all(texts, parse_time) and not any("." in text for text in texts):
            return Found(LogicalType(TypeName.TIME, precision=0))
        for name, local in ((TypeName.TIMESTAMP, False), (TypeName.TIMESTAMP_LTZ, True)):
            if _all(texts, partial(parse_timestamp, standard=standard, local_zone=local)):
                digits = max(_fraction(text) for text in texts)
                if digits > _FINEST:
                    return Found(STRING, f"timestamps of {digits} fraction digits; a TIMESTAMP keeps {_FINEST}")
                return Found(LogicalType(name, precision=3 if digits <= 3 else 6))
        if all(_WITH_TIME.match(text) for text in texts):
            return Found(STRING, "timestamps of a spelling, or of several, that the format does not read")
    if all(_DECIMAL.fullmatch(text) for text in texts):
        return decimal_of(texts)
    return Found(STRING)


def decimal_of(texts: Sequence[str]) -> Found:
    """Return a DECIMAL that holds numbers written with digits and a point, else STRING."""
    scale = max(len(text.partition(".")[2]) for text in texts)
    whole = max(len(text.lstrip("-").partition(".")[0]) for text in texts)
    if whole + scale > MOST_DIGITS:
        return Found(STRING, f"numbers of {whole + scale} digits; a DECIMAL has {MOST_DIGITS}")
    return Found(
        LogicalType(TypeName.DECIMAL, precision=MOST_DIGITS, scale=scale),
        f"numbers of {scale} fraction digits in the sample; more are rounded",
    )


def integer_of(texts: Sequence[str]) -> Found:
    """Return the type of whole numbers."""
    numbers = [int(text) for text in texts]
    if all(-_INT64 <= number < _INT64 for number in numbers):
        return Found(BIGINT)
    digits = max(len(text.lstrip("-")) for text in texts)
    if digits > MOST_DIGITS:
        return Found(STRING, f"whole numbers of {digits} digits; a DECIMAL has {MOST_DIGITS}")
    return Found(LogicalType(TypeName.DECIMAL, precision=MOST_DIGITS, scale=0))


def is_integer(text: str) -> bool:
    """Return whether a text is a whole number as numbers are written: without a plus and leading zeros."""
    return _INTEGER.fullmatch(text) is not None


def _all(texts: Sequence[str], parse: Callable[[str], object]) -> bool:
    try:
        for text in texts:
            parse(text)
    except ValueError:
        return False
    return True


def _fraction(text: str) -> int:
    found = _FRACTION.search(text)
    return len(found[1]) if found else 0
