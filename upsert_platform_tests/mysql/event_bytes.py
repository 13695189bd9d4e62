"""Events as servers write them, made byte by byte from the protocol's description."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

ARTIFICIAL = 0x20
TABLE_ID = 0x0102030405


def event(kind: int, body: bytes, *, end: int = 0, checksum: bool = False, flags: int = 0, server: int = 1) -> bytes:
    """A whole event: its header of 19 bytes, its body, and a CRC-32 if asked."""
    size = 19 + len(body) + (4 if checksum else 0)
    data = struct.pack("<IBIIIH", 1_700_000_000, kind, server, size, end, flags) + body
    return data + struct.pack("<I", zlib.crc32(data)) if checksum else data


def format_description(*, checksum: bool = False, version: str = "8.0.36") -> bytes:
    """What a file begins with; 41 lengths of fixed parts, which nobody reads here."""
    body = struct.pack("<H50sIB", 4, version.encode(), 0, 19) + bytes(41) + bytes([checksum]) + bytes(4)
    return event(15, body)


def rotate(file: str, position: int = 4, *, flags: int = ARTIFICIAL) -> bytes:
    """The log goes on in a file."""
    return event(4, struct.pack("<Q", position) + file.encode(), flags=flags)


def query(
    sql: str | bytes, *, end: int = 0, schema: str = "shop", checksum: bool = False, collation: int = 0, modes: int = 0
) -> bytes:
    """A statement; with flags, modes and catalogue of its session, and its client's collation where it is told."""
    status = b"\0" + bytes(4) + b"\1" + struct.pack("<Q", modes) + b"\6\3std"
    status += b"\4" + struct.pack("<HHH", collation, 33, 8) if collation else b""
    body = struct.pack("<IIBHH", 7, 0, len(schema), 0, len(status)) + status + schema.encode() + b"\0"
    return event(2, body + (sql.encode() if isinstance(sql, str) else sql), end=end, checksum=checksum)


def xid(*, end: int) -> bytes:
    """A commit."""
    return event(16, struct.pack("<Q", 1), end=end)


def table_map(
    types: Sequence[int], metadata: bytes = b"", *, optional: bytes = b"", table: str = "t", checksum: bool = False
) -> bytes:
    """A table of schema shop, all of whose columns may be NULL."""
    body = TABLE_ID.to_bytes(6, "little") + b"\1\0" + b"\4shop\0" + bytes([len(table)]) + table.encode() + b"\0"
    body += bytes([len(types), *types, len(metadata)]) + metadata + b"\xff" * ((len(types) + 7) // 8) + optional
    return event(19, body, checksum=checksum)


def field(kind: int, value: bytes) -> bytes:
    """A field of a table map's optional metadata."""
    return bytes([kind, len(value)]) + value


def rows(kind: int, columns: int, data: bytes, *, present: bytes | None = None, checksum: bool = False) -> bytes:
    """Rows, in version 2 of the event from type 30 on; `data` holds the images."""
    body = TABLE_ID.to_bytes(6, "little") + b"\1\0" + (b"\2\0" if 30 <= kind <= 39 else b"") + bytes([columns])
    bitmap = present or ((1 << columns) - 1).to_bytes((columns + 7) // 8, "little")
    return event(kind, body + bitmap * (2 if kind in (24, 31, 39) else 1) + data, checksum=checksum)


def image(*values: bytes | None) -> bytes:
    """A row: which columns are NULL, then the values of the others."""
    nulls = sum(1 << index for index, value in enumerate(values) if value is None)
    return nulls.to_bytes((len(values) + 7) // 8, "little") + b"".join(value for value in values if value is not None)


def payload(events: bytes, packed: bytes, *, algorithm: int = 0) -> bytes:
    """A compressed transaction of MySQL: fields of type, length and packed number, then the packed events."""

    def entry(kind: int, number: int) -> bytes:
        value = bytes([number]) if number < 251 else b"\xfc" + struct.pack("<H", number)
        return bytes([kind, len(value)]) + value

    return entry(2, algorithm) + entry(3, len(events)) + entry(1, len(packed)) + b"\0" + packed


def xa_statement(word: str, xid: str, *, end: int = 0) -> bytes:
    """XA START, XA END, XA COMMIT or XA ROLLBACK as a server logs it."""
    return query(f"XA {word} X'{xid.encode().hex()}',X'',1", end=end)


def xa_prepare(xid: str, *, end: int, one_phase: bool = False) -> bytes:
    """The end of a transaction that is prepared: one phase or two, the id's format and the lengths of its two parts."""
    return event(38, struct.pack("<BIII", one_phase, 1, len(xid), 0) + xid.encode(), end=end)


def mariadb_gtid(number: int, *, flags: int, xid: str = "", group_commit: bool = False) -> bytes:
    """A global id of domain 0 in MariaDB's form, with the xid of a transaction that is prepared or completed."""
    body = struct.pack("<QIB", number, 0, flags | (0x02 if group_commit else 0))
    body += bytes(8) if group_commit else b""
    body += struct.pack("<IBB", 1, len(xid), 0) + xid.encode() if xid else bytes(6)
    return event(162, body + b"\1\xff")
