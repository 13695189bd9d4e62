"""Rows in Arrow to and from the stream of a COPY, in bulk; few rows, as JSON in a statement. Runs in Spark workers.

Rows that are sent are binary: each cell is its length (four bytes, -1 of a null) and its value, most significant byte
first. Arrow joins the cells of a row, so no row passes through Python. The layout is that of PostgreSQL's documentation
of COPY; forms of values are those of the types' receive functions. What a query gives comes as CSV, which Arrow reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from upsert_platform.core.errors import DestinationError
from upsert_platform.core.types import BYTES, LogicalType, TypeName, arrow_type
from upsert_platform.formats.json.decoder import JsonDecoder
from upsert_platform.formats.json.encoder import json_values
from upsert_platform.formats.options import JsonSettings
from upsert_platform.formats.text_columns import read_texts
from upsert_platform.postgres.sql import element_of, is_array, is_json, literal, scalar_of, staged_columns, text_of

if TYPE_CHECKING:
    import psycopg

HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER: Final = b"\xff\xff"
JSON: Final = JsonSettings(encode_decimal_as_plain_number=True)
"""How nested values are written: decimals with all their digits."""
_NULL: Final = b"\xff\xff\xff\xff"
_BLOB: Final = pa.large_binary()
_EPOCH_DAYS: Final = 10_957
"""From 1970 to 2000, where PostgreSQL counts from."""
_EPOCH_MICROSECONDS: Final = _EPOCH_DAYS * 86_400_000_000
_BLOCK: Final = 16 << 20
"""Bytes of CSV that are read at once; a row that is longer gets a block of its own."""


def copy_rows(columns: Sequence[pa.Array], types: Iterable[LogicalType]) -> pa.Buffer:
    """Return the rows of a block as `HEADER` and `TRAILER` enclose them.

    Raises:
        ArithmeticError: a moment lies outside of what 64 bits count from the year 2000.
        ValueError: a nested value has no JSON form; the text says why.
    """
    pieces = [pa.scalar(np.array([len(columns)], ">i2").tobytes(), _BLOB)]
    for column, logical in zip(columns, types, strict=True):
        pieces += _cells(column, logical)
    rows = _joined(*pieces)
    ends = np.frombuffer(rows.buffers()[1], np.int64)
    return rows.buffers()[2].slice(0, int(ends[len(rows)])) if len(rows) else pa.py_buffer(b"")


def _joined(*pieces: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", _BLOB)) if len(pieces) > 1 else pieces[0]


def _cells(array: pa.Array, logical: LogicalType) -> list[pa.Array]:
    """Pieces of which the cells of a column are joined."""
    if scalar_of(logical).binary:
        return [_fixed(array, logical)]
    if is_array(logical):
        payload = _arrays(array, logical)
    elif is_json(logical):
        payload = _json_texts(array, logical)
    else:
        payload = array.cast(pa.string()) if logical.name is TypeName.DECIMAL else array
    payload = payload.cast(_BLOB)
    lengths = np.asarray(pc.fill_null(pc.binary_length(payload), -1)).astype(">i4")
    return [_blocks(lengths), pc.fill_null(payload, b"")]


def _fixed(array: pa.Array, logical: LogicalType) -> pa.Array:
    kind = np.dtype(scalar_of(logical).binary)
    match logical.name:
        case TypeName.BOOLEAN:
            values = pc.fill_null(array, False)
        case TypeName.DATE:
            values = _shifted(array.cast(pa.int32()).cast(pa.int64()), _EPOCH_DAYS)
        case TypeName.TIMESTAMP | TypeName.TIMESTAMP_LTZ:
            values = _shifted(array.cast(pa.int64()), _EPOCH_MICROSECONDS)
        case _:
            values = pc.fill_null(array, 0)
    rows = np.zeros(len(array), np.dtype([("length", ">i4"), ("value", kind)]))
    rows["length"], rows["value"] = kind.itemsize, values.to_numpy(zero_copy_only=False)
    return pc.if_else(array.is_null(), pa.scalar(_NULL, _BLOB), _blocks(rows)) if array.null_count else _blocks(rows)


def _shifted(numbers: pa.Array, by: int) -> pa.Array:
    try:
        return pc.subtract_checked(pc.fill_null(numbers, 0), by)
    except pa.ArrowInvalid:
        raise OverflowError("a moment lies outside of what 64 bits count from the year 2000") from None


def _blocks(rows: np.ndarray) -> pa.Array:
    """Items, or rows of items, all of one length, as a binary array of their bytes."""
    width = rows.itemsize * int(np.prod(rows.shape[1:]))
    offsets = pa.py_buffer(np.arange(len(rows) + 1, dtype=np.int64) * width)
    return pa.Array.from_buffers(_BLOB, len(rows), [None, offsets, pa.py_buffer(np.ascontiguousarray(rows))])


def _arrays(array: pa.Array, logical: LogicalType) -> pa.Array:
    """One-dimensional arrays: a head, then the cells of their elements."""
    element = element_of(logical)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    cells = _joined(*_cells(pc.list_flatten(array), element))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    bodies = pc.binary_join(pa.LargeListArray.from_arrays(offsets, cells), pa.scalar(b"", _BLOB))
    oid = scalar_of(element).oid
    heads = np.tile(np.array([1, 1, oid, 0, 1], ">i4"), (len(array), 1))
    heads[:, 3] = lengths
    empty = pa.scalar(np.array([0, 0, oid], ">i4").tobytes(), _BLOB)
    joined = _joined(pc.if_else(pa.array(lengths == 0), empty, _blocks(heads)), bodies)
    return pc.if_else(array.is_null(), pa.scalar(None, _BLOB), joined)


def _json_texts(array: pa.Array, logical: LogicalType) -> pa.Array:
    """JSON of nested values, by the rules of format ``json``; a value without a JSON form raises ValueError."""
    refusals: dict[int, str] = {}
    texts = json_values(array, logical, JSON, refusals)
    if refusals:
        raise ValueError(next(iter(refusals.values())))
    return texts


def given_rows(rows: pa.RecordBatch, types: Mapping[str, LogicalType]) -> str:
    """SQL of a table ``s`` of rows that the statement has in itself: some of their columns, as staged rows have them.

    Args:
        types: of the columns that are given.
    """
    names = [f"c{place}" for place in range(len(types))]
    cells = zip(*(_plain_values(rows.column(name), logical) for name, logical in types.items()), strict=True)
    given = orjson.dumps([dict(zip(names, row, strict=True)) for row in cells]).decode()
    return f"json_to_recordset({literal(given)}::json) AS s({staged_columns(types.values())})"


def _plain_values(array: pa.Array, logical: LogicalType) -> list[Any]:
    """Values as texts that the types' input functions take; arrays of texts as lists."""
    if is_array(logical):
        return array.to_pylist()
    if is_json(logical):
        return _json_texts(array, logical).to_pylist()
    if logical.name in BYTES:
        return [None if value is None else f"\\x{value.hex()}" for value in array.to_pylist()]
    clock = array.cast(pa.time64("us")) if logical.name is TypeName.TIME else array
    return clock.cast(pa.string()).to_pylist()


def query_rows(
    connection: psycopg.Connection[Any], expressions: Mapping[str, str], source: str, types: Mapping[str, LogicalType]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query in declared types, some megabytes at a time.

    Args:
        expressions: column to its SQL.
        source: what follows the columns: ``FROM ...``.
    """
    texts = ", ".join(text_of(expression, types[name]) for name, expression in expressions.items())
    chosen, block = {name: types[name] for name in expressions}, bytearray()
    with connection.cursor().copy(f"COPY (SELECT {texts} {source}) TO STDOUT (FORMAT csv)") as rows:
        for row in rows:
            block += row
            if len(block) >= _BLOCK:
                yield _batch(block, chosen)
                block = bytearray()
    if block:
        yield _batch(block, chosen)


def _batch(text: bytearray, types: Mapping[str, LogicalType]) -> pa.RecordBatch:
    table = read_texts(
        text,
        len(types),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    pairs = zip(table.columns, types.values(), strict=True)
    return pa.RecordBatch.from_arrays([values_of(item.combine_chunks(), logical) for item, logical in pairs], [*types])


def values_of(texts: pa.Array, logical: LogicalType) -> pa.Array:
    """Return the values of texts that `text_of` made."""
    wanted = arrow_type(logical)
    if is_array(logical):
        document = f"[{','.join(text or 'null' for text in texts.to_pylist())}]"
        lists = pa.array(orjson.loads(document), pa.list_(pa.string()))
        values = values_of(pc.list_flatten(lists), element_of(logical))
        return pa.ListArray.from_arrays(
            _offsets(pc.list_value_length(lists)), values, type=wanted, mask=texts.is_null()
        )
    if is_json(logical):
        return _nested(texts, logical)
    if logical.name in BYTES:
        joined = pa.py_buffer(bytes.fromhex("".join(texts.drop_null().to_pylist())))
        ends = _offsets(pc.divide(pc.binary_length(texts), 2)).buffers()[1]
        values = pa.Array.from_buffers(pa.binary(), len(texts), [None, ends, joined])
        return pc.if_else(texts.is_null(), pa.scalar(None, pa.binary()), values)
    match logical.name:
        case TypeName.DATE:
            return texts.cast(pa.int32()).cast(wanted)
        case TypeName.TIMESTAMP | TypeName.TIMESTAMP_LTZ:
            return texts.cast(pa.int64()).cast(wanted)
    return texts.cast(wanted)


def _offsets(lengths: pa.Array) -> pa.Array:
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(pc.fill_null(lengths, 0).cast(pa.int32()))])


def _nested(texts: pa.Array, logical: LogicalType) -> pa.Array:
    wrapped = pc.binary_join_element_wise('{"v":', pc.fill_null(texts, "null"), "}", "")
    decoded = JsonDecoder([("v", logical)], JSON).decode(wrapped.cast(pa.binary()).to_pylist())
    if decoded.errors:
        place, reason = next(iter(decoded.errors.items()))
        raise DestinationError(
            f"a value of type {logical} cannot be read back: {reason}; it was written by somebody else, row {place} of"
            " the block that was read"
        )
    return decoded.rows.column(0)
