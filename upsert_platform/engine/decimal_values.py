"""Decimals in Arrow, as Spark computes them: rounded half up, null where a type has no room, and as other numbers.

What stands in a decimal without its point fits a BIGINT most of the time, with which all of it is quick; Python's
takes the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import LogicalType, arrow_type

_LONG_DIGITS: Final = 19
_LEAST: Final = -(1 << 63)
_EXACT: Final = 1 << 53
"""Up to it a double has every whole number."""
_EXACT_SCALE: Final = 22
"""Powers of ten that a double has exactly."""
Unscaled = tuple[np.ndarray, "np.ndarray | None"]
"""Numbers without their point, and which of them are not null; None: all."""


def _fit(values: Any, kind: LogicalType) -> Any:
    """An exact number as a DECIMAL: null where it has too many digits before the point."""
    array = as_array(values)
    scale = array.type.scale if pa.types.is_decimal(array.type) else 0
    found = unscaled(array)
    short = None if found is None else _moved(found, scale, kind)
    return pa.chunked_array([fit_of_any(array, kind) if short is None else of_unscaled(short, arrow_type(kind))])


def as_array(values: Any) -> pa.Array:
    """Exact numbers in one piece; whole numbers as BIGINTs."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return array.cast(pa.int64()) if pa.types.is_integer(array.type) else array


def unscaled(array: pa.Array) -> Unscaled | None:
    """A DECIMAL or BIGINT without its point; None where that is no BIGINT, or the least one."""
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    words = np.frombuffer(array.buffers()[1], np.int64) if len(array) else np.zeros(0, np.int64)
    if pa.types.is_integer(array.type):
        numbers = words[array.offset : array.offset + len(array)]
    else:
        pairs = words[2 * array.offset : 2 * (array.offset + len(array))]
        numbers = pairs[::2]
        above = numbers >> 63 != pairs[1::2]
        if (above if valid is None else above & valid).any():
            return None
    if valid is not None:
        numbers = np.where(valid, numbers, 0)
    return None if len(numbers) and numbers.min() == _LEAST else (numbers, valid)


def of_unscaled(found: Unscaled, kind: pa.DataType) -> pa.Array:
    """Decimals of what they are without their point."""
    numbers, valid = found
    words = np.empty((len(numbers), 2), np.int64)
    words[:, 0], words[:, 1] = numbers, numbers >> 63
    bits = None if valid is None else pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(kind, len(numbers), [bits, pa.py_buffer(words)])


def whole_numbers(array: pa.Array) -> list[int | None]:
    """Numbers of any length without their point."""
    if pa.types.is_integer(array.type):
        return array.to_pylist()
    words = np.frombuffer(array.buffers()[1] or b"", np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    pairs = zip(words[::2].view(np.uint64).tolist(), words[1::2].tolist(), array.is_valid().to_pylist(), strict=True)
    return [(high << 64) + low if valid else None for low, high, valid in pairs]


def of_whole_numbers(numbers: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """Decimals of 128 bits of what they are without their point."""
    words = b"".join((number or 0).to_bytes(16, "little", signed=True) for number in numbers)
    bits = pa.array([number is not None for number in numbers], pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(kind, len(numbers), [bits, pa.py_buffer(words)])


def _moved(found: Unscaled, scale: int, kind: LogicalType) -> Unscaled | None:
    """Numbers of one scale in that of a type, null where it has no room for them; None where 64 bits have none."""
    numbers, valid = found
    more = (kind.scale or 0) - scale
    if abs(more) >= _LONG_DIGITS:
        return None
    if more < 0:
        unit, sizes = 10**-more, np.abs(numbers)
        whole = sizes // unit
        whole += sizes - whole * unit >= unit // 2
        numbers = np.where(numbers < 0, -whole, whole)
    elif more > 0:
        if len(numbers) and int(np.abs(numbers).max()) * 10**more > -_LEAST - 1:
            return None
        numbers = numbers * 10**more
    if (kind.precision or 0) < _LONG_DIGITS:
        fits = np.abs(numbers) < 10 ** (kind.precision or 0)
        valid = fits if valid is None else valid & fits
    return numbers, valid


def fit_of_any(array: pa.Array, kind: LogicalType) -> pa.Array:
    """Exact numbers of any length, rounded half up to the scale of a DECIMAL, and null where it has no room.

    (Arrow's own rounding errs in some numbers of more than 64 bits.)
    """
    precision, scale = kind.precision or 0, kind.scale or 0
    if pa.types.is_integer(array.type):
        array = array.cast(pa.decimal128(_LONG_DIGITS, 0))
    if array.type.scale > scale:
        unit, most = 10 ** (array.type.scale - scale), 10**precision
        rounded = [_half_up(number, unit, most) for number in whole_numbers(array)]
        return of_whole_numbers(rounded, arrow_type(kind))
    whole = precision - scale
    if whole < array.type.precision - array.type.scale:
        limit, least = (pa.scalar(Decimal(sign * 10**whole), array.type) for sign in (1, -1))
        fits = pc.and_(pc.less(array, limit), pc.greater(array, least))
        array = pc.if_else(fits, array, pa.scalar(None, array.type))
    return array.cast(arrow_type(kind))


def _half_up(number: int | None, unit: int, most: int) -> int | None:
    if number is None:
        return None
    found = (2 * abs(number) + unit) // (2 * unit)
    if found >= most:
        return None
    return -found if number < 0 else found


def _whole_part(values: Any) -> Any:
    """A DECIMAL as a BIGINT, cut towards zero; it has at most 18 digits before the point."""
    array = as_array(values)
    found = unscaled(array)
    if found is None or array.type.scale >= _LONG_DIGITS:
        unit = 10**array.type.scale
        cut = [
            None if number is None else abs(number) // unit * (-1 if number < 0 else 1)
            for number in whole_numbers(array)
        ]
        return pa.chunked_array([pa.array(cut, pa.int64())])
    numbers, valid = found
    sizes = np.abs(numbers) // 10**array.type.scale
    return pa.chunked_array([pa.array(np.where(numbers < 0, -sizes, sizes), mask=None if valid is None else ~valid)])


def _real(values: Any, kind: LogicalType) -> Any:
    """A number as the nearest DOUBLE or FLOAT."""
    wanted = arrow_type(kind)
    if not pa.types.is_decimal(values.type):
        return values.cast(wanted, safe=False)
    array = as_array(values)
    found = unscaled(array) if wanted == pa.float64() and array.type.scale <= _EXACT_SCALE else None
    if found is None:
        # Arrow reads texts exactly, and rounds decimals of many digits twice.
        return pa.chunked_array([array.cast(pa.string()).cast(wanted)])
    numbers, valid = found
    reals = numbers.astype(np.float64) / 10.0**array.type.scale  # exact up to the division, which rounds once
    long = np.abs(numbers) > _EXACT
    if long.any():
        texts = array.filter(pa.array(long)).cast(pa.string())
        reals[long] = texts.cast(wanted).to_numpy(zero_copy_only=False)
    return pa.chunked_array([pa.array(reals, mask=None if valid is None else ~valid)])


FORMS: Final[Mapping[str, Callable[..., Any]]] = {"fit": _fit, "whole part": _whole_part, "real": _real}
"""Operators of forms: what they take, then what else stands in the form."""
