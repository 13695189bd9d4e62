"""Equality of rows over Arrow columns, in bulk: numbers that are equal exactly for rows that are equal.

Null equals null, NaN equals NaN and -0.0 equals 0.0, as GROUP BY has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.row_hashes import normal


def code_rows(tables: Sequence[pa.Table], columns: Sequence[Sequence[str]]) -> list[np.ndarray]:
    """A number per row, from 0, that is equal exactly for rows that are equal in their columns.

    Args:
        columns: per table the names to compare, by position; types have to be the same.
    """
    sizes = [table.num_rows for table in tables]
    total = sum(sizes)
    found = np.zeros(total, dtype=np.int64)
    cardinality = 1
    for names in zip(*columns, strict=True):
        if total and cardinality == total:
            break  # no two rows are equal: further columns tell nothing
        parts = [normal(table.column(name)) for table, name in zip(tables, names, strict=True)]
        array = pa.concat_arrays(parts) if len(parts) > 1 else parts[0]
        codes, count = _codes(array)
        if cardinality == 1:
            found, cardinality = codes, count
            continue
        if cardinality > (1 << 62) // max(count, 1):
            found, cardinality = _codes(pa.array(found))
        found, cardinality = _codes(pa.array(found * max(count, 1) + codes))
    return list(np.split(found, np.cumsum(sizes)[:-1]))


def _codes(array: pa.Array) -> tuple[np.ndarray, int]:
    if pa.types.is_null(array.type):
        return np.zeros(len(array), dtype=np.int64), 1
    encoded = pc.dictionary_encode(array, null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


def last_positions(codes: np.ndarray, order: np.ndarray | None = None) -> np.ndarray:
    """Position of the last row of each code, ascending.

    Args:
        order: positions in the order that decides; that of the rows if left out. Of rows with equal codes the last of
            this order counts.
    """
    if not len(codes):
        return np.zeros(0, dtype=np.int64)
    last = np.full(int(codes.max()) + 1, -1, dtype=np.int64)
    if order is None:
        last[codes] = np.arange(len(codes))
    else:
        last[codes[order]] = order
    return np.sort(last[last >= 0])
