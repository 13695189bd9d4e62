"""Arrow values as Python compares and shows them, without Python's datetimes.

These reach from the year 1 to 9999 and no further, and a moment of the year 1 overflows where it is taken to another
time zone: a check or a write must not end because a record has such a date.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def comparable_values(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return values as Python objects, numbers in place of dates, times and timestamps, in lists and rows too."""
    import pyarrow as pa

    def number(kind: pa.DataType) -> pa.DataType:
        return pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64()

    return _converted(values, number).to_pylist()


def shown_values(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return values as Python objects, texts in place of dates, times and timestamps, in lists and rows too."""
    import pyarrow as pa

    return _converted(values, lambda kind: pa.string()).to_pylist()


def _converted(values: Any, convert: Callable[[pa.DataType], pa.DataType]) -> Any:
    wanted = _without_times(values.type, convert)
    return values if wanted == values.type else values.cast(wanted)


def _without_times(kind: pa.DataType, convert: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind) and not pa.types.is_duration(kind):
        return convert(kind)
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type, convert))
    if pa.types.is_large_list(kind):
        return pa.large_list(_without_times(kind.value_type, convert))
    if pa.types.is_map(kind):
        return pa.map_(_without_times(kind.key_type, convert), _without_times(kind.item_type, convert))
    if pa.types.is_struct(kind):
        return pa.struct([item.with_type(_without_times(item.type, convert)) for item in kind])
    return kind
