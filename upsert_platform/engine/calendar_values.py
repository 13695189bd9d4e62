"""Dates and moments in Arrow, by months and days of the proleptic Gregorian calendar, as Spark computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_DAY: Final = 86_400_000_000


def _months_later(values: Any, months: int) -> Any:
    """The same day of another month, or its last one where it has no such day; a moment keeps its time of day."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    mask = array.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_date(array.type):
        days = array.cast(pa.int32()).fill_null(0).to_numpy().astype(np.int64)
        return pa.chunked_array([pa.array(_moved(days, months).astype(np.int32), mask=mask).cast(array.type)])
    micros = array.cast(pa.int64()).fill_null(0).to_numpy()
    days = micros // _DAY
    return pa.chunked_array([pa.array(micros + (_moved(days, months) - days) * _DAY, mask=mask).cast(array.type)])


def _moved(days: np.ndarray, count: int) -> np.ndarray:
    """Numbers of days since 1970."""
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    behind = (dates - months.astype("datetime64[D]")).astype(np.int64)
    first = _days(months + count)
    last = _days(months + (count + 1)) - 1
    return np.minimum(first + behind, last)


def _days(months: np.ndarray) -> np.ndarray:
    return months.astype("datetime64[D]").astype(np.int64)


def _days_later(dates: Any, counts: Any) -> Any:
    """Dates some days later: the sum wraps around."""
    return pc.add(dates.cast(pa.int32()), counts.cast(pa.int32())).cast(dates.type)


def _first_day(dates: Any, months: int) -> Any:
    """The first day of the month, of three or of twelve."""
    array = dates.combine_chunks() if isinstance(dates, pa.ChunkedArray) else dates
    mask = array.is_null().to_numpy(zero_copy_only=False)
    days = array.cast(pa.int32()).fill_null(0).to_numpy().astype(np.int64).astype("datetime64[D]")
    numbers = days.astype("datetime64[M]").astype(np.int64)
    first = _days((numbers - numbers % months).astype("datetime64[M]"))
    return pa.chunked_array([pa.array(first.astype(np.int32), mask=mask).cast(array.type)])


def _units_later(moments: Any, counts: Any, micros: int) -> Any:
    """Moments as many units later as a number says."""
    added = pc.multiply(counts.cast(pa.int64()), pa.scalar(micros, pa.int64()))
    return pc.add(moments.cast(pa.int64()), added).cast(moments.type)


FORMS: Final[Mapping[str, Callable[..., Any]]] = {
    "months later": _months_later,
    "days later": _days_later,
    "first day": _first_day,
    "units later": _units_later,
}
"""Operators of forms: what they take, then what else stands in the form."""
