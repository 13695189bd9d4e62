"""The bucket of a key (spec 3.9), computed as the Java SDK does."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from upsert_platform.local.maxcompute.types import DataType

_MASK32, _MASK64 = (1 << 32) - 1, (1 << 64) - 1
_TRUE, _FALSE = 388737479, -978963218
_NANOS = 1_000_000_000
_ALL_DIGITS = Context(prec=100)  # the one in force rounds to 28


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def hash_long(value: int) -> int:
    """The mix of a 64-bit number, a signed 32-bit one."""
    value = _signed(value, 64)
    value = _signed(~value + (value << 18), 64)
    value ^= value >> 31
    value = _signed(value * 21, 64)
    value ^= value >> 11
    value = _signed(value + (value << 6), 64)
    value ^= value >> 22
    return _signed(value, 32)


def hash_text(value: bytes) -> int:
    """One at a time over signed bytes."""
    found = 0
    for byte in value:
        found = _signed(found + (byte - 256 if byte > 127 else byte), 32)
        found = _signed(found + (found << 10), 32)
        found = _signed(found ^ (found >> 6), 32)
    found = _signed(found + (found << 3), 32)
    found = _signed(found ^ (found >> 11), 32)
    return _signed(found + (found << 15), 32)


def _decimal(value: Decimal | bytes) -> Decimal:
    return Decimal(value.decode()) if isinstance(value, bytes) else value


def _hash_decimal(value: Decimal, precision: int, scale: int) -> int:
    whole = int(value.scaleb(scale, _ALL_DIGITS).to_integral_value(ROUND_HALF_UP, _ALL_DIGITS))
    if precision <= 18:
        return hash_long(whole)
    return hash_long(_signed(whole, 64)) + hash_long(whole >> 64)


def _hash_timestamp(value: int) -> int:
    seconds, nanos = divmod(value, _NANOS)
    return hash_long(seconds << 30 | nanos)


def hash_function(data_type: DataType) -> Callable[[Any], int]:
    """The hash of one key column's values, given as the record codec gives them: numbers for times.

    Raises:
        ValueError: values of the type cannot be part of a key.
    """
    match data_type.name:
        case "tinyint" | "smallint" | "int" | "bigint" | "datetime":
            return hash_long
        case "date":
            return lambda value: hash_long(value * 86400)
        case "boolean":
            return lambda value: _TRUE if value else _FALSE
        case "float":
            return lambda value: hash_long(struct.unpack("<i", struct.pack("<f", value))[0])
        case "double":
            return lambda value: hash_long(struct.unpack("<q", struct.pack("<d", value))[0])
        case "timestamp" | "timestamp_ntz":
            return _hash_timestamp
        case "decimal":
            precision, scale = data_type.arguments
            return lambda value: _hash_decimal(_decimal(value), precision, scale)
        case "string" | "char" | "varchar" | "binary":
            return lambda value: hash_text(value if isinstance(value, bytes) else str(value).encode())
    raise ValueError(f"type {data_type} cannot be hashed")


def bucket_of(hashes: Sequence[int], buckets: int) -> int:
    """The bucket of a key whose columns have these hashes; a null column's hash is 0."""
    total = _signed(sum(hashes), 32)
    return (total ^ (total >> 8)) % buckets


def buckets_of(columns: Sequence[Sequence[Any]], types: Sequence[DataType], buckets: int) -> list[int]:
    """The bucket of each row, from its key columns."""
    functions = [hash_function(data_type) for data_type in types]
    hashed = [
        [0 if value is None else function(value) for value in values]
        for values, function in zip(columns, functions, strict=True)
    ]
    return [bucket_of(row, buckets) for row in zip(*hashed, strict=True)]
