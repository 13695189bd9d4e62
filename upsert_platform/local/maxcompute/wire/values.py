"""Values of a record, one type at a time: their bytes, and the bytes that enter the checksum (spec 3.8)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from upsert_platform.local.maxcompute.types import DataType
from upsert_platform.local.maxcompute.wire.protobuf import (
    DELIMITED,
    FIXED32,
    FIXED64,
    VARINT,
    Reader,
    varint,
    zigzag,
)

INTEGERS = ("tinyint", "smallint", "int", "bigint", "date", "datetime")
TEXTS = ("string", "char", "varchar", "json")
_TIMESTAMPS = ("timestamp", "timestamp_ntz")
_NANOS = 1_000_000_000
Encoder = Callable[[Any], tuple[bytes, bytes]]
Decoder = Callable[[Reader], tuple[Any, bytes]]


def wire_type(data_type: DataType) -> int:
    if data_type.name in INTEGERS or data_type.name == "boolean":
        return VARINT
    return {"float": FIXED32, "double": FIXED64}.get(data_type.name, DELIMITED)


def encoder(data_type: DataType) -> Encoder:
    """A function from a value to its bytes and its checksum bytes.

    Values are plain: whole numbers for dates (days) and datetimes (milliseconds) and timestamps (nanoseconds), bytes
    for everything that is text.
    """
    name = data_type.name
    if name in INTEGERS:
        return lambda value: (zigzag(value), struct.pack("<q", value))
    if name == "boolean":
        return lambda value: (b"\1", b"\1") if value else (b"\0", b"\0")
    if name in ("float", "double"):
        code = "<f" if name == "float" else "<d"
        return lambda value: (struct.pack(code, value),) * 2
    if name in _TIMESTAMPS:
        return _encode_timestamp
    if name == "array":
        return _array_encoder(data_type.children[0])
    if name == "map":
        keys, values = (_array_encoder(child) for child in data_type.children)

        def encode_map(pairs: Any) -> tuple[bytes, bytes]:
            pairs = list(pairs)
            first, second = keys([pair[0] for pair in pairs]), values([pair[1] for pair in pairs])
            return first[0] + second[0], first[1] + second[1]

        return encode_map
    if name == "struct":
        return _struct_encoder(data_type)
    return lambda value: (varint(len(value)) + value, value)


def _encode_timestamp(value: int) -> tuple[bytes, bytes]:
    seconds, nanos = divmod(value, _NANOS)
    return zigzag(seconds) + zigzag(nanos), struct.pack("<qi", seconds, nanos)


def _array_encoder(element: DataType) -> Encoder:
    encode = encoder(element)

    def encode_array(values: Any) -> tuple[bytes, bytes]:
        out, summed = [varint(len(values))], []
        for value in values:
            if value is None:
                out.append(b"\1")
                continue
            encoded, checked = encode(value)
            out.append(b"\0" + encoded)
            summed.append(checked)
        return b"".join(out), b"".join(summed)

    return encode_array


def _struct_encoder(data_type: DataType) -> Encoder:
    members = [(name, encoder(child)) for name, child in zip(data_type.fields, data_type.children, strict=True)]

    def encode_struct(value: Any) -> tuple[bytes, bytes]:
        out, summed = [], []
        for name, encode in members:
            if value[name] is None:
                out.append(b"\1")
                continue
            encoded, checked = encode(value[name])
            out.append(b"\0" + encoded)
            summed.append(checked)
        return b"".join(out), b"".join(summed)

    return encode_struct


def decoder(data_type: DataType) -> Decoder:
    """A function that reads a value, and gives it with its checksum bytes."""
    name = data_type.name
    if name in INTEGERS:

        def read_integer(reader: Reader) -> tuple[int, bytes]:
            value = reader.zigzag()
            return value, struct.pack("<q", value)

        return read_integer
    if name == "boolean":

        def read_boolean(reader: Reader) -> tuple[bool, bytes]:
            value = bool(reader.varint())
            return value, b"\1" if value else b"\0"

        return read_boolean
    if name == "float":
        return lambda reader: _read_fixed(reader, "<f", 4)
    if name == "double":
        return lambda reader: _read_fixed(reader, "<d", 8)
    if name in _TIMESTAMPS:
        return _read_timestamp
    if name == "array":
        return _array_decoder(data_type.children[0])
    if name == "map":
        keys, values = (_array_decoder(child) for child in data_type.children)

        def read_map(reader: Reader) -> tuple[list[tuple[Any, Any]], bytes]:
            first, second = keys(reader), values(reader)
            return list(zip(first[0], second[0], strict=True)), first[1] + second[1]

        return read_map
    if name == "struct":
        return _struct_decoder(data_type)
    if name == "decimal":

        def read_decimal(reader: Reader) -> tuple[Decimal, bytes]:
            text = reader.delimited()
            return Decimal(text.decode().strip()), text

        return read_decimal
    if name == "binary":

        def read_bytes(reader: Reader) -> tuple[bytes, bytes]:
            value = reader.delimited()
            return value, value

        return read_bytes

    def read_text(reader: Reader) -> tuple[str, bytes]:
        raw = reader.delimited()
        return raw.decode(), raw

    return read_text


def _read_fixed(reader: Reader, code: str, size: int) -> tuple[float, bytes]:
    raw = reader.take(size)
    return struct.unpack(code, raw)[0], raw


def _read_timestamp(reader: Reader) -> tuple[int, bytes]:
    seconds, nanos = reader.zigzag(), reader.zigzag()
    return seconds * _NANOS + nanos, struct.pack("<qi", seconds, nanos)


def _array_decoder(element: DataType) -> Decoder:
    decode = decoder(element)

    def read_array(reader: Reader) -> tuple[list[Any], bytes]:
        values: list[Any] = []
        summed: list[bytes] = []
        for _ in range(reader.varint()):
            if reader.varint():
                values.append(None)
                continue
            value, checked = decode(reader)
            values.append(value)
            summed.append(checked)
        return values, b"".join(summed)

    return read_array


def _struct_decoder(data_type: DataType) -> Decoder:
    members = [(name, decoder(child)) for name, child in zip(data_type.fields, data_type.children, strict=True)]

    def read_struct(reader: Reader) -> tuple[dict[str, Any], bytes]:
        found: dict[str, Any] = {}
        summed: list[bytes] = []
        for name, decode in members:
            if reader.varint():
                found[name] = None
                continue
            found[name], checked = decode(reader)
            summed.append(checked)
        return found, b"".join(summed)

    return read_struct
