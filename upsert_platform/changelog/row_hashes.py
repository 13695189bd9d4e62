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
        shifted = values >> np.uint64(30)
        mixed = values ^ shifted  # from here on in place: new arrays cost as much as what is done to them
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= np.right_shift(mixed, np.uint64(27), out=shifted)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed ^= np.right_shift(mixed, np.uint64(31), out=shifted)
        return mixed


def _hash_bytes(array: pa.Array) -> np.ndarray:
    array = array.cast(pa.large_binary()) if array.type != pa.large_binary() else array
    count = len(array)
    if not count:
        return np.empty(0, np.uint64)
    _, offsets_buffer, data = array.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[array.offset : array.offset + count + 1]
    starts, lengths = offsets[:-1] - offsets[:1], np.diff(offsets)
    padded = _padded(data, int(offsets[0]), int(offsets[-1]))
    words = np.ndarray(shape=(len(padded) - 7,), dtype="<u8", buffer=padded.data, strides=(1,))
    found = mix(lengths.astype(np.uint64) ^ _SEED)
    shortest, longest = int(lengths.min()), int(lengths.max())
    for at in range(0, longest, 8):
        if at + 8 <= shortest:  # every value has the whole word
            found ^= words[starts + at]
            found = mix(found)
            continue
        left = None if at < shortest else np.flatnonzero(lengths > at)
        begins, rest = (starts, lengths) if left is None else (starts[left], lengths[left])
        word = words[begins + at] & _TAIL[np.minimum(rest - at, 8)]
        if left is None:
            found = mix(found ^ word)
        else:
            found[left] = mix(found[left] ^ word)
    return found


def _padded(data: pa.Buffer | None, start: int, end: int) -> np.ndarray:
    """Bytes of a buffer, with eight more behind them; of a slice only its own are copied, if any."""
    if data is not None and end + 8 <= data.size:
        return np.frombuffer(data, np.uint8)[start : end + 8]
    padded = np.zeros(end - start + 8, np.uint8)
    if data is not None and end > start:
        padded[: end - start] = np.frombuffer(data, np.uint8)[start:end]
    return padded


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
    return hash_columns([table.column(name) for name in columns], table.num_rows)


def hash_columns(columns: Sequence[pa.Array | pa.ChunkedArray], rows: int) -> np.ndarray:
    """A hash of 64 bits per row of columns that have as many values."""
    found = np.full(rows, _SEED, dtype=np.uint64)
    for column in columns:
        with np.errstate(over="ignore"):
            found = mix(found * np.uint64(31) + hash_cells(column))
    return found
