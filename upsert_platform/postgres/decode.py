"""Rows that a query gives, in Arrow: by a COPY of CSV, which Arrow reads in bulk. Runs in Spark workers."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from upsert_platform.errors import DestinationError
from upsert_platform.formats.json.decoder import JsonDecoder
from upsert_platform.postgres.encode import JSON
from upsert_platform.postgres.types import BYTES, is_array, is_json
from upsert_platform.types import LogicalType, TypeName, arrow_type

if TYPE_CHECKING:
    import psycopg

_BLOCK: Final = 16 << 20
"""Bytes of CSV that are read at once; a row that is longer gets a block of its own."""


def query_rows(
    connection: psycopg.Connection[Any], sql: str, names: Sequence[str], types: Sequence[LogicalType]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query in declared types, some megabytes at a time.

    Args:
        sql: gives texts, as `types.text_of` has them, in the order of the columns.
    """
    with connection.cursor().copy(f"COPY ({sql}) TO STDOUT (FORMAT csv)") as rows:
        block, size = [], 0
        for row in rows:
            block.append(bytes(row))
            size += len(block[-1])
            if size >= _BLOCK:
                yield _batch(b"".join(block), names, types)
                block, size = [], 0
        if block:
            yield _batch(b"".join(block), names, types)


def _batch(text: bytes, names: Sequence[str], types: Sequence[LogicalType]) -> pa.RecordBatch:
    plain = [str(place) for place in range(len(types))]
    table = csv.read_csv(
        io.BytesIO(text),
        read_options=csv.ReadOptions(column_names=plain, block_size=len(text) + 1, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(plain, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    columns = [
        values_of(column.combine_chunks(), logical) for column, logical in zip(table.columns, types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, list(names))


def values_of(texts: pa.Array, logical: LogicalType) -> pa.Array:
    """Return the values of texts that `types.text_of` made."""
    wanted = arrow_type(logical)
    if is_array(logical):
        return _lists(texts, logical)
    if is_json(logical):
        return _nested(texts, logical)
    if logical.name in BYTES:
        return _bytes(texts)
    match logical.name:
        case TypeName.DATE:
            return texts.cast(pa.int32()).cast(wanted)
        case TypeName.TIMESTAMP | TypeName.TIMESTAMP_LTZ:
            return texts.cast(pa.int64()).cast(wanted)
    return texts.cast(wanted)


def _bytes(texts: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.divide(pc.binary_length(texts), 2), 0)
    joined = bytes.fromhex("".join(texts.drop_null().to_pylist()))
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths.cast(pa.int64()))])
    values = pa.Array.from_buffers(
        pa.large_binary(), len(texts), [None, offsets.buffers()[1], pa.py_buffer(joined)]
    ).cast(pa.binary())
    return pc.if_else(texts.is_null(), pa.scalar(None, pa.binary()), values)


def _lists(texts: pa.Array, logical: LogicalType) -> pa.Array:
    assert logical.element is not None
    document = f"[{','.join(text or 'null' for text in texts.to_pylist())}]"
    lists = pa.array(orjson.loads(document), pa.list_(pa.string()))
    values = values_of(pc.list_flatten(lists), logical.element)
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    return pa.ListArray.from_arrays(offsets, values, type=arrow_type(logical), mask=texts.is_null())


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
