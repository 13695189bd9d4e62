"""Moments as text, by a pattern: each day, or each second, that occurs is written once."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_PARTS: Final = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_PART: Final = re.compile("|".join(_PARTS))
_FRACTION: Final = re.compile(r"(.*[^S])(S{1,6})", re.DOTALL)
_MILLI_DIGITS: Final = 3
_DIGITS: Final = {
    digits: pa.array([f"{number:0{digits}d}" for number in range(10**digits)]) for digits in (1, 2, _MILLI_DIGITS)
}
"""The texts of numbers of one digit to three."""
_MICROS: Final = {"ss": 1_000_000, "mm": 60_000_000, "HH": 3_600_000_000}
_DAY: Final = 86_400_000_000
_FIRST, _LAST = (
    int(np.datetime64(text, "us").astype(np.int64)) for text in ("-9999-01-01", "9999-12-31T23:59:59.999999")
)


def date_texts(moments: pa.ChunkedArray | pa.Array, pattern: str) -> pa.ChunkedArray:
    """The texts of moments.

    Args:
        moments: timestamps in microseconds, without a zone.
        pattern: of ``yyyy MM dd HH mm ss`` and marks between them, as Java's DateTimeFormatter has them, and perhaps
            up to six ``S`` behind them, of a fraction that is cut.
    """
    split = _FRACTION.fullmatch(pattern)
    if split is not None:
        whole = date_texts(moments, split[1]).combine_chunks()
        return pa.chunked_array([pc.binary_join_element_wise(whole, *_fractions(moments, len(split[2])), "")])
    unit = next((micros for part, micros in _MICROS.items() if part in pattern), _DAY)
    array = moments.combine_chunks() if isinstance(moments, pa.ChunkedArray) else moments
    micros = array.cast(pa.int64())
    numbers = pc.fill_null(micros, 0).to_numpy() // unit
    coded = pa.array(numbers, mask=micros.is_null().to_numpy(zero_copy_only=False)).dictionary_encode()
    distinct = coded.dictionary.to_numpy() * unit
    written = _PART.sub(lambda part: _PARTS[part[0]], pattern)
    texts = _texts(distinct, written, pattern)
    return pa.chunked_array([texts.take(coded.indices)])


def _fractions(moments: pa.ChunkedArray | pa.Array, digits: int) -> list[pa.Array]:
    """The digits of fractions of seconds, three at a time."""
    array = moments.combine_chunks() if isinstance(moments, pa.ChunkedArray) else moments
    numbers = pc.fill_null(array.cast(pa.int64()), 0).to_numpy() % 1_000_000 // 10 ** (6 - digits)
    if digits <= _MILLI_DIGITS:
        return [_DIGITS[digits].take(pa.array(numbers))]
    less = digits - _MILLI_DIGITS
    return [
        _DIGITS[_MILLI_DIGITS].take(pa.array(numbers // 10**less)),
        _DIGITS[less].take(pa.array(numbers % 10**less)),
    ]


def _texts(micros: np.ndarray, written: str, pattern: str) -> pa.Array:
    usual = (micros >= _FIRST) & (micros <= _LAST)
    # Arrow writes the fraction of its unit behind seconds: whole seconds have none.
    seconds = pa.array(np.where(usual, micros, 0) // 1_000_000).cast(pa.timestamp("s"))
    texts = pc.strftime(seconds, format=written)
    if usual.all():
        return texts
    others = [_of_far_year(int(value), pattern) for value in micros[~usual]]
    return pc.replace_with_mask(texts, pa.array(~usual), pa.array(others, pa.string()))


def _of_far_year(micros: int, pattern: str) -> str:
    """The text of a moment of a year of more than four digits, which has a sign."""
    moment = np.datetime64(micros, "us")
    year = int(moment.astype("datetime64[Y]").astype(np.int64)) + 1970
    years = f"{'+' if year > 0 else '-'}{abs(year):04d}"
    month = int(moment.astype("datetime64[M]").astype(np.int64)) % 12 + 1
    day = int((moment.astype("datetime64[D]") - moment.astype("datetime64[M]").astype("datetime64[D]")).astype(int)) + 1
    second = micros // 1_000_000 % 86_400
    found = {
        "yyyy": years, "MM": f"{month:02d}", "dd": f"{day:02d}",
        "HH": f"{second // 3600:02d}", "mm": f"{second // 60 % 60:02d}", "ss": f"{second % 60:02d}",
    }  # fmt: skip
    return _PART.sub(lambda part: found[part[0]], pattern)
