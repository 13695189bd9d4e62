"""Sums of doubles without rounding, so that taking a value back leaves what was there before it.

A sum is a whole multiple of 2**-1074, the smallest double, kept as bytes: how many limbs of 32 bits of zeros stand
below it, how many NaN, infinities and negative infinities were added, then the number itself. An empty text is zero.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final

import numpy as np
import pyarrow as pa

_LIMB: Final = 32
_UNIT: Final = 1074
"""Doubles are whole multiples of 2**-_UNIT."""
_HEAD: Final = struct.Struct("<Bqqq")
ZERO: Final = b""

Parts = tuple[int, int, int, int]
"""The number in units, and the counts of NaN, infinity and negative infinity."""


def unpack(text: bytes | None) -> Parts:
    """The parts of a stored sum."""
    if not text:
        return (0, 0, 0, 0)
    limbs, nans, positive, negative = _HEAD.unpack_from(text)
    return (int.from_bytes(text[_HEAD.size :], "little", signed=True) << (limbs * _LIMB), nans, positive, negative)


def pack(parts: Parts) -> bytes:
    """The inverse of `unpack`."""
    number, nans, positive, negative = parts
    if not any(parts):
        return ZERO
    limbs = ((number & -number).bit_length() - 1) // _LIMB if number else 0
    number >>= limbs * _LIMB
    body = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True) if number else b""
    return _HEAD.pack(limbs, nans, positive, negative) + body


def add(texts: Iterable[bytes | None]) -> bytes:
    """The sum of stored sums."""
    number = nans = positive = negative = 0
    for text in texts:
        if text:
            parts = unpack(text)
            number, nans = number + parts[0], nans + parts[1]
            positive, negative = positive + parts[2], negative + parts[3]
    return pack((number, nans, positive, negative))


def mean(text: bytes | None, count: int) -> float:
    """A stored sum divided by a count, rounded once; with a count of 1 the sum itself."""
    number, nans, positive, negative = unpack(text)
    if nans or (positive and negative):
        return float("nan")
    if positive or negative:
        return float("inf") if positive else float("-inf")
    try:
        return float(Fraction(number, count << _UNIT))
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def variance(squares: bytes | None, total: bytes | None, count: int, *, sample: bool) -> float | None:
    """The variance of so many values, rounded once; None where it divides by nothing.

    Args:
        squares: the stored sum of their squares, and `total` that of the values.
        sample: divided by one less than the count.
    """
    divisor = count - 1 if sample else count
    if divisor < 1:
        return None
    (second, *others), (first, *_) = unpack(squares), unpack(total)
    if any(others):
        return float("nan")
    try:
        return float(Fraction(count * second - first * first, (count * divisor) << (2 * _UNIT)))
    except OverflowError:
        return float("inf")


def sum_groups(
    values: np.ndarray, weights: np.ndarray, codes: np.ndarray, groups: int, *, squared: bool = False
) -> list[bytes]:
    """Sums of values times weights per group.

    Args:
        values: doubles.
        weights: whole numbers, small enough that rows times weights stay below 2**30.
        codes: the group of each value, from 0.
        squared: of their squares, which are whole multiples of 2**-2148.
    """
    finite = np.isfinite(values)
    special: dict[int, list[int]] = {}
    for position in np.flatnonzero(~finite):
        counts = special.setdefault(int(codes[position]), [0, 0, 0])
        value = values[position]
        counts[0 if np.isnan(value) else 1 if value > 0 or squared else 2] += int(weights[position])
    fraction, exponent = np.frexp(np.where(finite, values, 0.0))
    whole = np.ldexp(fraction, 53).astype(np.int64)
    # frexp gives subnormals a smaller exponent than their last bit has: those shift right, exactly.
    shift = exponent.astype(np.int64) - 53 + _UNIT
    whole = np.where(shift < 0, whole >> np.minimum(-np.minimum(shift, 0), 63), whole)
    shift = np.maximum(shift, 0)
    pieces = [piece for part, at in _parts(whole, shift, squared=squared) for piece in _limbs(part, at)]
    totals = [0] * groups
    table = pa.table(
        {
            "code": np.concatenate([codes] * len(pieces)),
            "limb": np.concatenate([place for place, _ in pieces]),
            "value": np.concatenate([value * weights for _, value in pieces]),
        }
    )
    summed = table.group_by(["code", "limb"], use_threads=False).aggregate([("value", "sum")])
    rows = zip(*(summed.column(name).to_pylist() for name in ("code", "limb", "value_sum")), strict=True)
    for code, place, value in rows:
        if value:
            totals[code] += value << (place * _LIMB)
    empty = (0, 0, 0)
    return [pack((number, *special.get(code, empty))) for code, number in enumerate(totals)]


def _parts(whole: np.ndarray, shift: np.ndarray, *, squared: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Whole numbers below 2**55 and by how many bits each is shifted, which add up to the numbers or their squares."""
    if not squared:
        return [(whole, shift)]
    size = np.abs(whole)
    high, low = size >> 27, size & ((1 << 27) - 1)
    return [(low * low, 2 * shift), (2 * high * low, 2 * shift + 27), (high * high, 2 * shift + 54)]


def _limbs(whole: np.ndarray, shift: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """A shifted number as three limbs, each with its place."""
    limb, within = shift // _LIMB, (shift % _LIMB).astype(np.uint64)
    sign = np.where(whole < 0, -1, 1)
    size = np.abs(whole).astype(np.uint64)
    mask = np.uint64(0xFFFFFFFF)
    low, high = (size & mask) << within, (size >> np.uint64(32)) << within
    return (
        (limb, (low & mask).astype(np.int64) * sign),
        (limb + 1, ((low >> np.uint64(32)).astype(np.int64) + (high & mask).astype(np.int64)) * sign),
        (limb + 2, (high >> np.uint64(32)).astype(np.int64) * sign),
    )


def add_groups(texts: Sequence[bytes | None], codes: np.ndarray, groups: int) -> list[bytes]:
    """Sums of stored sums per group."""
    found: list[bytes | None] = [None] * groups
    for code, text in zip(codes.tolist(), texts, strict=True):
        before = found[code]
        found[code] = text if not before else add((before, text))
    return [text or ZERO for text in found]
