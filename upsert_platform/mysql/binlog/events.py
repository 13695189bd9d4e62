"""Events of a binary log: their common header, their checksum, and their types by name.

Layouts are those of MySQL's "Replication Protocol" and of MariaDB's "Replication Protocol" pages.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from upsert_platform.core.errors import ReplicationError

HEADER: Final = struct.Struct("<IBIIIH")
"""Time, type, server id, length, end position in the file, flags: 19 bytes."""
ARTIFICIAL: Final = 0x20
"""Flag of events that the server makes for the reader; they stand in no file."""
_CHECKSUM: Final = 4


class EventType(IntEnum):
    """Types of events, of both servers; MariaDB's own begin at 160."""

    UNKNOWN = 0
    START_V3 = 1
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    PRE_GA_WRITE_ROWS = 20
    PRE_GA_UPDATE_ROWS = 21
    PRE_GA_DELETE_ROWS = 22
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    MARIADB_ANNOTATE_ROWS = 160
    MARIADB_BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    MARIADB_GTID_LIST = 163
    MARIADB_START_ENCRYPTION = 164
    MARIADB_QUERY_COMPRESSED = 165
    MARIADB_WRITE_ROWS_COMPRESSED_V1 = 166
    MARIADB_UPDATE_ROWS_COMPRESSED_V1 = 167
    MARIADB_DELETE_ROWS_COMPRESSED_V1 = 168
    MARIADB_WRITE_ROWS_COMPRESSED = 169
    MARIADB_UPDATE_ROWS_COMPRESSED = 170
    MARIADB_DELETE_ROWS_COMPRESSED = 171


@dataclass(frozen=True, slots=True)
class Event:
    """An event without its header and its checksum.

    Attributes:
        time: seconds since 1970 at which its statement began.
        type: its number; `event_name` gives the name.
        server_id: of the server that made it first.
        end: position in the file right behind it, whole; 0 in artificial ones and inside compressed transactions.
        body: all that follows the header.
    """

    time: int
    type: int
    server_id: int
    end: int
    flags: int
    body: bytes


def event_name(number: int) -> str:
    """Return the name and number of an event type, for messages."""
    try:
        return f"{EventType(number).name} ({number})"
    except ValueError:
        return f"of the unknown type {number}"


def read_event(data: bytes, *, checksum: bool, place: str, before: int = 0) -> Event:
    """Reads the header of one event, and takes the checksum off its end.

    Args:
        data: the whole event.
        checksum: whether it ends with a CRC-32 of what stands before, little-endian.
        place: where it was read, for messages.
        before: the position behind an earlier event of its file.

    Raises:
        ReplicationError: its length or its checksum is not what it says.
    """
    if len(data) < HEADER.size:
        raise ReplicationError(f"{place}: an event of {len(data)} bytes is shorter than its header")
    time, number, server_id, length, end, flags = HEADER.unpack_from(data)
    if length != len(data):
        raise ReplicationError(f"{place}: event {event_name(number)} says {length} bytes and has {len(data)}")
    body = data[HEADER.size :]
    # The checksum of a format description is made before the server sets flags in it; it tells its own algorithm.
    if checksum and number != EventType.FORMAT_DESCRIPTION:
        if not has_checksum(data):
            told = f"{place}: event {event_name(number)} does not have the checksum that stands at its end"
            raise ReplicationError(f"{told}; it was damaged on its way or in the server's file")
        body = body[:-_CHECKSUM]
    whole = whole_end(end, before=before) if end and before >> 31 else end
    return Event(time, number, server_id, whole, flags, body)


def whole_end(end: int, *, before: int) -> int:
    """The position behind an event, of which headers have the last 32 bits: files grow beyond by one transaction.

    Args:
        before: the position behind an earlier event of the file.
    """
    found = (before & ~0xFFFF_FFFF) | end
    # Some events stand a little behind: those that a server makes of what it passes over.
    return found + (1 << 32) if before - found > 1 << 31 else found


def has_checksum(data: bytes) -> bool:
    """Return whether the last four bytes of an event are the CRC-32 of the others."""
    return len(data) >= HEADER.size + _CHECKSUM and zlib.crc32(data[:-_CHECKSUM]) == int.from_bytes(
        data[-_CHECKSUM:], "little"
    )


def split_events(data: bytes, *, place: str) -> list[Event]:
    """Events that stand one behind the other without checksums, as in a compressed transaction.

    Raises:
        ReplicationError: the last one is cut off.
    """
    found: list[Event] = []
    at = 0
    while at < len(data):
        if at + HEADER.size > len(data):
            raise ReplicationError(f"{place}: the last event of a compressed transaction is cut off")
        length = HEADER.unpack_from(data, at)[3]
        if length < HEADER.size:
            raise ReplicationError(f"{place}: an event of {length} bytes is shorter than its header")
        found.append(read_event(data[at : at + length], checksum=False, place=place))
        at += length
    return found
