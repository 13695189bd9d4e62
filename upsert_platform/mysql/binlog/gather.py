"""Values of one column out of many rows: numpy index arithmetic over one buffer of bytes.

Everywhere here `raw` is ``uint8`` and holds rows one behind the other, `starts` (``int64``, one per row) is where a
value begins, and `valid` (``bool``, one per row, or None when all are) tells which rows have one. `raw` is padded, so
that a row without a value may read anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

PADDING: Final = 64
"""Zero bytes at the end of `raw`."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of one column.

    Attributes:
        ends: right behind each value; only of columns of varying length.
    """

    raw: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    valid: np.ndarray | None

    def __len__(self) -> int:
        return len(self.starts)


def fixed(cells: Cells, width: int) -> np.ndarray:
    """Values of `width` bytes as rows of a matrix."""
    return cells.raw[cells.starts[:, None] + np.arange(width)]


def little(cells: Cells, width: int, *, signed: bool) -> np.ndarray:
    """Little-endian numbers of 1 to 8 bytes, as ``int64``, or ``uint64`` when they are not signed."""
    return _widened(fixed(cells, width)[:, ::-1], signed=signed)


def big(matrix: np.ndarray) -> np.ndarray:
    """Big-endian unsigned numbers, one per row of a matrix of up to 8 columns, as ``uint64``."""
    return _widened(matrix, signed=False)


def _widened(matrix: np.ndarray, *, signed: bool) -> np.ndarray:
    """Big-endian numbers, one per row."""
    rows, width = matrix.shape
    wide = np.zeros((rows, 8), np.uint8)
    wide[:, 8 - width :] = matrix
    if signed:
        wide[:, : 8 - width] = np.where(matrix[:, :1] & 0x80, 0xFF, 0)
    found = wide.view(">i8" if signed else ">u8").reshape(rows)
    return found.astype(np.int64 if signed else np.uint64)


def binary(cells: Cells) -> pa.Array:
    """Values of varying length as an Arrow array of binary."""
    lengths = cells.ends - cells.starts
    if cells.valid is not None:
        lengths = np.where(cells.valid, lengths, 0)
    offsets = np.zeros(len(cells) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    index = np.arange(offsets[-1]) + np.repeat(cells.starts - offsets[:-1], lengths)
    return from_bytes(cells.raw[index], offsets, cells.valid)


def from_bytes(data: np.ndarray, offsets: np.ndarray, valid: np.ndarray | None) -> pa.Array:
    """An Arrow array of binary from the bytes of all values and where each begins; int64 offsets that fit int32."""
    validity, nulls = validity_bits(valid)
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers, nulls)


def validity_bits(valid: np.ndarray | None) -> tuple[pa.Buffer | None, int]:
    """Arrow's validity buffer, and how many are null."""
    if valid is None:
        return None, 0
    bits = np.packbits(valid, bitorder="little")
    return pa.py_buffer(bits), int(len(valid) - np.count_nonzero(valid))


def from_numbers(values: np.ndarray, kind: pa.DataType, valid: np.ndarray | None) -> pa.Array:
    """An Arrow array from numbers that fit its type, which numpy has too."""
    return pa.array(values, mask=None if valid is None else ~valid).cast(kind)


def decimals(low: np.ndarray, high: np.ndarray, kind: pa.DataType, valid: np.ndarray | None) -> pa.Array:
    """An Arrow array of decimals from the low (``uint64``) and high (``int64``) halves of its unscaled numbers."""
    halves = np.empty((len(low), 2), np.uint64)
    halves[:, 0] = low
    halves[:, 1] = high.astype(np.int64).view(np.uint64)
    validity, nulls = validity_bits(valid)
    return pa.Array.from_buffers(kind, len(low), [validity, pa.py_buffer(halves)], nulls)
