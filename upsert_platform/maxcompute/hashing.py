"""Buckets of keys for whole columns: the hash of the upsert tunnel, computed as the Java SDK does.

PyODPS computes another hash than the Java SDK for DECIMAL of scale 0 or of more than 18 digits and for a TIMESTAMP
before 1970 with a fraction, so its rows land in the wrong bucket. For BINARY nobody but the service knows which of the
two is right, and TIMESTAMP_NTZ has none in PyODPS: tables with keys of these types are refused for the tunnel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.maxcompute.types import MaxComputeType

DEFAULT_HASHER: Final = "default"
LEGACY_HASHER: Final = "legacy"
_TRUE, _FALSE = 388737479, -978963218
_NANOS = 1_000_000_000
_SECONDS_OF_DAY = 86_400


def buckets_of(
    columns: Sequence[pa.Array], kinds: Sequence[MaxComputeType], buckets: int, *, hasher: str = DEFAULT_HASHER
) -> np.ndarray:
    """The bucket of each row, from 0.

    Args:
        columns: key columns in their wire types, in the order of the session's hash key.
        kinds: their types in the table.
        hasher: of the session: ``default`` or ``legacy``.

    Raises:
        ValueError: a type or the hasher is not known.
    """
    if hasher not in (DEFAULT_HASHER, LEGACY_HASHER):
        raise ValueError(f"hasher '{hasher}' is not known; known are {DEFAULT_HASHER} and {LEGACY_HASHER}")
    total = np.zeros(len(columns[0]), dtype=np.uint32)
    for values, kind in zip(columns, kinds, strict=True):
        hashes = hash_column(values, kind, legacy=hasher == LEGACY_HASHER).view(np.uint32)
        hashes[np.asarray(pc.is_null(values))] = 0
        total += hashes
    signed = total.view(np.int32)
    mixed = signed ^ (signed >> 8)
    return np.mod(mixed.astype(np.int64), buckets).astype(np.int32)


def hash_column(values: pa.Array, kind: MaxComputeType, *, legacy: bool = False) -> np.ndarray:
    """The hash (int32) of each value; of nulls anything.

    Raises:
        ValueError: values of this type have no hash.
    """
    match kind.root:
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            return _hash_longs(_longs(values.cast(pa.int64())), legacy=legacy)
        case "DATETIME":
            return _hash_longs(_longs(values.cast(pa.int64())), legacy=legacy)
        case "DATE":
            days = values.cast(pa.int32()).cast(pa.int64())
            return _hash_longs(_longs(days) * _SECONDS_OF_DAY, legacy=legacy)
        case "TIMESTAMP":
            nanos = _longs(values.cast(pa.int64()))
            seconds = np.floor_divide(nanos, _NANOS)
            return _hash_longs((seconds << 30) | (nanos - seconds * _NANOS), legacy=legacy)
        case "FLOAT":
            bits = np.asarray(pc.fill_null(values, 0.0)).astype(np.float32).view(np.int32)
            return _hash_longs(bits.astype(np.int64), legacy=legacy)
        case "DOUBLE":
            return _hash_longs(np.asarray(pc.fill_null(values, 0.0)).view(np.int64), legacy=legacy)
        case "BOOLEAN":
            truth = np.asarray(pc.fill_null(values, False))
            return np.where(truth, _TRUE, _FALSE).astype(np.int32)
        case "CHAR" | "VARCHAR" | "STRING":
            return _hash_texts(values.cast(pa.binary()), legacy=legacy)
        case "DECIMAL":
            return _hash_decimals(values, kind, legacy=legacy)
    raise ValueError(f"keys of type {kind} cannot be written through the upsert tunnel")


def _longs(values: pa.Array) -> np.ndarray:
    return np.array(pc.fill_null(values, 0), dtype=np.int64)


def _hash_longs(values: np.ndarray, *, legacy: bool) -> np.ndarray:
    with np.errstate(over="ignore"):
        if legacy:
            return ((values >> 32) ^ values).astype(np.int32)
        mixed = ~values + (values << 18)
        mixed = mixed ^ (mixed >> 31)
        mixed = mixed * np.int64(21)
        mixed = mixed ^ (mixed >> 11)
        mixed = mixed + (mixed << 6)
        mixed = mixed ^ (mixed >> 22)
        return mixed.astype(np.int32)


def _hash_decimals(values: pa.Array, kind: MaxComputeType, *, legacy: bool) -> np.ndarray:
    """The unscaled number as it is up to 18 digits, else its lower and its upper 64 bits added up."""
    filled = values.cast(pa.decimal128(kind.precision, kind.scale))
    data = filled.buffers()[1]
    words = np.frombuffer(data, dtype=np.int64)[2 * filled.offset : 2 * (filled.offset + len(filled))]
    low, high = words[0::2], words[1::2]
    if (kind.precision or 0) <= 18:
        return _hash_longs(low, legacy=legacy)
    with np.errstate(over="ignore"):
        return _hash_longs(low, legacy=legacy) + _hash_longs(high, legacy=legacy)


def _hash_texts(values: pa.Array, *, legacy: bool) -> np.ndarray:
    """One byte of every text at a time: position by position, over the texts that are long enough."""
    count = len(values)
    data, offsets = text_bytes(values)
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    starts, sorted_lengths = offsets[:-1][order], lengths[order]
    found = np.zeros(count, dtype=np.int32)
    signed = data.view(np.int8)
    with np.errstate(over="ignore"):
        for position in range(int(sorted_lengths[0]) if count else 0):
            alive = int(np.searchsorted(-sorted_lengths, -position, side="left"))
            bytes_at = signed[starts[:alive] + position].astype(np.int32)
            part = found[:alive]
            if legacy:
                part[:] = part * np.int32(31) + bytes_at
            else:
                part += bytes_at
                part += part << 10
                part ^= part >> 6
        if not legacy:
            found += found << 3
            found ^= found >> 11
            found += found << 15
    result = np.empty(count, dtype=np.int32)
    result[order] = found
    return result


def text_bytes(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of a binary array and where each value starts and ends in them (count + 1 offsets); nulls are empty."""
    packed = pc.fill_null(values, b"")
    buffers = packed.buffers()
    offsets = np.frombuffer(buffers[1], dtype=np.int32)[packed.offset : packed.offset + len(packed) + 1]
    data = np.frombuffer(buffers[2], dtype=np.uint8) if buffers[2] is not None else np.zeros(0, dtype=np.uint8)
    return data, offsets.astype(np.int64)
