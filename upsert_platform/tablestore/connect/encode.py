"""Row changes to bytes, one by one: the bytes of the official SDK.

Changes are Python objects, each with cells of its own, so columns would first have to be made of them: that takes twice
as long where all rows have the same columns, and time and memory without bounds where every row has its own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from fastcrc.crc8 import smbus

from upsert_platform.tablestore.connect.change import RowChange
from upsert_platform.tablestore.connect.values import KeyValue, Value
from upsert_platform.tablestore.encoder import IGNORE_EXISTENCE, EncodedRows, RowOperation, varint

_U32: Final = struct.Struct("<I").pack
_INTEGER: Final = struct.Struct("<Bq").pack
_DOUBLE: Final = struct.Struct("<Bd").pack
_HEADER_AND_KEY, _DATA, _DELETE_MARKER = b"\x75\x00\x00\x00\x01", b"\x02", b"\x08"
_DELETE_ALL = 1


def encode_changes(changes: Sequence[RowChange]) -> EncodedRows:
    """Encodes changes for BatchWriteRow requests; removed columns stand before the others."""
    rows = [_row(change) for change in changes]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return EncodedRows(memoryview(b"".join(rows)), offsets)


def _row(change: RowChange) -> bytes:
    pieces, checksums = [_HEADER_AND_KEY], bytearray()
    for name, value in change.key:
        _add_cell(pieces, checksums, name, value)
    deletes = change.operation is RowOperation.DELETE
    if not deletes and (change.cells or change.removed):
        pieces.append(_DATA)
        for name in change.removed:
            encoded, state = _name(name)
            checksum = smbus(bytes([_DELETE_ALL]), state)
            pieces.append(b"%b\x06%c\x0a%c" % (encoded, _DELETE_ALL, checksum))
            checksums.append(checksum)
        for column, cell in change.cells.items():
            _add_cell(pieces, checksums, column, cell)
    if deletes:
        pieces.append(_DELETE_MARKER)
    checksums.append(deletes)
    pieces.append(b"\x09%c" % smbus(bytes(checksums)))
    plain = b"".join(pieces)
    row = b"\x08%c\x12%b%b%b" % (change.operation, varint(len(plain)), plain, IGNORE_EXISTENCE)
    return b"\x12%b%b" % (varint(len(row)), row)


def _add_cell(pieces: list[bytes], checksums: bytearray, name: str, value: Value | KeyValue) -> None:
    encoded, state = _name(name)
    data = _value(value)
    checksum = smbus(data, state)
    pieces.append(b"%b\x05%b%b\x0a%c" % (encoded, _U32(len(data)), data, checksum))
    checksums.append(checksum)


@lru_cache(maxsize=4096)
def _name(name: str) -> tuple[bytes, int]:
    """A cell up to its name, and the checksum of that."""
    encoded = name.encode("ascii")
    return b"\x03\x04%b%b" % (_U32(len(encoded)), encoded), smbus(encoded)


def _value(value: Value | KeyValue) -> bytes:
    match value:
        case bool():
            return b"\x02\x01" if value else b"\x02\x00"
        case int():
            return _INTEGER(0, value)
        case float():
            return _DOUBLE(1, value)
        case str():
            data = value.encode()
            return b"\x03%b%b" % (_U32(len(data)), data)
        case bytes():
            return b"\x07%b%b" % (_U32(len(value)), value)
    return b"\x0b"
