"""PlainBuffer, the row encoding: tags, typed values and CRC-8 checksums per cell and per row.

A row that is stored is its wire form with a version in every cell, so a read without a selection copies bytes.
Cells are handled as tuples that keep their encoded piece; nothing is re-encoded that did not change.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from fastcrc.crc8 import smbus as crc8

from upsert_platform.local.tablestore.errors import ServiceError, invalid

HEADER: Final = b"\x75\x00\x00\x00"
ROW_KEY, ROW_DATA, CELL, CELL_NAME, CELL_VALUE, CELL_OP, CELL_VERSION, DELETE_ROW, ROW_CRC, CELL_CRC = range(1, 11)

INTEGER, DOUBLE, BOOLEAN, STRING, NULL, BLOB, INF_MIN, INF_MAX, AUTO_INCREMENT = 0, 1, 2, 3, 6, 7, 9, 10, 11
DELETE_ALL, DELETE_ONE, INCREMENT = 1, 3, 4
FIXED_SIZE: Final = {INTEGER: 9, DOUBLE: 9, BOOLEAN: 2, INF_MIN: 1, INF_MAX: 1, AUTO_INCREMENT: 1, NULL: 1}

_u32 = struct.Struct("<I")
_i64 = struct.Struct("<q")
_f64 = struct.Struct("<d")
_read_u32 = _u32.unpack_from
_read_i64 = _i64.unpack_from
# Half the cost of calling a NamedTuple's class, in the loops over cells.
_new = tuple.__new__
_CRC_TAIL: Final = tuple(bytes((CELL_CRC, crc)) for crc in range(256))
_ROW_TAIL: Final = tuple(bytes((ROW_CRC, crc)) for crc in range(256))

Value = int | float | bool | str | bytes | None


class KeyCell(NamedTuple):
    """A primary key column: name, value in PlainBuffer form (type byte first), and the encoded cell."""

    name: bytes
    value: bytes
    piece: bytes


class Change(NamedTuple):
    """An attribute cell of a write: version and operation are None unless the client gave them.

    ``head`` is the encoded cell before operation, version and checksum; ``crc`` the checksum of name and value.
    """

    name: bytes
    value: bytes | None
    version: int | None
    op: int | None
    head: bytes
    crc: int


class Cell(NamedTuple):
    """A stored attribute cell: one version of one column, with its complete encoded piece."""

    name: bytes
    version: int
    value: bytes
    piece: bytes


class RowChange(NamedTuple):
    """A decoded row of a write request."""

    key: list[KeyCell]
    cells: list[Change]
    deletes: bool


def broken(detail: str) -> ServiceError:
    """The encoded bytes do not follow the format."""
    return invalid(f"Cell data broken, {detail}.")


def decode_change(data: bytes) -> RowChange:
    """Reads one row as a client sends it, verifying tags, lengths and checksums."""
    if data[:4] != HEADER:
        raise broken(f"mismatch header, actual: {data[:4].hex()}, expect: {HEADER.hex()}")
    try:
        return _decode_change(data)
    except (IndexError, struct.error):
        raise invalid("data format is invalid.") from None


def _decode_change(data: bytes) -> RowChange:
    if data[4] != ROW_KEY:
        raise broken(f"mismatch tag, actual tag({data[4]}), expect tag({ROW_KEY})")
    key: list[KeyCell] = []
    cells: list[Change] = []
    checksums = bytearray()
    position = 5
    in_key = True
    while True:
        tag = data[position]
        if tag == CELL:
            start = position
            if data[position + 1] != CELL_NAME:
                raise broken("attr has no name")
            position += 6
            name_end = position + _read_u32(data, position - 4)[0]
            name = data[position:name_end]
            position = name_end
            value: bytes | None = None
            tag = data[position]
            if tag == CELL_VALUE:
                value_end = position + 5 + _read_u32(data, position + 1)[0]
                value = data[position + 5 : value_end]
                kind = value[0]
                if FIXED_SIZE.get(kind) != value_end - position - 5 or kind == DOUBLE:
                    check_value(name, value)
                position = value_end
                crc = crc8(name + value)
                tag = data[position]
            else:
                crc = crc8(name)
            head_end = position
            op: int | None = None
            version: int | None = None
            if tag == CELL_OP:
                op = data[position + 1]
                position += 2
                tag = data[position]
            if tag == CELL_VERSION:
                version = _read_i64(data, position + 1)[0]
                position += 9
                tag = data[position]
            if tag != CELL_CRC:
                raise broken(f"cell is not end with checksum[{CELL_CRC:#x}] tag")
            sent = data[position + 1]
            position += 2
            expected = crc
            if version is not None:
                expected = crc8(_i64.pack(version), expected)
            if op is not None:
                expected = crc8(bytes((op,)), expected)
            if sent != expected:
                raise broken(f"checksum is mismatch, {sent}:{expected}: column {show(name)}")
            checksums.append(sent)
            if in_key:
                if value is None:
                    raise invalid(f"No value is given for primary key name:{show(name)}.")
                if op is not None:
                    raise invalid(f"OpType cannot be given for primary key name :{show(name)}.")
                if version is not None:
                    raise invalid(f"Timestamp cannot be given for primary key name:{show(name)}.")
                key.append(KeyCell(name, value, data[start:position]))
            else:
                cells.append(_new(Change, (name, value, version, op, data[start:head_end], crc)))
        elif tag == ROW_DATA and in_key:
            in_key = False
            position += 1
            if data[position] != CELL:
                raise broken("no Cells follow CellTag")
        elif tag == DELETE_ROW:
            checksums.append(1)
            _end_row(data, position + 1, checksums)
            return RowChange(key, cells, True)
        elif tag == ROW_CRC:
            checksums.append(0)
            _end_row(data, position, checksums)
            return RowChange(key, cells, False)
        else:
            raise broken(f"mismatch tag, actual tag({tag}), expect tag({ROW_CRC})")


def _end_row(data: bytes, position: int, checksums: bytearray) -> None:
    if data[position] != ROW_CRC:
        raise broken("row is not end with checksum tag")
    expected = crc8(bytes(checksums))
    if data[position + 1] != expected:
        raise broken(f"checksum is mismatch, {data[position + 1]}:{expected}: row")
    if len(data) != position + 2:
        raise broken("has more data in cell, but they can't be parsed")


def check_value(name: bytes, value: bytes) -> None:
    """Refuses a value whose type is unknown, whose length does not fit the type, or that the service cannot hold."""
    kind = value[0]
    if kind in (STRING, BLOB):
        if _read_u32(value, 1)[0] != len(value) - 5:
            raise broken(f"wrong string format, size: {len(value)}")
        if kind == STRING:
            try:
                value[5:].decode()
            except UnicodeDecodeError:
                raise invalid(f"Value of column '{show(name)}' must be UTF8 encoding.") from None
        return
    size = FIXED_SIZE.get(kind)
    if size is None:
        raise invalid("data format is invalid, unknown variant type occured.")
    if size != len(value):
        raise invalid(f"data format is invalid: column '{show(name)}' has a value of {len(value)} bytes.")
    if kind == DOUBLE and value[8] & 0x7F == 0x7F and value[7] >= 0xF0:
        infinite = value[1:7] == b"\0" * 6 and value[7] == 0xF0
        raise invalid(f"{'Infinity' if infinite else 'NaN'} can't be set to double value.")


def show(name: bytes) -> str:
    """A name for error texts."""
    return name.decode("utf-8", "replace")


def data_size(name: bytes, value: bytes) -> int:
    """Bytes that a value counts for in limits and capacity units: name plus value, without type and length."""
    return len(name) + len(value) - (5 if value[0] in (STRING, BLOB) else 1)


def row_size(key: list[KeyCell], cells: list[Cell]) -> int:
    """Data bytes of a row."""
    size = sum([data_size(name, value) for name, value, _ in key])
    return size + sum([data_size(name, value) for name, _, value, _ in cells])


def stamp(change: Change, version: int, packed: bytes) -> Cell:
    """The stored cell of a put; ``packed`` is the version as 8 little-endian bytes."""
    name, value, _, _, head, crc = change
    return _new(Cell, (name, version, value or b"", head + b"\x07" + packed + _CRC_TAIL[crc8(packed, crc)]))


def pack_version(version: int) -> bytes:
    return _i64.pack(version)


def encode_cell(name: bytes, value: bytes, version: int) -> Cell:
    """A stored cell of a name, a value in PlainBuffer form and a version."""
    head = b"\x03\x04%b%b\x05%b%b" % (_u32.pack(len(name)), name, _u32.pack(len(value)), value)
    return stamp(Change(name, value, None, None, head, crc8(name + value)), version, _i64.pack(version))


def encode_key_cell(name: bytes, value: bytes) -> KeyCell:
    head = b"\x03\x04%b%b\x05%b%b" % (_u32.pack(len(name)), name, _u32.pack(len(value)), value)
    return KeyCell(name, value, head + _CRC_TAIL[crc8(name + value)])


def encode_row(key: list[KeyCell], cells: list[Cell]) -> bytes:
    """A row without header, in the order of ``cells``."""
    pieces = [b"\x01"]
    pieces.extend([cell.piece for cell in key])
    checksums = [cell.piece[-1] for cell in key]
    if cells:
        pieces.append(b"\x02")
        pieces.extend([cell.piece for cell in cells])
        checksums.extend([cell.piece[-1] for cell in cells])
    checksums.append(0)
    pieces.append(_ROW_TAIL[crc8(bytes(checksums))])
    return b"".join(pieces)


def decode_row(data: bytes) -> tuple[list[KeyCell], list[Cell]]:
    """Reads a stored row (no header, every cell has a version); it was verified when it was written."""
    key: list[KeyCell] = []
    cells: list[Cell] = []
    position = 1
    while data[position] == CELL:
        start = position
        name_start = position + 6
        name_end = name_start + _read_u32(data, position + 2)[0]
        value_end = name_end + 5 + _read_u32(data, name_end + 1)[0]
        position = value_end + 2
        key.append(KeyCell(data[name_start:name_end], data[name_end + 5 : value_end], data[start:position]))
    if data[position] == ROW_DATA:
        position += 1
        while data[position] == CELL:
            start = position
            name_start = position + 6
            name_end = name_start + _read_u32(data, position + 2)[0]
            value_end = name_end + 5 + _read_u32(data, name_end + 1)[0]
            position = value_end + 11
            cells.append(
                _new(
                    Cell,
                    (
                        data[name_start:name_end],
                        _read_i64(data, value_end + 1)[0],
                        data[name_end + 5 : value_end],
                        data[start:position],
                    ),
                )
            )
    return key, cells


def key_piece(data: bytes) -> bytes:
    """Header and primary key alone, of a stored row."""
    return HEADER + encode_row(decode_row(data)[0], [])


def encode_value(value: Value) -> bytes:
    """A Python value in PlainBuffer form; str is STRING, bytes is BLOB."""
    if isinstance(value, bool):
        return b"\x02\x01" if value else b"\x02\x00"
    if isinstance(value, int):
        return b"\x00" + _i64.pack(value)
    if isinstance(value, float):
        return b"\x01" + _f64.pack(value)
    if isinstance(value, str):
        raw = value.encode()
        return b"\x03" + _u32.pack(len(raw)) + raw
    if isinstance(value, bytes):
        return b"\x07" + _u32.pack(len(value)) + value
    raise TypeError(f"no PlainBuffer form for {type(value).__name__}")


def decode_value(value: bytes) -> Value:
    """The Python value of a PlainBuffer form."""
    match value[0]:
        case 0:
            return int(_read_i64(value, 1)[0])
        case 1:
            return float(_f64.unpack_from(value, 1)[0])
        case 2:
            return value[1] != 0
        case 3:
            return value[5:].decode()
        case 7:
            return value[5:]
        case _:
            return None
