"""Events that carry no rows: rotate, format description, GTIDs of both servers, statements."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.charsets import charset_of, decoded
from upsert_platform.mysql.binlog.events import Event
from upsert_platform.mysql.binlog.packed import Reader
from upsert_platform.mysql.binlog.texts import is_known
from upsert_platform.mysql.position import GtidSet

_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_WITH_CHECKSUM: Final = (5, 6, 1)
"""Servers from this version on say in a format description how events are checked."""
_STANDALONE: Final = 0x01
_GROUP_COMMIT: Final = 0x02
_PREPARED_XA: Final = 0x40
_XID: Final = re.compile(r"X'((?:[0-9a-f]{2})*)',X'((?:[0-9a-f]{2})*)',(\d+)", re.IGNORECASE)
_STRICT: Final = 0x0060_0000
"""STRICT_TRANS_TABLES and STRICT_ALL_TABLES among the modes of a session."""
_MODES, _CHARSET = 1, 4
_LENGTHS: Final = {
    0: 4, _MODES: 8, 3: 4, _CHARSET: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 18: 2, 19: 1, 20: 1, 128: 3,
    129: 8,
}  # fmt: skip
"""Lengths of a session's variables, by their codes."""
_NAMES: Final = {2: 1, 5: 0, 6: 0}
"""Variables that are a length and a name, with the bytes behind it."""


@dataclass(frozen=True, slots=True)
class Rotate:
    """The log goes on in another file."""

    file: str
    position: int


@dataclass(frozen=True, slots=True)
class FormatDescription:
    """The header of a log file.

    Attributes:
        header_lengths: of the fixed parts of event types, the first one being type 1.
        checksum: whether events end with a CRC-32.
    """

    server_version: str
    header_lengths: bytes
    checksum: bool


@dataclass(frozen=True, slots=True)
class Gtid:
    """The global id of the transaction that begins.

    Attributes:
        text: ``uuid:number`` of MySQL, ``domain-server-number`` of MariaDB.
        standalone: of MariaDB: one statement without a commit follows.
        prepares: of MariaDB: the xid of the transaction in two phases (XA) whose rows follow; MySQL logs XA START.
    """

    text: str
    standalone: bool = False
    prepares: str | None = None


@dataclass(frozen=True, slots=True)
class QueryHead:
    """The part of a statement's event that stands before its text.

    Attributes:
        schema: that names without one belong to.
        strict: whether its session refused values that do not fit their column.
        charset: of its text, that of the client.
        at: where in the body the text begins.
    """

    schema: str
    strict: bool
    charset: str
    at: int


def read_rotate(event: Event) -> Rotate:
    """ROTATE: 8 bytes of position, then the file's name."""
    reader = Reader(event.body, "event ROTATE")
    position = reader.number(8)
    return Rotate(reader.take(reader.left).decode("utf-8"), position)


def read_format(event: Event) -> FormatDescription:
    """FORMAT_DESCRIPTION: version of the log, of the server, lengths of fixed parts, checksum algorithm.

    Raises:
        ReplicationError: the server is older than 5.6.1, or its checksum is not CRC-32.
    """
    reader = Reader(event.body, "event FORMAT_DESCRIPTION")
    log_version = reader.number(2)
    version = reader.take(50).rstrip(b"\0").decode("ascii", "backslashreplace")
    numbers = _VERSION.match(version)
    if log_version != 4 or numbers is None or tuple(map(int, numbers.groups())) < _WITH_CHECKSUM:
        raise ReplicationError(f"server {version} writes version {log_version} of the log; 4 of 5.6.1 or later is read")
    reader.take(4)
    header = reader.number(1)
    if header != 19:
        raise ReplicationError(f"server {version} writes event headers of {header} bytes, not 19")
    lengths = reader.take(reader.left - 5)
    algorithm = reader.number(1)
    if algorithm not in (0, 1):
        raise ReplicationError(f"server {version} checks events by algorithm {algorithm}; NONE and CRC32 are known")
    return FormatDescription(version, lengths, algorithm == 1)


def read_mysql_gtid(event: Event) -> Gtid:
    """GTID of MySQL: flags, the server's UUID, the number."""
    reader = Reader(event.body, "event GTID")
    reader.take(1)
    source = uuid.UUID(bytes=reader.take(16))
    return Gtid(f"{source}:{reader.number(8)}")


def read_previous_gtids(event: Event) -> GtidSet:
    """PREVIOUS_GTIDS of MySQL: all transactions in earlier files; per server its UUID and spans without their ends.

    Raises:
        ReplicationError: it is of another form, with tags.
    """
    reader = Reader(event.body, "event PREVIOUS_GTIDS")
    found = GtidSet()
    servers = reader.number(8)
    if servers >> 32:
        raise ReplicationError("event PREVIOUS_GTIDS: a global id with a tag is not read")
    for _ in range(servers):
        source = uuid.UUID(bytes=reader.take(16))
        spans = [(reader.number(8), reader.number(8) - 1) for _ in range(reader.number(8))]
        found = found.union(GtidSet({str(source): tuple(spans)}))
    return found


def read_mariadb_gtid(event: Event) -> Gtid:
    """GTID of MariaDB: number, domain, flags; the server id stands in the header."""
    reader = Reader(event.body, "event MARIADB_GTID")
    number = reader.number(8)
    domain = reader.number(4)
    flags = reader.number(1)
    prepares = None
    if flags & _PREPARED_XA:
        reader.take(8 if flags & _GROUP_COMMIT else 0)
        form, first, second = reader.number(4), reader.number(1), reader.number(1)
        prepares = _xid(reader.take(first), reader.take(second), form)
    return Gtid(f"{domain}-{event.server_id}-{number}", standalone=bool(flags & _STANDALONE), prepares=prepares)


def read_xa_prepare(event: Event) -> tuple[str, bool]:
    """XA_PREPARE: the xid, and whether the transaction is committed with it (XA COMMIT ... ONE PHASE)."""
    reader = Reader(event.body, "event XA_PREPARE")
    one_phase = bool(reader.number(1))
    form, first, second = reader.number(4), reader.number(4), reader.number(4)
    return _xid(reader.take(first), reader.take(second), form), one_phase


def read_xid(sql: str, *, place: str) -> str:
    """The xid of a statement XA START, END, COMMIT or ROLLBACK, as a server logs it.

    Raises:
        ReplicationError: it is written in another form.
    """
    found = _XID.search(sql)
    if found is None:
        raise ReplicationError(f"{place}: the xid of a statement XA is not of the form X'61',X'62',1")
    return _xid(bytes.fromhex(found[1]), bytes.fromhex(found[2]), int(found[3]))


def _xid(transaction: bytes, branch: bytes, form: int) -> str:
    return f"X'{transaction.hex()}',X'{branch.hex()}',{form & 0xFFFF_FFFF}"


def read_query(event: Event) -> QueryHead:
    """QUERY up to its text."""
    reader = Reader(event.body, "event QUERY")
    reader.take(8)
    schema_length = reader.number(1)
    reader.take(2)
    strict, charset = _session(reader.take(reader.number(2)))
    schema = reader.take(schema_length).decode("utf-8", "backslashreplace")
    reader.take(1)
    return QueryHead(schema, strict, charset, reader.at)


@lru_cache(maxsize=256)
def _session(data: bytes) -> tuple[bool, str]:
    """Return whether a session is strict, and the character set of its client.

    Its variables stand in the order of their codes; behind one that is not known none is read.
    """
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        code, at = data[at], at + 1
        length = _LENGTHS.get(code)
        if code in _NAMES:
            length = 1 + int.from_bytes(data[at : at + 1], "little") + _NAMES[code]
        if length is None:
            break
        found[code] = data[at : at + length]
        at += length
    modes = int.from_bytes(found.get(_MODES, b""), "little")
    collation = int.from_bytes(found.get(_CHARSET, b"")[:2], "little")
    return bool(modes & _STRICT), charset_of(collation)


def read_text(data: bytes, charset: str) -> tuple[str, bool]:
    """Return the text of a statement, and whether all of it could be read; what could not is escaped."""
    known = is_known(charset)
    try:
        return decoded(data, charset if known else "ascii"), True
    except UnicodeDecodeError:
        return decoded(data, charset if known else "ascii", errors="backslashreplace"), False
