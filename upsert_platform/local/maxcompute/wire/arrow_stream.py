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


def wire_schema(fields: Sequence[Field]) -> pa.Schema:
    """The schema that both sides imply: timestamps are pairs of seconds and nanoseconds."""
    return pa.schema([pa.field(field.name, _wire_type(field)) for field in fields])


def _wire_type(field: Field) -> pa.DataType:
    return _TIMESTAMP if field.type.name in ("timestamp", "timestamp_ntz") else field.type.arrow


def encode_arrow(rows: pa.Table, fields: Sequence[Field], *, lz4: bool = False) -> Iterator[bytes]:
    """The framed stream of these rows."""
    columns = [_to_wire(rows.column(index), field) for index, field in enumerate(fields)]
    table = pa.Table.from_arrays(columns, schema=wire_schema(fields))
    options = pa.ipc.IpcWriteOptions(compression="lz4" if lz4 else None)
    yield struct.pack("!I", CHUNK)
    pending = bytearray()
    total = 0
    for batch in table.to_batches(max_chunksize=_ROWS_PER_BATCH):
        pending += _message(batch, options)
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


def _message(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> bytes:
    """One batch as an encapsulated message, without the schema that a stream begins with."""
    if options.compression is None:
        return bytes(batch.serialize())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        head = sink.tell()
        writer.write_batch(batch)
        end = sink.tell()
    return bytes(sink.getvalue()[head:end])


def _to_wire(values: pa.ChunkedArray, field: Field) -> pa.ChunkedArray:
    if field.type.name not in ("timestamp", "timestamp_ntz"):
        return values.cast(field.type.arrow) if values.type != field.type.arrow else values
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
    schema = wire_schema(fields)
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
    while len(body) - position >= size + 4:
        piece = body[position : position + size]
        (declared,) = struct.unpack_from("!I", body, position + size)
        total = crc32c(piece, total)
        pieces.append(piece)
        position += size + 4
        if position == len(body) and declared == total:
            return b"".join(pieces)
        if declared != crc32c(piece):
            raise ServiceError(400, "ChecksumError", "the checksum of a chunk of the Arrow body is wrong")
    last = body[position:-4]
    (declared,) = struct.unpack_from("!I", body, len(body) - 4)
    if declared != crc32c(last, total):
        raise ServiceError(400, "ChecksumError", "the checksum of the Arrow body is wrong")
    return b"".join([*pieces, last])
