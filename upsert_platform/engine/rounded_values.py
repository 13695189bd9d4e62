"""Numbers in Arrow, rounded as Spark rounds them: half up before the point, up and down to whole ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import LogicalType, TypeName, arrow_type
from upsert_platform.engine.decimal_values import as_array, of_unscaled, of_whole_numbers, unscaled, whole_numbers

_LONG_DIGITS: Final = 18
"""Digits of a power of ten to which a BIGINT may be rounded without another digit before it."""
_DIGITS_OF_LONG: Final = 19


def _round(values: Any, how: str, digits: int, kind: LogicalType) -> Any:
    """Numbers without their last digits.

    Args:
        how: "half up", "floor" or "ceil".
        digits: that are zeros then, before the point; 0 for none.
        kind: of the result: of whole numbers the type that they have, in which they wrap around, otherwise a DECIMAL
            without a scale, which has room for all.
    """
    if kind.name is not TypeName.DECIMAL:
        return pa.chunked_array([_whole(values, digits)])
    array = as_array(values)
    lost, found = digits + array.type.scale, unscaled(array)
    wanted = arrow_type(kind)
    if found is None or lost > _LONG_DIGITS or digits >= _LONG_DIGITS:
        rounded = [_rounded(number, how, 10**lost, 10**digits) for number in whole_numbers(array)]
        return pa.chunked_array([of_whole_numbers(rounded, wanted)])
    numbers, valid = found
    unit = 10**lost
    counts = numbers // unit
    rest = numbers - counts * unit
    counts += _is_up(rest, how, unit, numbers < 0)
    if digits and len(counts) and int(np.abs(counts).max()) > (1 << 62) // 10**digits:
        rounded = [_rounded(number, how, unit, 10**digits) for number in whole_numbers(array)]
        return pa.chunked_array([of_whole_numbers(rounded, wanted)])
    return pa.chunked_array([of_unscaled((counts * 10**digits, valid), wanted)])


def _rounded(number: int | None, how: str, unit: int, times: int) -> int | None:
    if number is None:
        return None
    count, rest = divmod(number, unit)
    return (count + bool(_is_up(rest, how, unit, number < 0))) * times


def _is_up(rest: Any, how: str, unit: int, below: Any) -> Any:
    """Return whether a number is rounded to the next one above: a half goes away from zero."""
    if how == "floor" or unit == 1:
        return rest < 0
    return rest > 0 if how == "ceil" else rest * 2 + 1 - below > unit


def _whole(values: Any, digits: int) -> pa.Array:
    """Whole numbers, half up to digits before the point, in which the upper bits are lost."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    numbers = array.cast(pa.int64()).fill_null(0).to_numpy()
    mask = array.is_null().to_numpy(zero_copy_only=False)
    if digits > _DIGITS_OF_LONG:
        rounded = np.zeros(len(numbers), np.int64)
    else:
        unit = np.uint64(10**digits)
        bits = numbers.view(np.uint64)
        sizes = np.where(numbers < 0, ~bits + np.uint64(1), bits)  # of the least BIGINT, too
        rest = sizes % unit
        sizes = sizes - rest + np.where(rest >= unit // np.uint64(2), unit, np.uint64(0))
        rounded = np.where(numbers < 0, ~sizes + np.uint64(1), sizes).view(np.int64)
    return pa.array(rounded, mask=mask).cast(array.type, safe=False)


FORMS: Final[Mapping[str, Callable[..., Any]]] = {"round": _round, "ceil": pc.ceil, "floor": pc.floor}
"""Operators of forms: what they take, then what else stands in the form."""
