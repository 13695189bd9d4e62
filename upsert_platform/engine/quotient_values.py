"""Quotients and remainders in Arrow, as Spark computes them: of doubles, and of decimals, which are rounded half up and
are null where the divisor is zero or their type has no room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import LogicalType, arrow_type
from upsert_platform.engine.decimal_values import (
    Unscaled,
    as_array,
    of_unscaled,
    of_whole_numbers,
    unscaled,
    whole_numbers,
)

_LONG: Final = (1 << 63) - 1
_LONG_DIGITS: Final = 19


def _quotient(left: Any, right: Any, kind: LogicalType) -> Any:
    """A quotient of exact numbers. (Arrow's own division errs in some numbers of more than 64 bits.)"""
    left, right = as_array(left), as_array(right)
    more = (kind.scale or 0) + _scale(right) - _scale(left)
    short = _short_quotient(left, right, more, kind)
    if short is not None:
        return pa.chunked_array([short])
    unit, by, most = 10 ** max(more, 0), 10 ** max(-more, 0), 10 ** (kind.precision or 0)
    pairs = zip(whole_numbers(left), whole_numbers(right), strict=True)
    found = [_quotient_of(one, other, unit, by, most) for one, other in pairs]
    return pa.chunked_array([of_whole_numbers(found, arrow_type(kind))])


def _quotient_of(one: int | None, other: int | None, unit: int, by: int, most: int) -> int | None:
    if one is None or not other:
        return None
    size = abs(other) * by
    found = (2 * abs(one) * unit + size) // (2 * size)
    if found >= most:
        return None
    return -found if (one < 0) != (other < 0) else found


def _short_quotient(left: pa.Array, right: pa.Array, more: int, kind: LogicalType) -> pa.Array | None:
    """A quotient for which 64 bits have room; None where they have none.

    Args:
        more: digits of the dividend behind those that it has.
    """
    dividend, divisor = unscaled(left), unscaled(right)
    if dividend is None or divisor is None or more < 0 or not len(left):
        return None
    (one, valid), (other, known) = dividend, divisor
    rest, by = np.abs(one), np.abs(other)
    zero = by == 0
    by = np.where(zero, 1, by)
    at_once = len(str(_LONG // int(by.max()))) - 1
    found = np.zeros(len(rest), np.int64)
    while True:
        digits = rest // by
        rest = rest - digits * by
        found += digits
        step = min(at_once, more)
        if more and (step < 1 or int(found.max()) >= _LONG // 10**step - 1):
            return None
        if not more:
            break
        found, rest, more = found * 10**step, rest * 10**step, more - step
    found += rest >= by - rest
    present = _present(~zero, valid, known)
    if (kind.precision or 0) < _LONG_DIGITS:
        present &= found < 10 ** (kind.precision or 0)
    return of_unscaled((np.where((one < 0) != (other < 0), -found, found), present), arrow_type(kind))


def _present(usual: np.ndarray, *masks: np.ndarray | None) -> np.ndarray:
    """Return which rows have a value: of masks None stands for all of them."""
    for mask in masks:
        usual = usual if mask is None else usual & mask
    return usual


def _scale(array: pa.Array) -> int:
    return int(array.type.scale) if pa.types.is_decimal(array.type) else 0


def _rest(left: Any, right: Any, kind: LogicalType) -> Any:
    """A remainder of exact numbers, with the sign of the dividend."""
    left, right = as_array(left), as_array(right)
    scale = kind.scale or 0
    units = [10 ** (scale - _scale(array)) for array in (left, right)]
    dividend, divisor = unscaled(left), unscaled(right)
    if dividend is not None and divisor is not None and _fits(dividend, units[0]) and _fits(divisor, units[1]):
        (one, valid), (other, known) = dividend, divisor
        one, other = one * units[0], other * units[1]
        zero = other == 0
        found = np.fmod(one, np.where(zero, 1, other))
        present = _present(~zero, valid, known)
        return pa.chunked_array([of_unscaled((found, present), arrow_type(kind))])
    pairs = zip(whole_numbers(left), whole_numbers(right), strict=True)
    rests = [_rest_of(one, other, units) for one, other in pairs]
    return pa.chunked_array([of_whole_numbers(rests, arrow_type(kind))])


def _fits(found: Unscaled, unit: int) -> bool:
    """Return whether 64 bits have room for numbers times a unit."""
    numbers, _ = found
    return unit <= _LONG and (not len(numbers) or int(np.abs(numbers).max()) <= _LONG // unit)


def _rest_of(one: int | None, other: int | None, units: list[int]) -> int | None:
    if one is None or not other:
        return None
    found = abs(one) * units[0] % (abs(other) * units[1])
    return -found if one < 0 else found


def _signum(numbers: Any) -> Any:
    """1 with the sign of a double; a zero and NaN stay as they are."""
    one = pa.scalar(1.0, numbers.type)
    known = pc.and_(pc.not_equal(numbers, 0), pc.invert(pc.is_nan(numbers)))
    signs = pc.if_else(pc.less(numbers, 0), pc.negate(one), one)
    return pc.if_else(known, signs, numbers)


FORMS: Final[Mapping[str, Callable[..., Any]]] = {
    "quotient": _quotient,
    "rest of decimals": _rest,
    "quotient of doubles": pc.divide,
    "root": pc.sqrt,
    "sign": _signum,
}
"""Operators of forms: what they take, then what else stands in the form."""
