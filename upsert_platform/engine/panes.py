"""Rows of windows that overlap, put together by panes first: by the pieces of time of which every window consists.

A row falls into many sliding windows. Rows that are equal but for their time, and lie in one pane, fall into the same
ones, so that one of them with their number takes the place of all before windows multiply it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.plan import Window
from upsert_platform.engine.keys import sum_rows

_WORTHWHILE: Final = 2
"""Rows that panes have to put into one, on average, or they are left as they are."""
_ROWS: Final = 1_000
"""Rows below which nothing is gained."""


def rows_of_panes(table: pa.Table, window: Window, columns: Sequence[str], *, weight: str) -> pa.Table | None:
    """Rows that were added, put together; None where that gains nothing, or is not sure to change nothing.

    Args:
        columns: all that is read of the rows, beside their windows.
        weight: column of how often a row is there.

    Returns:
        These columns, that of the event time, as the beginning of a pane, and the weight. Rows without a time are left
        out, as they fall into no window.
    """
    pane = math.gcd(window.size, window.step)
    if window.size < 2 * pane or table.num_rows < _ROWS or window.time in columns:
        return None
    if not all(_is_whole(table.schema.field(name).type) for name in columns):
        return None
    if pc.min_max(table.column(weight)).as_py() != {"min": 1, "max": 1}:  # rows that are taken back are counted singly
        return None
    times = table.column(window.time)
    if times.null_count:
        valid = pc.is_valid(times)
        table, times = table.filter(valid), times.filter(valid)
    micros = times.cast(pa.int64()).to_numpy()
    begun = pa.array(micros - np.mod(micros - window.offset, pane)).cast(times.type)
    small = table.select([*columns, weight]).append_column(window.time, begun)
    together = sum_rows(small, weight=weight)
    return together if together is not None and together.num_rows * _WORTHWHILE <= table.num_rows else None


def _is_whole(kind: pa.DataType) -> bool:
    """Return whether equal values of a type are the same bytes."""
    checks = (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_date32, pa.types.is_timestamp)
    return any(check(kind) for check in checks)
