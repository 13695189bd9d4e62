"""Functions over frames of ordered rows: a frame is a run of rows that ends at a row of its partition or behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import LogicalType, TypeName, arrow_type
from upsert_platform.engine.row_order import sortable

_DIVISION: Final = Context(prec=76, rounding=ROUND_HALF_UP)
_INTEGERS: Final = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT)


@dataclass(frozen=True, slots=True)
class Frames:
    """The frame of each row of a table, as positions.

    Attributes:
        first: of each row's partition.
        end: of each row's partition, exclusive.
        peers: the first row that the order leaves equal to a row.
        start, stop: of the frame, exclusive at its end.
    """

    first: np.ndarray
    end: np.ndarray
    peers: np.ndarray
    start: np.ndarray
    stop: np.ndarray


def row_numbers(frames: Frames) -> np.ndarray:
    """The number of each row in its partition, from 1."""
    return np.arange(len(frames.first)) - frames.first + 1


def ranks(frames: Frames) -> np.ndarray:
    """Return the rank of each row in its partition, counted from 1, with gaps after equals."""
    return frames.peers - frames.first + 1


def dense_ranks(frames: Frames) -> np.ndarray:
    """Return the rank of each row among the different rows of its partition, counted from 1."""
    steps = np.cumsum(frames.peers == np.arange(len(frames.peers)))
    return steps - steps[frames.first] + 1 if len(steps) else steps


def neighbours(values: pa.Array, frames: Frames, offset: int, default: pa.Array | None) -> pa.Array:
    """The value so many rows before (below zero: behind) each row of a partition, or else the default."""
    at = np.arange(len(frames.first)) - offset
    there = (at >= frames.first) & (at < frames.end)
    found = values.take(pa.array(np.where(there, at, 0), mask=~there))
    return found if default is None else pc.if_else(pa.array(there), found, default)


def counts(values: pa.Array | None, frames: Frames) -> np.ndarray:
    """Return the number of rows of each frame, or of its rows with a value."""
    if values is None:
        return frames.stop - frames.start
    return _between(np.cumsum(values.is_valid().to_numpy(zero_copy_only=False)), frames)


def first_values(values: pa.Array, frames: Frames, *, last: bool) -> pa.Array:
    """The first or last value of each frame that is not null."""
    size = len(values)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    places = np.arange(size)
    if last:
        before = np.maximum.accumulate(np.where(valid, places, -1)) if size else places
        at = before[frames.stop - 1] if size else places
    else:
        behind = np.minimum.accumulate(np.where(valid, places, size)[::-1])[::-1] if size else places
        at = behind[frames.start] if size else places
    there = (at >= frames.start) & (at < frames.stop)
    return values.take(pa.array(np.where(there, at, 0), mask=~there))


def extremes(values: pa.Array, frames: Frames, *, greatest: bool) -> pa.Array:
    """The least or greatest value of each frame, nulls left out."""
    size = len(values)
    if not size:
        return values
    ordered = pc.rank(sortable(pa.chunked_array([values])), sort_keys="ascending", tiebreaker="dense").to_numpy()
    ordered = ordered.astype(np.int64)
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    worst = 0 if greatest else size + 1
    choose: Callable[[np.ndarray, np.ndarray], np.ndarray] = np.maximum if greatest else np.minimum
    level = np.where(nulls, worst, ordered)
    best = np.full(size, worst, dtype=np.int64)
    lengths = frames.stop - frames.start
    reach = np.where(lengths > 0, np.frexp(np.maximum(lengths, 1).astype(float))[1] - 1, -1)
    for power in range(int(reach.max(initial=0)) + 1):
        mine = np.flatnonzero(reach == power)
        # Two runs of 2**power rows cover a frame that is at most twice as long.
        best[mine] = choose(level[frames.start[mine]], level[frames.stop[mine] - (1 << power)])
        if 1 << power < size:
            level[: size - (1 << power)] = choose(level[: size - (1 << power)], level[1 << power :])
    there = best != worst
    of_rank = np.zeros(size + 2, dtype=np.int64)
    of_rank[np.where(nulls, 0, ordered)] = np.arange(size)
    return values.take(pa.array(of_rank[best], mask=~there))


def sums(values: pa.Array, kind: LogicalType, frames: Frames, *, mean: bool) -> pa.Array:
    """The sum or mean of each frame, of values that are not null; doubles are added without rounding.

    Args:
        kind: of the result.
    """
    number = counts(values, frames)
    if kind.name in _INTEGERS and not mean:
        whole = np.cumsum(pc.fill_null(values.cast(pa.int64()), 0).to_numpy())
        wanted = arrow_type(kind)
        with np.errstate(over="ignore"):
            return pa.array(_between(whole, frames).astype(wanted.to_pandas_dtype()), wanted, mask=number == 0)
    scale, parts = _exact(values)
    running = np.array(list(accumulate(parts)), dtype=object)
    totals = _between(running, frames).tolist() if len(parts) else []
    special = [_between(np.cumsum(flags), frames) for flags in _special(values)]
    found: list[Any] = []
    for at, (total, count) in enumerate(zip(totals, number.tolist(), strict=True)):
        odd = (int(special[0][at]), int(special[1][at]), int(special[2][at]))
        found.append(_number(total, count, scale, kind, odd, mean=mean) if count else None)
    return pa.array(found, arrow_type(kind))


def distinct_values(
    values: pa.Array, kind: LogicalType, frames: Frames, codes: np.ndarray, *, function: str
) -> pa.Array:
    """The number, sum or mean of the different values of each frame that are not null.

    Frames of a partition begin and end no earlier than those before them, so each row enters and leaves once.

    Args:
        kind: of the result.
        codes: equal numbers for equal values.
        function: ``count``, ``sum`` or ``avg``.
    """
    counted = function == "count"
    scale, parts = (0, [0] * len(values)) if counted else _exact(values)
    flags = [flag.tolist() for flag in _special(values)]
    valid = values.is_valid().to_numpy(zero_copy_only=False).tolist()
    of_value = codes.tolist()
    there: dict[int, int] = {}
    total, number, odd = 0, 0, [0, 0, 0]
    found: list[Any] = []
    start = stop = 0

    def change(at: int, by: int) -> None:
        nonlocal total, number
        total, number = total + by * parts[at], number + by
        for place, flag in enumerate(flags):
            odd[place] += by * int(flag[at])

    for first, begin, end in zip(frames.first.tolist(), frames.start.tolist(), frames.stop.tolist(), strict=True):
        if begin >= stop or first > start:  # nothing of the frame before is in this one, or all of that is read anew
            there, total, number, odd = {}, 0, 0, [0, 0, 0]
            start = stop = begin
        for at in range(stop, end):
            if valid[at]:
                before = there.get(of_value[at], 0)
                there[of_value[at]] = before + 1
                if not before:
                    change(at, 1)
        for at in range(start, begin):
            if valid[at]:
                there[of_value[at]] -= 1
                if not there[of_value[at]]:
                    change(at, -1)
        start, stop = begin, end
        if counted:
            found.append(number)
        else:
            special = (odd[0], odd[1], odd[2])
            found.append(_number(total, number, scale, kind, special, mean=function == "avg") if number else None)
    return pa.array(found, pa.int64() if counted else arrow_type(kind))


def _number(total: int, count: int, scale: int, kind: LogicalType, special: tuple[int, int, int], *, mean: bool) -> Any:
    divisor = count if mean else 1
    if kind.name in _INTEGERS:
        return int(abs(total) // divisor) * (1 if total >= 0 else -1)
    if kind.name is TypeName.DECIMAL:
        wanted = Decimal(1).scaleb(-(kind.scale or 0))
        found = _DIVISION.divide(Decimal(total).scaleb(-scale, _DIVISION), Decimal(divisor))
        rounded = found.quantize(wanted, ROUND_HALF_UP, _DIVISION)
        return rounded if len(rounded.as_tuple().digits) <= (kind.precision or 38) else None
    nans, positive, negative = special
    if nans or (positive and negative):
        return float("nan")
    if positive or negative:
        return float("inf") if positive else float("-inf")
    try:
        return float(Fraction(total, divisor << scale))
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")


def _exact(values: pa.Array) -> tuple[int, list[int]]:
    """Values as whole numbers and their scale: of decimals digits behind the point, of doubles bits."""
    kind = values.type
    if pa.types.is_decimal(kind):
        found = [0 if item is None else int(item.scaleb(kind.scale, _DIVISION)) for item in values.to_pylist()]
        return kind.scale, found
    if pa.types.is_floating(kind):
        numbers = pc.fill_null(values.cast(pa.float64()), 0).to_numpy()
        finite = np.where(np.isfinite(numbers), numbers, 0.0).tolist()
        return _UNIT, [top * ((1 << _UNIT) // below) for top, below in (item.as_integer_ratio() for item in finite)]
    return 0, pc.fill_null(values.cast(pa.int64()), 0).to_pylist()


_UNIT: Final = 1074
"""Doubles are whole multiples of 2**-_UNIT."""


def _special(values: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return masks of NaN, infinity and negative infinity."""
    if not pa.types.is_floating(values.type):
        none = np.zeros(len(values), dtype=np.int64)
        return none, none, none
    numbers = pc.fill_null(values.cast(pa.float64()), 0).to_numpy()
    return np.isnan(numbers), np.isposinf(numbers), np.isneginf(numbers)


def _between(running: np.ndarray, frames: Frames) -> np.ndarray:
    """Return the growth of a running total within each frame."""
    if not len(running):
        return running
    whole = np.concatenate([np.zeros(1, dtype=running.dtype), running])
    return whole[frames.stop] - whole[frames.start]
