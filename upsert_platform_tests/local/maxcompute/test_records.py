"""The record codec against PyODPS' own reader and writer, and against bodies that are not whole (spec 3.8)."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odps.models import Record
from odps.tunnel.io.reader import TunnelRecordReader
from odps.tunnel.io.stream import SimpleInputStream
from odps.tunnel.io.writer import BaseRecordWriter
from odps.types import Column, OdpsSchema

from upsert_platform.local.maxcompute.errors import ServiceError
from upsert_platform.local.maxcompute.types import parse_type
from upsert_platform.local.maxcompute.wire.arrow_stream import decode_arrow, encode_arrow
from upsert_platform.local.maxcompute.wire.records import Field, decode_records, encode_records, to_arrow

TYPES = {
    "bigint": st.integers(-(2**63) + 1, 2**63 - 1),
    "tinyint": st.integers(-128, 127),
    "double": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "string": st.text(max_size=8),
    "binary": st.binary(max_size=8),
    "decimal(20,4)": st.decimals(-(10**15), 10**15, places=4, allow_nan=False),
    "array<bigint>": st.lists(st.none() | st.integers(-(2**40), 2**40), max_size=3),
    "map<string,bigint>": st.dictionaries(st.text(max_size=3), st.none() | st.integers(0, 9), max_size=3),
}
FIELDS = [Field(f"c{index}", parse_type(text)) for index, text in enumerate(TYPES)]
SCHEMA = OdpsSchema([Column(f"c{index}", text) for index, text in enumerate(TYPES)])
ROWS = st.lists(st.tuples(*(st.none() | strategy for strategy in TYPES.values())), max_size=5)


def written(rows: list[tuple[Any, ...]]) -> bytes:
    """A body as PyODPS writes it."""
    body = io.BytesIO()
    writer = BaseRecordWriter(SCHEMA, body)
    for row in rows:
        writer.write(Record(schema=SCHEMA, values=list(row)))
    writer.close()
    return body.getvalue()


def table_of(body: bytes) -> pa.Table:
    values, _ = decode_records(body, FIELDS)
    arrays = [to_arrow(column, field.type) for column, field in zip(values, FIELDS, strict=True)]
    return pa.Table.from_arrays(arrays, names=[field.name for field in FIELDS])


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_what_the_client_writes_is_read_and_what_is_written_the_client_reads(rows: list[tuple[Any, ...]]) -> None:
    table = table_of(written(rows))
    assert table.num_rows == len(rows)
    stream = io.BytesIO(b"".join(encode_records(table, FIELDS)))
    reader = TunnelRecordReader(SCHEMA, lambda cursor, **_: SimpleInputStream(stream))
    assert [tuple(record.values) for record in reader] == rows


def body_of(count: int) -> bytes:
    row = (1, 2, 1.5, True, "text", b"x", Decimal("1.5000"), [1, None], {"a": None})
    return written([row] * count)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(body_of(2)[:-1], "ends", id="cut-short"),
        pytest.param(body_of(1) + body_of(1), "after the footer", id="two-footers"),
        pytest.param(body_of(1).replace(b"text", b"tExt"), "checksum of record 0", id="changed-value"),
        pytest.param(b"", "ends", id="empty"),
    ],
)
def test_bodies_that_are_not_whole_are_refused(body: bytes, reason: str) -> None:
    with pytest.raises(ServiceError, match=reason):
        decode_records(body, FIELDS)


@pytest.mark.parametrize("rows", [0, 1, 5000, 70_000], ids="{}-rows".format)
def test_arrow_frames(rows: int) -> None:
    fields = [Field("a", parse_type("bigint")), Field("b", parse_type("string"))]
    table = pa.table(
        {"a": list(range(rows)), "b": [str(n) for n in range(rows)]},
        schema=pa.schema([("a", pa.int64()), ("b", pa.string())]),
    )
    body = b"".join(encode_arrow(table, fields, pairs=False))
    assert decode_arrow(body, fields).combine_chunks() == table.combine_chunks()
    damaged = bytearray(body)
    damaged[-1] ^= 1
    with pytest.raises(ServiceError, match="checksum"):
        decode_arrow(bytes(damaged), fields)


def test_arrow_timestamps_before_1970_as_pairs() -> None:
    fields = [Field("t", parse_type("timestamp"))]
    table = pa.table({"t": pa.array([-1, 0, None, -1_000_000_001], pa.timestamp("ns"))})
    body = b"".join(encode_arrow(table, fields, pairs=True))
    schema = pa.schema([("t", pa.struct([("sec", pa.int64()), ("nano", pa.int32())]))])
    message = pa.ipc.read_message(pa.BufferReader(body[4:-4]))
    assert pa.ipc.read_record_batch(message, schema).to_pydict()["t"] == [
        {"sec": -1, "nano": 999_999_999},
        {"sec": 0, "nano": 0},
        None,
        {"sec": -2, "nano": 999_999_999},
    ]
