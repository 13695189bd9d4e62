"""Equality of rows over Arrow columns, in bulk: numbers that are equal exactly for rows that are equal.

Null equals null, NaN equals NaN and -0.0 equals 0.0, as GROUP BY has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.row_hashes import hash_columns, normal

_LOOKED_AT: Final = 2_048
"""Rows whose hashes tell whether rows are much alike, which takes no time."""
_RARE: Final = 8
"""Of as many rows one may be equal to another."""


def code_rows(tables: Sequence[pa.Table], columns: Sequence[Sequence[str]]) -> list[np.ndarray]:
    """A number per row, from 0, that is equal exactly for rows that are equal in their columns.

    Args:
        columns: per table the names to compare, by position; types have to be the same.
    """
    sizes = [table.num_rows for table in tables]
    total = sum(sizes)
    if len(tables) == 1 and len(columns[0]) > 1:
        arrays = [normal(tables[0].column(name)) for name in columns[0]]
        hashed = _codes_by_hashes(arrays) if all(_is_hashed(array.type) for array in arrays) else None
        if hashed is not None:
            return [hashed]
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


def _codes_by_hashes(arrays: Sequence[pa.Array]) -> np.ndarray | None:
    """Numbers as those of `code_rows`, by hashes of whole rows, which take less time where hardly two are equal.

    Args:
        arrays: columns of a table, as `normal` gives them.

    Returns:
        None where rows are often equal, or two different ones share a hash.
    """
    count = len(arrays[0])
    if count > _LOOKED_AT:
        _, repeated = _repeated([array.slice(0, _LOOKED_AT) for array in arrays])
        if len(repeated) * _RARE > _LOOKED_AT:
            return None
    hashes, repeated = _repeated(arrays)
    every = np.arange(count)
    if not len(repeated):
        return every  # rows with different hashes are different
    if len(repeated) * _RARE > count:
        codes, different = _codes(pa.array(hashes))
        first = np.empty(different, np.int64)
        first[codes[::-1]] = every[::-1]  # of a repeated place the last assignment stays
        rows = np.flatnonzero(first[codes] != every)
        firsts = first[codes[rows]]
    else:
        codes, place = None, np.searchsorted(repeated, hashes)
        place[place == len(repeated)] = 0
        rows = np.flatnonzero(repeated[place] == hashes)
        first = np.empty(len(repeated), np.int64)
        first[place[rows][::-1]] = rows[::-1]
        firsts = first[place[rows]]
    pairs = pa.array(rows), pa.array(firsts)
    if not all(_bits(array.take(pairs[0])).equals(_bits(array.take(pairs[1]))) for array in arrays):
        return None
    if codes is not None:
        return codes
    own = every.copy()
    own[rows] = firsts
    numbers = np.cumsum(own == every) - 1
    return numbers[own]


def _is_hashed(kind: pa.DataType) -> bool:
    types = pa.types
    numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal128(kind) or types.is_boolean(kind)
    return numbers or kind in (pa.string(), pa.binary(), pa.date32()) or types.is_timestamp(kind)


def _repeated(arrays: Sequence[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """The hash of each row, and those that several rows have, ascending."""
    hashes = hash_columns(arrays, len(arrays[0]))
    ascending = np.sort(hashes)
    return hashes, np.unique(ascending[1:][ascending[1:] == ascending[:-1]])


def _bits(array: pa.Array) -> pa.Array:
    """Doubles as whole numbers, since NaN does not equal itself; they are normal already."""
    widths = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    return array.view(widths[array.type]) if array.type in widths else array


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
