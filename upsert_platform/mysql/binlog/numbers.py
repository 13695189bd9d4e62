"""Numbers in rows: integers, YEAR, FLOAT, DOUBLE, BIT, and ENUM and SET, which stand as numbers too."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.gather import Cells, decimals, fixed, from_bytes, from_numbers, little


def integers(cells: Cells, kind: pa.DataType, *, width: int, signed: bool) -> pa.Array:
    """Little-endian integers, as the type of the column: an integer, or DECIMAL(20, 0) of BIGINT UNSIGNED."""
    values = little(cells, width, signed=signed)
    if pa.types.is_decimal(kind):
        return decimals(values, np.zeros(len(values), np.int64), kind, cells.valid)
    if not signed and cells.valid is not None:
        values = np.where(cells.valid, values, 0)
    return from_numbers(values, kind, cells.valid)


def years(cells: Cells, kind: pa.DataType) -> pa.Array:
    """Years since 1900 in one byte, where 0 is the year 0."""
    values = little(cells, 1, signed=False).astype(np.int64)
    return from_numbers(np.where(values == 0, 0, values + 1900), kind, cells.valid)


def floats(cells: Cells, kind: pa.DataType, *, width: int) -> pa.Array:
    """IEEE numbers, little-endian."""
    values = np.ascontiguousarray(fixed(cells, width)).view("<f4" if width == 4 else "<f8").reshape(len(cells))
    return from_numbers(values, kind, cells.valid)


def bits(cells: Cells, kind: pa.DataType, *, width: int) -> pa.Array:
    """BIT: the highest byte first; BIT(1) is BOOLEAN."""
    matrix = fixed(cells, width)
    if pa.types.is_boolean(kind):
        return pa.array(matrix[:, -1] != 0, mask=None if cells.valid is None else ~cells.valid)
    offsets = np.arange(len(cells) + 1, dtype=np.int64) * width
    return from_bytes(matrix.reshape(-1), offsets, cells.valid)


def enums(cells: Cells, elements: tuple[str, ...], *, width: int, column: str) -> pa.Array:
    """ENUM: the element's number from 1, or 0 for the empty text of a value that was not one.

    Raises:
        ReplicationError: the catalogue tells fewer elements than a row names.
    """
    numbers = little(cells, width, signed=False).astype(np.int64)
    if cells.valid is not None:
        numbers = np.where(cells.valid, numbers, 0)
    if len(numbers) and numbers.max() > len(elements):
        told = f"{column}: a row names element {numbers.max()} of its ENUM and the catalogue tells {len(elements)}"
        raise ReplicationError(f"{told}; the column was changed between the two")
    words = pa.array(["", *elements], pa.string())
    return words.take(pa.array(numbers, mask=None if cells.valid is None else ~cells.valid))


def sets(cells: Cells, elements: tuple[str, ...], *, width: int, column: str) -> pa.Array:
    """SET: one bit per element, the first in the lowest; elements are joined by commas, as the server shows them.

    Raises:
        ReplicationError: the catalogue tells fewer elements than a row names.
    """
    masks = little(cells, width, signed=False)
    if cells.valid is not None:
        masks = np.where(cells.valid, masks, np.uint64(0))
    distinct, numbers = np.unique(masks, return_inverse=True)
    words = []
    for mask in distinct.tolist():
        if mask >> len(elements):
            told = f"{column}: a row names element {mask.bit_length()} of its SET and the catalogue tells"
            raise ReplicationError(f"{told} {len(elements)}; the column was changed between the two")
        words.append(",".join(word for bit, word in enumerate(elements) if mask >> bit & 1))
    return pa.array(words, pa.string()).take(
        pa.array(numbers.astype(np.int64), mask=None if cells.valid is None else ~cells.valid)
    )
