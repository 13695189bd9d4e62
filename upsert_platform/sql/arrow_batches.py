"""Functions over Arrow arrays, called with the columns of a table: some rows at a time. Imports no other module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

_ROWS: Final = 20_000
"""Rows that a function is given at once at most: as many as a batch of Spark's has."""


def over_columns(
    function: Callable[..., pa.Array], columns: Sequence[pa.ChunkedArray], kinds: Sequence[pa.DataType]
) -> pa.ChunkedArray:
    """The values that a function gives of all rows.

    Args:
        kinds: types of the columns, for a table without rows.
    """
    table = pa.table(list(columns), names=[str(place) for place in range(len(columns))]).combine_chunks()
    found = [function(*batch.columns) for batch in table.to_batches(max_chunksize=_ROWS)]
    return pa.chunked_array(found or [function(*(pa.array([], kind) for kind in kinds))])
