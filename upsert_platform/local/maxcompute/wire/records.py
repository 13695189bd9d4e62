"""The record stream of the tunnel: rows as protobuf fields with checksums (spec 3.8)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa
from fastcrc.crc32 import iscsi as crc32c

from upsert_platform.local.maxcompute.errors import ServiceError
from upsert_platform.local.maxcompute.types import DataType
from upsert_platform.local.maxcompute.wire.protobuf import VARINT, Reader, TruncatedError, tag, varint, zigzag
from upsert_platform.local.maxcompute.wire.values import INTEGERS, TEXTS, decoder, encoder, wire_type

END_OF_RECORD = 33553408
METRICS = 33554176
COUNT = 33554430
CHECKSUM = 33554431
_ROWS_PER_PIECE = 4096
_WIDE = Context(prec=80)


@dataclass(frozen=True)
class Field:
    """A column on the wire; its number is its place, counted from 1."""

    name: str
    type: DataType


def plain_values(values: pa.ChunkedArray | pa.Array, data_type: DataType) -> list[Any]:
    """Arrow values as the encoder takes them: numbers for times, bytes for text."""
    match data_type.name:
        case "date":
            return values.cast(pa.int32()).to_pylist()
        case "datetime" | "timestamp" | "timestamp_ntz":
            return values.cast(data_type.arrow).cast(pa.int64()).to_pylist()
        case "decimal":
            return [None if value is None else format(value, "f").encode() for value in values.to_pylist()]
        case "binary":
            return values.to_pylist()
        case "array" | "map" | "struct":
            return [_plain(value, data_type) for value in _nested(values, data_type)]
        case "string" | "char" | "varchar" | "json":
            return values.cast(pa.binary()).to_pylist()
    return values.to_pylist()


def _nested(values: pa.ChunkedArray | pa.Array, data_type: DataType) -> list[Any]:
    return values.cast(numeric_times(data_type)).to_pylist()


def numeric_times(data_type: DataType) -> pa.DataType:
    """The type's Arrow type with numbers in place of times, at every depth."""
    match data_type.name:
        case "array":
            return pa.list_(numeric_times(data_type.children[0]))
        case "map":
            return pa.map_(numeric_times(data_type.children[0]), numeric_times(data_type.children[1]))
        case "struct":
            members = zip(data_type.fields, data_type.children, strict=True)
            return pa.struct([pa.field(name, numeric_times(child)) for name, child in members])
        case "date":
            return pa.int32()
        case "datetime" | "timestamp" | "timestamp_ntz":
            return pa.int64()
    return data_type.arrow


def _plain(value: Any, data_type: DataType) -> Any:
    if value is None:
        return None
    match data_type.name:
        case "array":
            return [_plain(item, data_type.children[0]) for item in value]
        case "map":
            key, item = data_type.children
            return [(_plain(pair[0], key), _plain(pair[1], item)) for pair in value]
        case "struct":
            members = zip(data_type.fields, data_type.children, strict=True)
            return {name: _plain(value[name], child) for name, child in members}
        case "decimal":
            return format(value, "f").encode()
        case "string" | "char" | "varchar" | "json":
            return value.encode()
    return value


def encode_records(rows: pa.Table, fields: Sequence[Field]) -> Iterator[bytes]:
    """The stream of these rows, in pieces; the footer comes last."""
    total = 0
    for start in range(0, rows.num_rows, _ROWS_PER_PIECE):
        piece = rows.slice(start, _ROWS_PER_PIECE)
        columns = [_encoded(piece.column(index), field, index + 1) for index, field in enumerate(fields)]
        out = []
        for record in zip(*columns, strict=True):
            checked = b"".join([value[1] for value in record if value is not None])
            checksum = crc32c(checked) if checked else 0
            total = crc32c(struct.pack("<I", checksum), total)
            out.extend([value[0] for value in record if value is not None])
            out.append(_END_TAG + varint(checksum))
        yield b"".join(out)
    yield tag(COUNT, VARINT) + zigzag(rows.num_rows) + tag(CHECKSUM, VARINT) + varint(total)


_END_TAG = tag(END_OF_RECORD, VARINT)


def _encoded(values: pa.ChunkedArray, field: Field, number: int) -> list[tuple[bytes, bytes] | None]:
    encode = encoder(field.type)
    head = tag(number, wire_type(field.type))
    counted = struct.pack("<i", number)
    found: list[tuple[bytes, bytes] | None] = []
    for value in plain_values(values, field.type):
        if value is None:
            found.append(None)
            continue
        encoded, checked = encode(value)
        found.append((head + encoded, counted + checked))
    return found


def decode_records(body: bytes, fields: Sequence[Field]) -> tuple[list[list[Any]], int]:
    """The values of a stream by column, and how many records there are.

    Values are plain, as `to_arrow` takes them.

    Raises:
        ServiceError: a checksum or the count is wrong, a field is unknown, or the stream ends too early.
    """
    columns: list[list[Any]] = [[] for _ in fields]
    try:
        return columns, _decode(Reader(body), fields, columns)
    except (TruncatedError, UnicodeDecodeError, ArithmeticError) as error:
        raise _corrupt(str(error)) from error


def _decode(reader: Reader, fields: Sequence[Field], columns: list[list[Any]]) -> int:
    """Fills the columns, and counts the records; the loop is written for speed: numbers and texts are read in place."""
    width = len(fields)
    decoders = [decoder(field.type) for field in fields]
    counted = [struct.pack("<i", index + 1) for index in range(width)]
    appends = [column.append for column in columns]
    whole = [field.type.name in INTEGERS for field in fields]
    text = [field.type.name in TEXTS for field in fields]
    pack_long = struct.Struct("<q").pack
    body, size = reader.body, len(reader.body)
    rows = total = 0
    expected = 0
    checked: list[bytes] = []
    while True:
        position = reader.position
        key = body[position] if position < size else 0
        if 0 < key < 128:
            reader.position = position + 1
        else:
            key = reader.varint()
        index = (key >> 3) - 1
        if 0 <= index < width:
            if index < expected:
                raise _corrupt(f"record {rows} has field {index + 1} twice, or its fields are out of order")
            for missing in range(expected, index):
                appends[missing](None)
            expected = index + 1
            if whole[index]:
                value = reader.zigzag()
                appends[index](value)
                checked += (counted[index], pack_long(value))
            elif text[index]:
                raw = reader.delimited()
                appends[index](raw.decode())
                checked += (counted[index], raw)
            else:
                value, summed = decoders[index](reader)
                appends[index](value)
                checked += (counted[index], summed)
        elif index + 1 == END_OF_RECORD:
            checksum = crc32c(b"".join(checked)) if checked else 0
            if _checksum(reader) != checksum:
                raise _corrupt(f"the checksum of record {rows} is wrong")
            total = crc32c(checksum.to_bytes(4, "little"), total)
            for missing in range(expected, width):
                appends[missing](None)
            rows += 1
            expected = 0
            checked.clear()
        elif index + 1 == COUNT:
            _read_footer(reader, rows, total)
            return rows
        else:
            raise _corrupt(f"field {index + 1} is not one of the {width} of this table")


def _checksum(reader: Reader) -> int:
    """A checksum: some clients widen it to 64 bits with its sign."""
    return reader.varint() & 0xFFFFFFFF


def _read_footer(reader: Reader, rows: int, total: int) -> None:
    declared = reader.zigzag()
    if declared != rows:
        raise _corrupt(f"the footer counts {declared} records, the body has {rows}")
    number = reader.varint() >> 3
    if number == METRICS:
        reader.delimited()
        number = reader.varint() >> 3
    if number != CHECKSUM or _checksum(reader) != total:
        raise _corrupt("the checksum of the body is wrong")
    if not reader.done:
        raise _corrupt("there is something after the footer")


def to_arrow(values: list[Any], data_type: DataType) -> pa.Array:
    """Decoded values as an Arrow array of the type.

    Raises:
        ServiceError: DataStoreError, when a value does not fit the type.
    """
    try:
        if data_type.name == "decimal":
            scale = data_type.arguments[1]
            unit = Decimal(1).scaleb(-scale)
            values = [None if value is None else value.quantize(unit, ROUND_HALF_UP, _WIDE) for value in values]
        return pa.array(values, numeric_times(data_type)).cast(data_type.arrow)
    except (pa.ArrowException, OverflowError) as error:
        raise ServiceError(400, "DataStoreError", f"a value does not fit type {data_type}: {error}") from error


def _corrupt(reason: str) -> ServiceError:
    return ServiceError(400, "ChecksumError", f"the record stream is corrupt: {reason}")
