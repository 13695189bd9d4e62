"""Rows of Arrow columns to the bytes of a BatchWriteRow request, a whole block at once.

Each row change is a PlainBuffer row (service protocol, PlainBuffer) inside a protobuf ``RowInBatchWriteRowRequest``.
All rows of a block are laid out one behind the other in a single buffer, so the body of a request is a table header and
a slice of it. The bytes are those of the official SDK; the tests compare them for every type and operation.

Nothing here loops over rows in Python but the checksums of strings: constant parts are matrices of bytes, variable
parts are Arrow buffers, and one Arrow kernel interleaves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.tablestore import crc8
from upsert_platform.tablestore.crc8 import Bytes
from upsert_platform.tablestore.types import StoredType

Mask = npt.NDArray[np.bool_]
Lengths = npt.NDArray[np.int64]


class RowOperation(IntEnum):
    """Protobuf ``OperationType``."""

    PUT = 1
    UPDATE = 2
    DELETE = 3


@dataclass(frozen=True, slots=True)
class Cells:
    """A column of a block of rows.

    Attributes:
        name: ASCII, checked when the table was declared.
        values: of `upsert_platform.tablestore.types.stored_arrow_type`; null is no cell.
        remove: rows in which the cell is a DELETE_ALL of the column instead; None for no row.
    """

    name: str
    stored: StoredType
    values: pa.Array
    remove: Mask | None = None


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Row changes ready to be sent.

    Attributes:
        data: the ``rows`` fields of a BatchWriteRow table, one behind the other.
        offsets: rows + 1 positions in `data`.
    """

    data: memoryview
    offsets: Lengths

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def slice(self, start: int, stop: int) -> memoryview:
        """The bytes of consecutive rows."""
        return self.data[self.offsets[start] : self.offsets[stop]]

    def select(self, rows: Sequence[int]) -> bytes:
        """The bytes of chosen rows."""
        return b"".join(self.data[self.offsets[row] : self.offsets[row + 1]] for row in rows)


@dataclass(slots=True)
class _Part:
    """Bytes of every row: of fixed width where present, or an Arrow array."""

    values: pa.Array
    lengths: Lengths


_HEADER = (0x75).to_bytes(4, "little")
_ROW_PRIMARY_KEY, _ROW_DATA, _CELL, _NAME, _VALUE = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"
_DELETE_ALL, _DELETE_MARKER, _ROW_CHECKSUM, _CELL_CHECKSUM = b"\x06\x01", 0x08, 0x09, 0x0A
_TYPE_CODES = {
    StoredType.INTEGER: 0,
    StoredType.DOUBLE: 1,
    StoredType.BOOLEAN: 2,
    StoredType.STRING: 3,
    StoredType.BINARY: 7,
}
IGNORE_EXISTENCE: Final = b"\x1a\x02\x08\x00"
"""A row's condition without an expectation."""
EXPECT_NO_ROW: Final = b"\x1a\x02\x08\x02"
"""The condition that no row is there."""
_FIXED_WIDTH = {StoredType.INTEGER: 8, StoredType.DOUBLE: 8, StoredType.BOOLEAN: 1}


def encode_rows(
    operations: Bytes, primary_key: Sequence[Cells], attributes: Sequence[Cells], *, conditions: Bytes | None = None
) -> EncodedRows:
    """Encodes a block of row changes.

    Args:
        operations: `RowOperation` per row. Attributes of a DELETE are not sent.
        primary_key: columns in the order of the table's keys, without nulls.
        attributes: columns in the order in which cells are sent; DELETE_ALL cells stand before the others.
        conditions: rows x width, the protobuf ``condition`` field of each row; no expectation by default.
    """
    parts = _plain_parts(operations == RowOperation.DELETE, primary_key, attributes)
    rows = len(operations)
    condition = _constant(rows, IGNORE_EXISTENCE) if conditions is None else conditions
    plain, plain_shown = _length_field(b"\x12", parts)
    change_type = np.concatenate([_constant(rows, b"\x08"), operations.reshape(-1, 1)], axis=1)
    change = [_fixed(change_type, None), _ragged(plain, plain_shown), *parts, _fixed(condition, None)]
    return _interleave([_ragged(*_length_field(b"\x12", change)), *change])


def encode_keys(primary_key: Sequence[Cells]) -> EncodedRows:
    """Encodes primary keys as the ``primary_key`` fields of a BatchGetRow table."""
    parts = _plain_parts(np.zeros(len(primary_key[0].values), bool), primary_key, ())
    return _interleave([_ragged(*_length_field(b"\x12", parts)), *parts])


def _plain_parts(deleted: Mask, primary_key: Sequence[Cells], attributes: Sequence[Cells]) -> list[_Part]:
    """PlainBuffer of rows: keys, removed cells, cells, delete marker, checksum."""
    rows = len(deleted)
    row_state = np.zeros(rows, np.uint8)
    parts = [_fixed(_constant(rows, _HEADER + _ROW_PRIMARY_KEY), None)]
    for cells in primary_key:
        row_state = _add_cell(parts, cells, _valid(cells.values), row_state)
    any_cell = np.zeros(rows, bool)
    data_tag = len(parts)
    for cells in attributes:
        if cells.remove is not None:
            removed = cells.remove & ~deleted
            any_cell |= removed
            row_state = _add_removal(parts, cells.name, removed, row_state)
    for cells in attributes:
        present = _valid(cells.values) & ~deleted
        if cells.remove is not None:
            present &= ~cells.remove
        any_cell |= present
        row_state = _add_cell(parts, cells, present, row_state)
    parts.insert(data_tag, _fixed(_constant(rows, _ROW_DATA), any_cell))
    tail = np.empty((rows, 3), np.uint8)
    tail[:, 0], tail[:, 1], tail[:, 2] = _DELETE_MARKER, _ROW_CHECKSUM, crc8.STEP[row_state ^ deleted]
    shown = np.ones((rows, 3), bool)
    shown[:, 0] = deleted
    parts.append(_ragged(tail, shown))
    return parts


def _length_field(tag: bytes, parts: list[_Part]) -> tuple[Bytes, Mask]:
    """Tag and length, as protobuf, of a field that holds these parts; bytes and which of them are sent."""
    varint, shown = _varints(sum((part.lengths for part in parts[1:]), parts[0].lengths))
    rows = len(varint)
    return np.concatenate([_constant(rows, tag), varint], axis=1), np.concatenate(
        [np.ones((rows, 1), bool), shown], axis=1
    )


def batch_write_body(table: str, rows: bytes | memoryview) -> bytes:
    """A BatchWriteRow request for one table, from bytes that `EncodedRows` cut."""
    return _table_body(table, rows, b"")


def batch_get_body(table: str, keys: bytes | memoryview) -> bytes:
    """A BatchGetRow request for the latest version of rows of one table, from bytes that `encode_keys` gave."""
    return _table_body(table, keys, b"\x30\x01")


def _table_body(table: str, rows: bytes | memoryview, options: bytes) -> bytes:
    name = table.encode("ascii")
    header = b"\x0a" + varint(len(name)) + name
    return b"".join((b"\x0a", varint(len(header) + len(rows) + len(options)), header, rows, options))


def varint(value: int) -> bytes:
    """A number as protobuf has it."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _interleave(parts: list[_Part]) -> EncodedRows:
    joined = pc.binary_join_element_wise(
        *(part.values for part in parts), b"", null_handling="replace", null_replacement=b""
    )
    _, offsets, data = joined.buffers()
    positions = np.frombuffer(offsets, np.int32, len(joined) + 1, joined.offset * 4).astype(np.int64)
    return EncodedRows(memoryview(data) if data is not None else memoryview(b""), positions)


def _varints(values: Lengths) -> tuple[Bytes, Mask]:
    """Protobuf varints of numbers below 2^35, as five bytes of which those to be sent are shown."""
    groups = values[:, None] >> (7 * np.arange(5))
    shown = groups > 0
    shown[:, 0] = True
    more = np.zeros_like(shown)
    more[:, :-1] = shown[:, 1:]
    return ((groups & 0x7F) | (more * 0x80)).astype(np.uint8), shown


def _add_cell(parts: list[_Part], cells: Cells, present: Mask, row_state: Bytes) -> Bytes:
    name = cells.name.encode("ascii")
    opening = _CELL + _NAME + len(name).to_bytes(4, "little") + name + _VALUE
    code = _TYPE_CODES[cells.stored]
    width = _FIXED_WIDTH.get(cells.stored)
    state_after_type = crc8.checksum(bytes([code]), crc8.checksum(name))
    if width is not None:
        values = _fixed_values(cells.values, cells.stored)
        state = crc8.extend(state_after_type, values)
        head = opening + (1 + width).to_bytes(4, "little") + bytes([code])
        rows = len(values)
        matrix = np.empty((rows, len(head) + width + 2), np.uint8)
        matrix[:, : len(head)] = np.frombuffer(head, np.uint8)
        matrix[:, len(head) : len(head) + width] = values
        matrix[:, -2], matrix[:, -1] = _CELL_CHECKSUM, state
        parts.append(_fixed(matrix, present))
    else:
        state = _add_variable(parts, cells, present, opening, code, state_after_type)
    return np.where(present, crc8.STEP[row_state ^ state], row_state)


def _add_variable(
    parts: list[_Part], cells: Cells, present: Mask, opening: bytes, code: int, state_after_type: int
) -> Bytes:
    values = cells.values.cast(pa.binary())
    if not present.all():
        values = pc.if_else(pa.array(present), values, pa.scalar(None, pa.binary()))
    rows = len(values)
    lengths = np.asarray(pc.fill_null(pc.binary_length(values), 0)).astype(np.int64)
    data_length = lengths.astype("<u4").view(np.uint8).reshape(rows, 4)
    state = crc8.extend(state_after_type, data_length)
    state = crc8.join(state, lengths, crc8.checksums(values.to_pylist()))
    head = np.empty((rows, len(opening) + 9), np.uint8)
    head[:, : len(opening)] = np.frombuffer(opening, np.uint8)
    head[:, len(opening) : -5] = (lengths + 5).astype("<u4").view(np.uint8).reshape(rows, 4)
    head[:, -5] = code
    head[:, -4:] = data_length
    tail = np.empty((rows, 2), np.uint8)
    tail[:, 0], tail[:, 1] = _CELL_CHECKSUM, state
    parts.extend((_fixed(head, present), _Part(values, lengths), _fixed(tail, present)))
    return state


def _add_removal(parts: list[_Part], name: str, removed: Mask, row_state: Bytes) -> Bytes:
    encoded = name.encode("ascii")
    state = crc8.checksum(_DELETE_ALL[1:], crc8.checksum(encoded))
    cell = _CELL + _NAME + len(encoded).to_bytes(4, "little") + encoded + _DELETE_ALL + bytes([_CELL_CHECKSUM, state])
    parts.append(_fixed(_constant(len(removed), cell), removed))
    return np.where(removed, crc8.STEP[row_state ^ state], row_state)


def _fixed_values(values: pa.Array, stored: StoredType) -> Bytes:
    """Values of a fixed width as rows x width bytes; zeros where null."""
    match stored:
        case StoredType.INTEGER:
            filled = np.asarray(pc.fill_null(values, 0)).astype("<i8", copy=False)
        case StoredType.DOUBLE:
            filled = np.asarray(pc.fill_null(values, 0.0)).astype("<f8", copy=False)
        case _:
            filled = np.asarray(pc.fill_null(values, False).cast(pa.uint8()))
    return filled.view(np.uint8).reshape(len(values), _FIXED_WIDTH[stored])


def _valid(values: pa.Array) -> Mask:
    if values.null_count == 0:
        return np.ones(len(values), bool)
    return np.asarray(values.is_valid())


def _constant(rows: int, value: bytes) -> Bytes:
    return np.broadcast_to(np.frombuffer(value, np.uint8), (rows, len(value)))


def _fixed(matrix: Bytes, present: Mask | None) -> _Part:
    """Rows of the matrix where present (None: everywhere), nothing elsewhere."""
    rows, width = matrix.shape
    if present is None or present.all():
        lengths = np.full(rows, width, np.int64)
        return _Part(_binary(lengths, np.ascontiguousarray(matrix)), lengths)
    lengths = present * np.int64(width)
    return _Part(_binary(lengths, np.ascontiguousarray(matrix[present])), lengths)


def _ragged(matrix: Bytes, shown: Mask) -> _Part:
    """The bytes of each row of the matrix that are shown."""
    lengths = shown.sum(axis=1, dtype=np.int64)
    return _Part(_binary(lengths, matrix[shown]), lengths)


def _binary(lengths: Lengths, data: Bytes) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def version_conditions(column: str, sequence: Lengths) -> Bytes:
    """The ``condition`` field that lets a change pass where the row is missing, has no version or one as low.

    Args:
        column: attribute that holds the version.
        sequence: the version of each change.
    """
    name = column.encode("ascii")
    # SingleColumnValueFilter: LESS_EQUAL, name, value (type byte and 8 bytes), passes if missing, latest version only
    before = b"\x08\x06" + b"\x12" + varint(len(name)) + name + b"\x1a\x09\x00"
    after = b"\x20\x00\x28\x01"
    size = len(before) + 8 + len(after)
    head = b"\x08\x01\x12" + varint(size) + before
    inner = len(head) + 8 + len(after)
    condition = b"\x08\x00\x12" + varint(inner) + head
    opening = b"\x1a" + varint(len(condition) + 8 + len(after)) + condition
    rows = len(sequence)
    values = sequence.astype("<i8").view(np.uint8).reshape(rows, 8)
    return np.concatenate([_constant(rows, opening), values, _constant(rows, after)], axis=1)
