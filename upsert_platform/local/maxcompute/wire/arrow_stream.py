"""The Arrow body of the tunnel: record batch messages without a schema, cut into chunks with checksums (spec 3.10)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from fastcrc.crc32 import iscsi as crc32c

from upsert_platform.local.maxcompute.errors import ServiceError
from upsert_platform.local.maxcompute.wire.records import Field

CHUNK = 65536
_ROWS_PER_BATCH = 65536
_TIMESTAMP = pa.struct([pa.field("sec", pa.int64()), pa.field("nano", pa.int32())])


def wire_schema(fields: Sequence[Field], *, pairs: bool) -> pa.Schema:
    """The schema that both sides imply.

    Args:
        pairs: timestamps are pairs of seconds and nanoseconds, as the instance tunnel has them.
    """
    return pa.schema(
        [pa.field(field.name, _TIMESTAMP if pairs and _is_timestamp(field) else field.type.arrow) for field in fields]
    )


def _is_timestamp(field: Field) -> bool:
    return field.type.name in ("timestamp", "timestamp_ntz")


def encode_arrow(rows: pa.Table, fields: Sequence[Field], *, pairs: bool) -> Iterator[bytes]:
    """The framed stream of these rows."""
    columns = [
        _to_pairs(rows.column(index)) if pairs and _is_timestamp(field) else rows.column(index).cast(field.type.arrow)
        for index, field in enumerate(fields)
    ]
    table = pa.Table.from_arrays(columns, schema=wire_schema(fields, pairs=pairs))
    yield struct.pack("!I", CHUNK)
    pending = bytearray()
    total = 0
    for batch in table.to_batches(max_chunksize=_ROWS_PER_BATCH):
        pending += batch.serialize()
        whole = len(pending) // CHUNK * CHUNK
        out: list[bytes] = []
        for start in range(0, whole, CHUNK):
            piece = bytes(pending[start : start + CHUNK])
            total = crc32c(piece, total)
            out += (piece, struct.pack("!I", crc32c(piece)))
        del pending[:whole]
        yield b"".join(out)
    last = bytes(pending)
    yield last + struct.pack("!I", crc32c(last, total))


def _to_pairs(values: pa.ChunkedArray) -> pa.ChunkedArray:
    ticks = values.cast(pa.timestamp("ns")).cast(pa.int64())
    billion = pa.scalar(1_000_000_000, pa.int64())
    remainder = pc.subtract(ticks, pc.multiply(pc.divide(ticks, billion), billion))
    negative = pc.if_else(pc.less(remainder, 0), 1, 0).cast(pa.int64())
    seconds = pc.subtract(pc.divide(ticks, billion), negative)
    nanos = pc.subtract(ticks, pc.multiply(seconds, billion)).cast(pa.int32())
    chunks = []
    for second, nano, chunk in zip(_single(seconds).chunks, _single(nanos).chunks, _single(values).chunks, strict=True):
        chunks.append(pa.StructArray.from_arrays([second, nano], fields=list(_TIMESTAMP), mask=pc.is_null(chunk)))
    return pa.chunked_array(chunks, type=_TIMESTAMP)


def _single(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([values.combine_chunks()]) if values.num_chunks != 1 else values


def decode_arrow(body: bytes, fields: Sequence[Field]) -> pa.Table:
    """The rows of a framed stream.

    Raises:
        ServiceError: a checksum is wrong, or the content is not Arrow of these fields.
    """
    content = _unframed(body)
    schema = wire_schema(fields, pairs=False)
    source = pa.BufferReader(content)
    batches = []
    try:
        while source.tell() < len(content):
            message = pa.ipc.read_message(source)
            if message.type == "schema":
                schema = pa.ipc.read_schema(message)
                continue
            batches.append(pa.ipc.read_record_batch(message, schema))
    except EOFError:
        pass
    except pa.ArrowException as error:
        raise ServiceError(400, "InvalidArgument", f"the body is not Arrow of this table: {error}") from error
    return pa.Table.from_batches(batches, schema=schema)


def _unframed(body: bytes) -> bytes:
    if len(body) < 8:
        raise ServiceError(400, "ChecksumError", "the Arrow body is shorter than its frame")
    (size,) = struct.unpack_from("!I", body)
    pieces, position, total = [], 4, 0
    while len(body) - position > size + 4:
        piece = body[position : position + size]
        (declared,) = struct.unpack_from("!I", body, position + size)
        if declared != crc32c(piece):
            raise ServiceError(400, "ChecksumError", "the checksum of a chunk of the Arrow body is wrong")
        total = crc32c(piece, total)
        pieces.append(piece)
        position += size + 4
    last = body[position:-4]
    (declared,) = struct.unpack_from("!I", body, len(body) - 4)
    if declared != crc32c(last, total):
        raise ServiceError(400, "ChecksumError", "the checksum of the Arrow body is wrong")
    return b"".join([*pieces, last])
