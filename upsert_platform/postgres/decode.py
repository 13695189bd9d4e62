"""Rows that a query gives, in Arrow: by a COPY of CSV, which Arrow reads in bulk. Runs in Spark workers."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from upsert_platform.core.errors import DestinationError
from upsert_platform.core.types import LogicalType, TypeName, arrow_type
from upsert_platform.formats.json.decoder import JsonDecoder
from upsert_platform.postgres.encode import JSON
from upsert_platform.postgres.types import BYTES, element_of, is_array, is_json, text_of

if TYPE_CHECKING:
    import psycopg

_BLOCK: Final = 16 << 20
"""Bytes of CSV that are read at once; a row that is longer gets a block of its own."""


def schema_of(types: Mapping[str, LogicalType]) -> pa.Schema:
    """The columns of a table in Arrow."""
    return pa.schema([pa.field(name, arrow_type(logical)) for name, logical in types.items()])


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
    pairs = zip(table.columns, types.values(), strict=True)
    return pa.RecordBatch.from_arrays([values_of(item.combine_chunks(), logical) for item, logical in pairs], [*types])


def values_of(texts: pa.Array, logical: LogicalType) -> pa.Array:
    """Return the values of texts that `types.text_of` made."""
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
