"""Hashes of rows over Arrow columns, in bulk.

They are equal for rows that GROUP BY puts together (null with null, NaN with NaN, -0.0 with 0.0), and the same in every
process and version: the state of queries is placed by them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

_NULL = np.uint64(0x9E3779B97F4A7C15)
_SEED = np.uint64(0x243F6A8885A308D3)
_TAIL = np.array([(1 << (8 * count)) - 1 for count in range(8)] + [(1 << 64) - 1], dtype=np.uint64)


def normal(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array in which equal values are the same bytes; nested values become text."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    kind = array.type
    if pa.types.is_dictionary(kind):
        return normal(array.dictionary_decode())
    if pa.types.is_floating(kind):
        return _normal_float(array)
    if pa.types.is_nested(kind):
        return pa.array([None if item is None else _text(item) for item in array.to_pylist()], pa.string())
    return array


def _normal_float(array: pa.Array) -> pa.Array:
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False) + np.float32(0)
    numbers[np.isnan(numbers)] = np.nan
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(numbers.astype(array.type.to_pandas_dtype()), mask=mask)


def _text(value: object) -> str:
    """A nested value as text; maps (lists of pairs here) compare in any order of their entries."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{name!r}:{_text(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        pairs = [_text(item) for item in value]
        if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
            pairs.sort()
        return "[" + ",".join(pairs) + "]"
    if isinstance(value, tuple):
        return "(" + ",".join(_text(item) for item in value) + ")"
    return repr(value)


def mix(values: np.ndarray) -> np.ndarray:
    """SplitMix64's finisher: every bit of the input moves every bit of the output."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def _hash_bytes(array: pa.Array) -> np.ndarray:
    array = array.cast(pa.large_binary()) if array.type != pa.large_binary() else array
    count = len(array)
    _, offsets_buffer, data = array.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[array.offset : array.offset + count + 1]
    starts, lengths = offsets[:-1] - offsets[:1], np.diff(offsets)
    # Of a slice only its own bytes are copied.
    used = b"" if data is None or not count else data.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()
    padded = np.frombuffer(used + bytes(8), dtype=np.uint8)
    words = np.ndarray(shape=(len(padded) - 7,), dtype="<u8", buffer=padded.data, strides=(1,))
    found = mix(lengths.astype(np.uint64) ^ _SEED)
    left = np.arange(count)
    at = 0
    while True:
        left = left[lengths[left] > at]
        if not len(left):
            return found
        rest = np.minimum(lengths[left] - at, 8)
        found[left] = mix(found[left] ^ (words[starts[left] + at] & _TAIL[rest]))
        at += 8


def hash_cells(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """A hash of 64 bits per value, one and the same for all nulls; no two numbers of a column share one."""
    array = normal(values)
    kind = array.type
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        found = _hash_bytes(array)
    elif pa.types.is_null(kind):
        return np.full(len(array), _NULL, dtype=np.uint64)
    elif pa.types.is_decimal(kind):
        buffer = np.frombuffer(array.buffers()[1], dtype=np.uint64)
        halves = buffer[2 * array.offset : 2 * (array.offset + len(array))].reshape(-1, 2)
        found = mix(mix(halves[:, 0] ^ _SEED) ^ halves[:, 1])
    else:
        if pa.types.is_boolean(kind):
            array = array.cast(pa.int8())
        elif pa.types.is_date32(kind):
            array = array.cast(pa.int32())
        elif pa.types.is_timestamp(kind):
            array = array.cast(pa.int64())
        if array.null_count:
            array = array.fill_null(0)
        numbers = array.to_numpy(zero_copy_only=False)
        wide = numbers.astype(np.float64) if numbers.dtype.kind == "f" else numbers.astype(np.int64)
        found = mix(wide.view(np.uint64) ^ _SEED)
    if nulls is not None:
        found[nulls] = _NULL
    return found


def hash_rows(table: pa.Table, columns: Sequence[str]) -> np.ndarray:
    """A hash of 64 bits per row, equal for rows that are equal in these columns."""
    found = np.full(table.num_rows, _SEED, dtype=np.uint64)
    for name in columns:
        with np.errstate(over="ignore"):
            found = mix(found * np.uint64(31) + hash_cells(table.column(name)))
    return found
