"""Dates and times in Arrow, as Spark computes them. A moment is microseconds since 1970, a date days since then; what
lies before 1970 is counted downwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import LogicalType, arrow_type
from upsert_platform.engine.date_texts import date_texts

_DAY: Final = 86_400_000_000


def _micros(moments: Any) -> Any:
    return moments.cast(pa.int64())


def _millis(moments: Any) -> Any:
    return _downwards(_micros(moments), 1000)


def _downwards(numbers: Any, size: int) -> Any:
    """BIGINTs divided by a positive number, and rounded down."""
    found = pc.divide(numbers, size)
    below = pc.less(numbers, pc.multiply(found, size))
    return pc.subtract(found, below.cast(pa.int64()))


def _moment(numbers: Any, kind: LogicalType) -> Any:
    return numbers.cast(pa.int64()).cast(arrow_type(kind))


def _midnight(days: Any, kind: LogicalType) -> Any:
    return _moment(pc.multiply(days.cast(pa.int32()).cast(pa.int64()), _DAY), kind)


def _day(moments: Any) -> Any:
    return _date(_downwards(_micros(moments), _DAY).cast(pa.int32()))


def _date(numbers: Any) -> Any:
    return numbers.cast(pa.date32())


def _part(days: Any, part: str) -> Any:
    """A part of dates, of the proleptic Gregorian calendar: each distinct date is looked at once."""
    array = days.combine_chunks() if isinstance(days, pa.ChunkedArray) else days
    coded = array.cast(pa.int32()).dictionary_encode()
    found = _PARTS[part](coded.dictionary.to_numpy().astype(np.int64).astype("datetime64[D]"))
    return pa.chunked_array([pa.array(found.astype(np.int32)).take(coded.indices)])


def _number(moments: np.ndarray, unit: str) -> np.ndarray:
    return moments.astype(f"datetime64[{unit}]").astype(np.int64)


def _since(days: np.ndarray, unit: str) -> np.ndarray:
    """The day in its month or year, from 1."""
    return _number(days, "D") - _number(days.astype(f"datetime64[{unit}]"), "D") + 1


_PARTS: Final[Mapping[str, Callable[[np.ndarray], np.ndarray]]] = {
    "year": lambda days: _number(days, "Y") + 1970,
    "quarter": lambda days: _number(days, "M") % 12 // 3 + 1,
    "month": lambda days: _number(days, "M") % 12 + 1,
    "day": lambda days: _since(days, "M"),
    "day of year": lambda days: _since(days, "Y"),
    "day of week": lambda days: (_number(days, "D") + 4) % 7 + 1,
    "weekday": lambda days: (_number(days, "D") + 3) % 7,
}
"""1970 began on a Thursday."""
FORMS: Final[Mapping[str, Callable[..., Any]]] = {
    "micros": _micros,
    "millis": _millis,
    "moment": _moment,
    "zone": _moment,
    "midnight": _midnight,
    "day": _day,
    "date": _date,
    "date part": _part,
    "date format": date_texts,
}
"""Operators of forms: what they take, then what else stands in the form."""
