"""The record stream of the upsert tunnel, column by column: protobuf-like fields, a CRC32C per record, a footer.

A batch is laid out at once: every column says how many bytes each of its values takes, then writes them to their places
in one buffer. Nested values are encoded one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastcrc.crc32 import iscsi as crc32c

from upsert_platform.maxcompute.hashing import text_bytes
from upsert_platform.maxcompute.types import MaxComputeType, wire_type

END_OF_RECORD: Final = 33_553_408
COUNT: Final = 33_554_430
CHECKSUM: Final = 33_554_431
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_NANOS = 1_000_000_000
_OPERATION_PLACE, _VALUES_PLACE = 3, 5
_PUT: Final = 85


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Encoded records, one behind the other, without a footer.

    Attributes:
        data: the records.
        ends: where each record ends in `data`.
        checksums: of each record (uint32).
    """

    data: np.ndarray
    ends: np.ndarray
    checksums: np.ndarray

    def part(self, start: int, stop: int) -> tuple[bytes, bytes]:
        """Records from `start` up to `stop`: their bytes, and their checksums as the footer sums them."""
        first = int(self.ends[start - 1]) if start else 0
        last = int(self.ends[stop - 1]) if stop else 0
        return self.data[first:last].tobytes(), self.checksums[start:stop].astype("<u4").tobytes()


def footer(count: int, checksums: bytes) -> bytes:
    """Return the end of a body.

    Args:
        checksums: of all records, 4 bytes each, in order.
    """
    number = varint(_tag(COUNT, _VARINT)) + varint(count << 1)
    return number + varint(_tag(CHECKSUM, _VARINT)) + varint(crc32c(checksums))


def encode_records(
    columns: Sequence[pa.Array],
    kinds: Sequence[MaxComputeType],
    operations: pa.Array,
    *,
    value_columns: Sequence[int] = (),
) -> RecordBlock:
    """Encodes rows of all data columns of a table.

    Args:
        columns: in the table's order, of `upsert_platform.maxcompute.types.wire_type`.
        operations: int8, 85 or 68.
        value_columns: ids of the columns that a row of operation 85 sets; all if empty.
    """
    rows = len(operations)
    fields = [_field(index + 1, values, kind) for index, (values, kind) in enumerate(zip(columns, kinds, strict=True))]
    fields.append(_field(len(columns) + _OPERATION_PLACE, operations, MaxComputeType("TINYINT")))
    fields.append(_value_columns(len(columns) + _VALUES_PLACE, operations, value_columns))
    checksums = _checksums(fields, rows)
    end_tag = varint(_tag(END_OF_RECORD, _VARINT))
    crc = _Ragged.varints(checksums.astype(np.uint64))
    lengths = sum((piece.wire.lengths + len(piece.tag) * piece.present for piece in fields), np.zeros(rows, np.int64))
    ends = np.cumsum(lengths + len(end_tag) + crc.lengths)
    data = np.empty(int(ends[-1]) if rows else 0, dtype=np.uint8)
    position = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    for piece in fields:
        position = _put_constant(data, position, piece.tag, piece.present)
        position = piece.wire.put(data, position)
    position = _put_constant(data, position, end_tag, np.ones(rows, dtype=bool))
    crc.put(data, position)
    return RecordBlock(data, ends, checksums)


def varint(value: int) -> bytes:
    """An unsigned number, seven bits a byte."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    """A signed number."""
    return varint((value << 1) ^ (value >> 63) if value >= 0 else ((-value) << 1) - 1)


def _tag(number: int, wire: int) -> int:
    return number << 3 | wire


@dataclass(slots=True)
class _Ragged:
    """Bytes of different length per row: row i has data[starts[i] : starts[i] + lengths[i]]."""

    data: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    @staticmethod
    def fixed(values: np.ndarray, present: np.ndarray) -> _Ragged:
        """The memory of numbers, little-endian."""
        width = values.dtype.itemsize
        starts = np.arange(len(values), dtype=np.int64) * width
        return _Ragged(
            np.ascontiguousarray(values).view(np.uint8), starts, np.where(present, width, 0).astype(np.int64)
        )

    @staticmethod
    def varints(values: np.ndarray, present: np.ndarray | None = None) -> _Ragged:
        """Unsigned 64-bit numbers as varints."""
        rows = len(values)
        lengths = np.ones(rows, dtype=np.int64)
        for bits in range(7, 64, 7):
            lengths += values >= np.uint64(1 << bits)
        room = np.empty((rows, 10), dtype=np.uint8)
        rest = values.copy()
        for place in range(10):
            more = lengths > place + 1
            room[:, place] = (rest & np.uint64(0x7F)).astype(np.uint8) | np.where(more, 0x80, 0).astype(np.uint8)
            rest >>= np.uint64(7)
        if present is not None:
            lengths = np.where(present, lengths, 0)
        return _Ragged(room.reshape(-1), np.arange(rows, dtype=np.int64) * 10, lengths)

    @staticmethod
    def of_list(values: list[bytes]) -> _Ragged:
        """Bytes that were encoded one by one."""
        lengths = np.array([len(value) for value in values], dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64) if values else lengths
        return _Ragged(np.frombuffer(b"".join(values), dtype=np.uint8), starts, lengths)

    def put(self, target: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Copies each row's bytes to its position, and gives the positions behind them."""
        total = int(self.lengths.sum())
        if total:
            before = np.cumsum(self.lengths) - self.lengths
            within = np.arange(total, dtype=np.int64) - np.repeat(before, self.lengths)
            target[np.repeat(position, self.lengths) + within] = self.data[
                np.repeat(self.starts, self.lengths) + within
            ]
        return position + self.lengths


@dataclass(slots=True)
class _Field:
    """A column on the wire.

    Attributes:
        wire: parts that follow each other behind the tag.
        checked: what the record's checksum reads of the value, besides the field's number.
        present: not null.
    """

    number: int
    tag: bytes
    wire: _Ragged
    checked: _Ragged
    present: np.ndarray


def _checksums(fields: list[_Field], rows: int) -> np.ndarray:
    lengths = sum((field.checked.lengths + 4 * field.present for field in fields), np.zeros(rows, np.int64))
    ends = np.cumsum(lengths)
    starts = ends - lengths
    buffer = np.empty(int(ends[-1]) if rows else 0, dtype=np.uint8)
    position = starts.copy()
    for field in fields:
        position = _put_constant(buffer, position, field.number.to_bytes(4, "little"), field.present)
        position = field.checked.put(buffer, position)
    data = buffer.tobytes()
    bounds = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.fromiter((crc32c(data[start:end]) for start, end in bounds), dtype=np.uint32, count=rows)


def _put_constant(target: np.ndarray, position: np.ndarray, value: bytes, present: np.ndarray) -> np.ndarray:
    places = position[present]
    for offset, byte in enumerate(value):
        target[places + offset] = byte
    return position + len(value) * present


def _field(number: int, values: pa.Array, kind: MaxComputeType) -> _Field:
    present = np.asarray(pc.is_valid(values))
    match kind.root:
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT" | "DATETIME":
            return _longs(number, np.array(pc.fill_null(values.cast(pa.int64()), 0)), present)
        case "DATE":
            days = values.cast(pa.int32()).cast(pa.int64())
            return _longs(number, np.array(pc.fill_null(days, 0)), present)
        case "BOOLEAN":
            truth = np.array(pc.fill_null(values, False)).astype(np.uint8)
            wire = _Ragged.fixed(truth, present)
            return _Field(number, varint(_tag(number, _VARINT)), wire, wire, present)
        case "FLOAT":
            wire = _Ragged.fixed(np.array(pc.fill_null(values, 0.0)).astype("<f4"), present)
            return _Field(number, varint(_tag(number, _FIXED32)), wire, wire, present)
        case "DOUBLE":
            wire = _Ragged.fixed(np.array(pc.fill_null(values, 0.0)).astype("<f8"), present)
            return _Field(number, varint(_tag(number, _FIXED64)), wire, wire, present)
        case "STRING" | "VARCHAR" | "CHAR" | "BINARY" | "JSON":
            return _texts(number, values.cast(pa.binary()), present)
        case "DECIMAL":
            return _texts(number, _decimal_texts(values).cast(pa.binary()), present)
        case "TIMESTAMP" | "TIMESTAMP_NTZ":
            return _moments(number, values, present)
    encoded = [(b"", b"") if value is None else _nested(value, kind) for value in _numeric(values, kind)]
    wire, checked = _Ragged.of_list([pair[0] for pair in encoded]), _Ragged.of_list([pair[1] for pair in encoded])
    return _Field(number, varint(_tag(number, _DELIMITED)), wire, checked, present)


def _longs(number: int, values: np.ndarray, present: np.ndarray) -> _Field:
    folded = ((values << 1) ^ (values >> 63)).view(np.uint64)
    checked = _Ragged.fixed(values.astype("<i8"), present)
    return _Field(number, varint(_tag(number, _VARINT)), _Ragged.varints(folded, present), checked, present)


def _texts(number: int, values: pa.Array, present: np.ndarray) -> _Field:
    data, offsets = text_bytes(values)
    lengths = np.diff(offsets)
    checked = _Ragged(data, offsets[:-1], lengths)
    sizes = _Ragged.varints(lengths.astype(np.uint64), present)
    return _Field(number, varint(_tag(number, _DELIMITED)), _joined(sizes, checked), checked, present)


def _moments(number: int, values: pa.Array, present: np.ndarray) -> _Field:
    nanos = np.array(pc.fill_null(values.cast(pa.timestamp("ns")).cast(pa.int64()), 0))
    seconds = np.floor_divide(nanos, _NANOS)
    rest = (nanos - seconds * _NANOS).astype(np.int64)
    first = _Ragged.varints(((seconds << 1) ^ (seconds >> 63)).view(np.uint64), present)
    second = _Ragged.varints((rest << 1).view(np.uint64), present)
    checked = _joined(_Ragged.fixed(seconds.astype("<i8"), present), _Ragged.fixed(rest.astype("<i4"), present))
    return _Field(number, varint(_tag(number, _DELIMITED)), _joined(first, second), checked, present)


def _value_columns(number: int, operations: pa.Array, ids: Sequence[int]) -> _Field:
    """`__value_cols`: the list of ids in rows that put, a list without elements in those that delete."""
    puts = np.asarray(pc.equal(operations, _PUT))
    some, none = _elements(list(ids), MaxComputeType("BIGINT")), _elements([], MaxComputeType("BIGINT"))
    wire, checked = (_either(puts, first, second) for first, second in zip(some, none, strict=True))
    return _Field(number, varint(_tag(number, _DELIMITED)), wire, checked, np.ones(len(puts), dtype=bool))


def _either(choice: np.ndarray, first: bytes, second: bytes) -> _Ragged:
    """One of two values in every row."""
    lengths = np.where(choice, len(first), len(second)).astype(np.int64)
    starts = np.where(choice, 0, len(first)).astype(np.int64)
    return _Ragged(np.frombuffer(first + second, dtype=np.uint8), starts, lengths)


def _joined(first: _Ragged, second: _Ragged) -> _Ragged:
    lengths = first.lengths + second.lengths
    ends = np.cumsum(lengths)
    starts = ends - lengths
    data = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    second.put(data, first.put(data, starts))
    return _Ragged(data, starts, lengths)


def _decimal_texts(values: pa.Array) -> pa.Array:
    """Decimals as digits; Arrow writes very small ones with an exponent."""
    texts = values.cast(pa.string())
    if pc.any(pc.match_substring(texts, "E")).as_py():
        return pa.array([None if value is None else format(value, "f") for value in values.to_pylist()], pa.string())
    return texts


def _numeric(values: pa.Array, kind: MaxComputeType) -> list[Any]:
    """Nested values as Python has them, with numbers in place of times."""
    return values.cast(_without_times(kind)).to_pylist()


def _without_times(kind: MaxComputeType) -> pa.DataType:

    match kind.root:
        case "ARRAY":
            return pa.list_(_without_times(kind.children[0]))
        case "MAP":
            return pa.map_(_without_times(kind.children[0]), _without_times(kind.children[1]))
        case "STRUCT":
            fields = zip(kind.names, kind.children, strict=True)
            return pa.struct([pa.field(name, _without_times(child)) for name, child in fields])
        case "DATE":
            return pa.int32()
        case "DATETIME" | "TIMESTAMP" | "TIMESTAMP_NTZ":
            return pa.int64()
    return wire_type(kind)


def _nested(value: Any, kind: MaxComputeType) -> tuple[bytes, bytes]:
    """Wire bytes and checked bytes of one value, at any depth."""
    match kind.root:
        case "ARRAY":
            return _elements(list(value), kind.children[0])
        case "MAP":
            keys = _elements([pair[0] for pair in value], kind.children[0])
            items = _elements([pair[1] for pair in value], kind.children[1])
            return keys[0] + items[0], keys[1] + items[1]
        case "STRUCT":
            pairs = [_optional(value[name], child) for name, child in zip(kind.names, kind.children, strict=True)]
            return b"".join(pair[0] for pair in pairs), b"".join(pair[1] for pair in pairs)
    field = _field(1, pa.array([value], _without_times(kind)).cast(_wire(kind)), kind)
    return field.wire.data[: field.wire.lengths[0]].tobytes(), field.checked.data[: field.checked.lengths[0]].tobytes()


def _wire(kind: MaxComputeType) -> pa.DataType:

    return wire_type(kind)


def _elements(values: list[Any], kind: MaxComputeType) -> tuple[bytes, bytes]:
    pairs = [_optional(value, kind) for value in values]
    return varint(len(values)) + b"".join(pair[0] for pair in pairs), b"".join(pair[1] for pair in pairs)


def _optional(value: Any, kind: MaxComputeType) -> tuple[bytes, bytes]:
    if value is None:
        return b"\x01", b""
    wire, checked = _nested(value, kind)
    return b"\x00" + wire, checked
