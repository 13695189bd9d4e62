"""Avro's binary encoding written column by column.

Each column becomes a binary array with the bytes of one value per row; a row is the bytes of its columns joined. Values
of a container lie in order in their array, so a list's bytes are a slice of it, and need no copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import BYTES, TEXTS, LogicalType, TypeName
from upsert_platform.formats.avro.schema import key_and_value
from upsert_platform.formats.fragments import Refusals, keep_present, lift_refusals, valid_text
from upsert_platform.formats.java.text import WIDE

_NULL: Final = b"\x00"
_PRESENT: Final = b"\x02"
_WHOLE: Final = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT)


def write_row(arrays: Sequence[pa.Array], row: LogicalType, refusals: Refusals) -> pa.Array:
    """The bytes of records given by columns."""
    parts = [
        write_value(array, item.type, refusals, name=item.name) for array, item in zip(arrays, row.fields, strict=True)
    ]
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")


def write_value(array: pa.Array, logical: LogicalType, refusals: Refusals, *, name: str) -> pa.Array:
    """The bytes of each value; of a nullable type with the branch before it. A null that may not be is refused."""
    if array.null_count == 0:
        written = _bare(array, logical, refusals)
        return pc.binary_join_element_wise(pa.scalar(_PRESENT), written, b"") if logical.nullable else written
    if not logical.nullable:
        for place in pc.indices_nonzero(array.is_null()).to_pylist():
            refusals.setdefault(place, f"column '{name}' is NOT NULL, and null in this row")
    written = _bare(array, logical, refusals)
    if logical.nullable:
        written = pc.binary_join_element_wise(pa.scalar(_PRESENT), written, b"")
    return pc.if_else(array.is_valid(), written, pa.scalar(_NULL))


def _bare(array: pa.Array, logical: LogicalType, refusals: Refusals) -> pa.Array:
    # What stands in the place of a null does not matter here: the caller puts the null's bytes there.
    if logical.name in TEXTS:
        return _sized(valid_text(array).cast(pa.binary()))
    if logical.name in BYTES:
        return _sized(array)
    if logical.name in _WHOLE:
        return varints(_filled(array, pa.int64()))
    match logical.name:
        case TypeName.BOOLEAN:
            return _fixed(_filled(array, pa.uint8()), "u1")
        case TypeName.FLOAT:
            return _fixed(_filled(array, pa.float32()), "<f4")
        case TypeName.DOUBLE:
            return _fixed(_filled(array, pa.float64()), "<f8")
        case TypeName.DECIMAL:
            return _decimals(array)
        case TypeName.DATE:
            return varints(_filled(array.cast(pa.int32()), pa.int64()))
        case TypeName.TIME:
            return varints(_filled(array, pa.int64()) // 1000)
        case TypeName.ARRAY:
            assert logical.element is not None
            return _lists(array, _items(array.values, logical.element, array, refusals))
        case TypeName.MAP | TypeName.MULTISET:
            return _maps(array, logical, refusals)
        case TypeName.ROW:
            inner: Refusals = {}
            written = write_row(array.flatten(), logical, inner)
            keep_present(inner, array, refusals)
            return written
    per_milli = {"us": 1000, "ns": 1_000_000}[array.type.unit]
    return varints(_filled(array.cast(pa.int64()), pa.int64()) // per_milli)


def _filled(array: pa.Array, kind: pa.DataType) -> np.ndarray:
    cast = array.cast(kind)
    return (pc.fill_null(cast, 0) if cast.null_count else cast).to_numpy(zero_copy_only=False)


def varints(values: np.ndarray) -> pa.Array:
    """Zigzag numbers of variable length."""
    zigzag = (values << 1 ^ values >> 63).view(np.uint64)
    sizes = np.ones(len(values), np.int64)
    for bits in range(7, 64, 7):
        sizes += zigzag >= np.uint64(1 << bits)
    longest = int(sizes.max()) if len(values) else 1
    table = np.empty((len(values), longest), np.uint8)
    rest = zigzag.copy()
    for place in range(longest):
        table[:, place] = (rest & np.uint64(0x7F)).astype(np.uint8)
        rest >>= np.uint64(7)
        table[:, place] |= np.where(sizes > place + 1, np.uint8(0x80), np.uint8(0))
    if longest == 1:
        return _binary(table.tobytes(), np.arange(len(values) + 1))
    used = np.arange(longest) < sizes[:, None]
    return _binary(table[used].tobytes(), np.concatenate(([0], np.cumsum(sizes))))


def _binary(content: bytes, offsets: np.ndarray) -> pa.Array:
    ends = pa.py_buffer(offsets.astype(np.int32).tobytes())
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, ends, pa.py_buffer(content)])


def _fixed(values: np.ndarray, code: str) -> pa.Array:
    kind = np.dtype(code)
    return _binary(values.astype(kind).tobytes(), np.arange(len(values) + 1) * kind.itemsize)


def _sized(array: pa.Array) -> pa.Array:
    content = pc.fill_null(array, b"") if array.null_count else array
    return pc.binary_join_element_wise(varints(_filled(pc.binary_length(content), pa.int64())), content, b"")


def _decimals(array: pa.Array) -> pa.Array:
    scale = array.type.scale
    if array.type.precision <= 18:
        unscaled = array.cast(pa.decimal128(38, scale)).view(pa.binary(16))
        low = np.frombuffer(b"".join(value or bytes(16) for value in unscaled.to_pylist()), "<i8")[::2]
        return _sized(_two_complement(low))
    return _sized(pa.array([unscaled_bytes(value, scale) for value in array.to_pylist()], pa.binary()))


def _two_complement(values: np.ndarray) -> pa.Array:
    """The fewest bytes that hold each number, the highest first."""
    magnitude = np.where(values < 0, ~values, values).view(np.uint64)
    sizes = np.ones(len(values), np.int64)
    for bits in range(7, 63, 8):
        sizes += magnitude >= np.uint64(1 << bits)
    table = values.astype(">i8").view(np.uint8).reshape(-1, 8)
    used = np.arange(8) >= 8 - sizes[:, None]
    return _binary(table[used].tobytes(), np.concatenate(([0], np.cumsum(sizes))))


def unscaled_bytes(value: Decimal | None, scale: int) -> bytes | None:
    """The fewest bytes of a decimal's unscaled number in two's complement."""
    if value is None:
        return None
    number = int(value.scaleb(scale, context=WIDE))
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _items(values: pa.Array, element: LogicalType, parent: pa.Array, refusals: Refusals) -> pa.Array:
    inner: Refusals = {}
    written = write_value(values, element, inner, name="(element)")
    lift_refusals(inner, parent.offsets.to_pylist(), refusals)
    return written


def _maps(array: pa.Array, logical: LogicalType, refusals: Refusals) -> pa.Array:
    key, value = key_and_value(logical)
    names = _bare(array.keys, key, refusals)
    items = _items(array.items, value, array, refusals)
    return _lists(array, pc.binary_join_element_wise(names, items, b""))


def _lists(array: pa.Array, items: pa.Array) -> pa.Array:
    """One block of items, then the end; nothing but the end for an empty list."""
    ends = np.frombuffer(items.buffers()[1], np.int32)[items.offset : items.offset + len(items) + 1]
    bounds = ends[array.offsets.to_numpy()] if len(ends) else np.zeros(len(array) + 1, np.int32)
    data = items.buffers()[2] or pa.py_buffer(b"")
    content = pa.Array.from_buffers(
        pa.binary(), len(array), [None, pa.py_buffer(bounds.astype(np.int32).tobytes()), data]
    )
    counts = np.diff(array.offsets.to_numpy().astype(np.int64))
    block = pc.binary_join_element_wise(varints(counts), content, pa.scalar(_NULL), b"")
    return pc.if_else(pa.array(counts > 0), block, pa.scalar(_NULL))
