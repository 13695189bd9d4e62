"""Rows in Arrow as the stream of a binary COPY, in bulk. Runs in Spark workers.

Each cell is its length (four bytes, -1 of a null) and its value, most significant byte first. Arrow joins the cells of
a row, so no row passes through Python. The layout is that of PostgreSQL's documentation of COPY; forms of values are
those of the types' receive functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.formats.json.encoder import json_values
from upsert_platform.formats.options import JsonSettings
from upsert_platform.postgres.types import is_array, is_json
from upsert_platform.types import LogicalType, TypeName

HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER: Final = b"\xff\xff"
JSON: Final = JsonSettings(encode_decimal_as_plain_number=True)
"""How nested values are written: decimals with all their digits."""
_NULL: Final = b"\xff\xff\xff\xff"
_EPOCH_DAYS: Final = 10_957
"""From 1970 to 2000, where PostgreSQL counts from."""
_EPOCH_MICROSECONDS: Final = _EPOCH_DAYS * 86_400_000_000
_FIXED: Final = {
    TypeName.BOOLEAN: ">i1",
    TypeName.TINYINT: ">i2",
    TypeName.SMALLINT: ">i2",
    TypeName.INT: ">i4",
    TypeName.BIGINT: ">i8",
    TypeName.FLOAT: ">f4",
    TypeName.DOUBLE: ">f8",
    TypeName.DATE: ">i4",
    TypeName.TIME: ">i8",
    TypeName.TIMESTAMP: ">i8",
    TypeName.TIMESTAMP_LTZ: ">i8",
}
_TEXT_OID: Final = 25
_OIDS: Final = {
    TypeName.BOOLEAN: 16,
    TypeName.TINYINT: 21,
    TypeName.SMALLINT: 21,
    TypeName.INT: 23,
    TypeName.BIGINT: 20,
    TypeName.FLOAT: 700,
    TypeName.DOUBLE: 701,
    TypeName.DATE: 1082,
    TypeName.TIME: 1083,
    TypeName.TIMESTAMP: 1114,
    TypeName.TIMESTAMP_LTZ: 1184,
    **dict.fromkeys((TypeName.BINARY, TypeName.VARBINARY, TypeName.BYTES), 17),
}
"""Ids of the types of an array's elements, which are the same on every server."""


def copy_rows(columns: Sequence[pa.Array], types: Sequence[LogicalType]) -> pa.Buffer:
    """Return the rows of a block as `HEADER` and `TRAILER` enclose them.

    Raises:
        ArithmeticError: a moment lies outside of what 64 bits count from the year 2000.
        ValueError: a nested value has no JSON form; the text says why.
    """
    count = np.array([len(columns)], ">i2").tobytes()
    parts = [pa.scalar(count, pa.large_binary())]
    for column, logical in zip(columns, types, strict=True):
        parts += [part.cast(pa.large_binary()) for part in _cells(column, logical)]
    rows = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
    ends = np.frombuffer(rows.buffers()[1], np.int64)
    return rows.buffers()[2].slice(0, int(ends[len(rows)])) if len(rows) else pa.py_buffer(b"")


def _cells(array: pa.Array, logical: LogicalType) -> list[pa.Array]:
    """Pieces of which the cells of a column are joined."""
    if logical.name in _FIXED:
        return [_fixed(array, logical)]
    if is_array(logical):
        payload = _arrays(array, logical)
    elif is_json(logical):
        payload = json_texts(array, logical)
    elif logical.name is TypeName.DECIMAL:
        payload = array.cast(pa.string())
    else:
        payload = array
    payload = payload.cast(pa.large_binary())
    lengths = np.asarray(pc.fill_null(pc.binary_length(payload), -1)).astype(">i4")
    return [_blocks(lengths.view(np.uint8).reshape(len(lengths), 4)), pc.fill_null(payload, b"")]


def _fixed(array: pa.Array, logical: LogicalType) -> pa.Array:
    """Cells of a type whose values have one length."""
    kind = np.dtype(_FIXED[logical.name])
    values = _numbers(array, logical).astype(kind)
    rows = np.zeros(len(values), np.dtype([("length", ">i4"), ("value", kind)]))
    rows["length"], rows["value"] = kind.itemsize, values
    cells = _blocks(rows.view(np.uint8).reshape(len(values), 4 + kind.itemsize))
    if array.null_count:
        return pc.if_else(array.is_null(), pa.scalar(_NULL, pa.large_binary()), cells)
    return cells


def _numbers(array: pa.Array, logical: LogicalType) -> np.ndarray:
    """Values as numbers that count from 2000, anything where there is a null."""
    match logical.name:
        case TypeName.BOOLEAN:
            return pc.fill_null(array, False).to_numpy(zero_copy_only=False)
        case TypeName.DATE:
            return _shifted(array.cast(pa.int32()).cast(pa.int64()), _EPOCH_DAYS)
        case TypeName.TIMESTAMP | TypeName.TIMESTAMP_LTZ:
            return _shifted(array.cast(pa.int64()), _EPOCH_MICROSECONDS)
    return pc.fill_null(array, 0).to_numpy(zero_copy_only=False)


def _shifted(numbers: pa.Array, by: int) -> np.ndarray:
    try:
        return pc.subtract_checked(pc.fill_null(numbers, 0), by).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        raise OverflowError("a moment lies outside of what 64 bits count from the year 2000") from None


def _blocks(rows: np.ndarray) -> pa.Array:
    """Rows of bytes, all of one length, as a binary array."""
    count, width = rows.shape
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int64) * width)
    return pa.Array.from_buffers(pa.large_binary(), count, [None, offsets, pa.py_buffer(np.ascontiguousarray(rows))])


def _arrays(array: pa.Array, logical: LogicalType) -> pa.Array:
    """One-dimensional arrays: a head, then the cells of their elements."""
    assert logical.element is not None
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    items = pc.list_flatten(array)
    pieces = [piece.cast(pa.large_binary()) for piece in _cells(items, logical.element)]
    cells = pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary())) if len(pieces) > 1 else pieces[0]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    bodies = pc.binary_join(pa.LargeListArray.from_arrays(pa.array(offsets), cells), pa.scalar(b"", pa.large_binary()))
    oid = _OIDS.get(logical.element.name, _TEXT_OID)
    heads = np.zeros((len(array), 5), ">i4")
    heads[:, 0], heads[:, 1], heads[:, 2], heads[:, 3], heads[:, 4] = 1, 1, oid, lengths, 1
    full = _blocks(heads.view(np.uint8).reshape(len(array), 20))
    empty = pa.scalar(np.array([0, 0, oid], ">i4").tobytes(), pa.large_binary())
    head = pc.if_else(pa.array(lengths == 0), empty, full)
    joined = pc.binary_join_element_wise(head, bodies, pa.scalar(b"", pa.large_binary()))
    return pc.if_else(array.is_null(), pa.scalar(None, pa.large_binary()), joined)


def json_texts(array: pa.Array, logical: LogicalType) -> pa.Array:
    """JSON of nested values, by the rules of format ``json``.

    Raises:
        ValueError: a value has no JSON form.
    """
    refusals: dict[int, str] = {}
    texts = json_values(array, logical, JSON, refusals)
    if refusals:
        raise ValueError(next(iter(refusals.values())))
    return texts
