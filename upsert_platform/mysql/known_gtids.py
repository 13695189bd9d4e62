"""Global ids of all transactions before a place in a log, as the log itself has them.

What a server says that it has executed is of another moment than the place that it tells: a transaction stands in the
log first, and waits, for an acknowledgement say, before it counts as executed. A set that lacks a transaction which was
read has a hole, and another server, asked to go on by it, would send that transaction behind newer ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog import control
from upsert_platform.mysql.binlog.events import ARTIFICIAL, Event, EventType, has_checksum, read_event, whole_end
from upsert_platform.mysql.binlog.stream import LogStream
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform.mysql.position import GtidSet, LogPosition

_FILE_START: Final = 4


def with_gtids(connection: Connection, position: LogPosition, *, executed: str, server_id: int) -> LogPosition:
    """Return a position with the global ids of all transactions before it; without any where they cannot be told.

    Args:
        executed: global ids that the server had executed before it told the position, so that the log is read for the
            others alone; empty where the position is of another moment.
        server_id: of a reader; no other one of that id may be reading.

    Raises:
        ReplicationError: the log does not hold the position, or ended before it.
        EndpointError: the server does not answer.
    """
    return replace(position, gtids=_gtids(connection, position, executed, server_id))


def _gtids(connection: Connection, position: LogPosition, executed: str, server_id: int) -> str:
    if connection.is_mariadb():
        ((found,),) = connection.query("SELECT BINLOG_GTID_POS(%s, %s)", (position.file, position.offset))
        return str(found or "")
    if connection.variable("gtid_mode") != "ON":
        return ""
    if executed:
        # The server passes over what it has executed, and tells where it is when it has.
        start, known = LogPosition("", _FILE_START, executed), GtidSet.parse(executed)
    else:
        # Transactions of a backup that the server began with are in no file, and count as purged.
        ((purged,),) = connection.query("SELECT @@GLOBAL.gtid_purged")
        start, known = LogPosition(position.file, _FILE_START), GtidSet.parse(str(purged or ""))
    for event in _events(connection.server, start, upto=position, server_id=server_id, by_gtids=bool(executed)):
        if event.type == EventType.PREVIOUS_GTIDS:
            known = known.union(control.read_previous_gtids(event))
        elif event.type == EventType.GTID:
            known = known.with_transaction(control.read_mysql_gtid(event).text)
        elif event.type == EventType.GTID_TAGGED:
            raise ReplicationError(f"{position}: event GTID_TAGGED: a global id with a tag is not read")
    return str(known)


def _events(
    server: Server, start: LogPosition, *, upto: LogPosition, server_id: int, by_gtids: bool
) -> Iterator[Event]:
    """Yield the events up to a place, which is between two transactions; what they hold of rows is not looked at."""
    place, checksum = start if start.file else LogPosition("start.000000", _FILE_START), False
    with LogStream(server, start, server_id=server_id, to_end=True, by_gtids=by_gtids) as stream:
        for data in stream:
            of_file = data[4] != EventType.ROTATE
            event = read_event(data, checksum=checksum if of_file else has_checksum(data), place=str(place))
            if event.type == EventType.FORMAT_DESCRIPTION:
                checksum = control.read_format(event).checksum
            if event.type == EventType.ROTATE:
                rotate = control.read_rotate(event)
                place = LogPosition(rotate.file, rotate.position)
            elif event.end and not event.flags & ARTIFICIAL:
                place = LogPosition(place.file, whole_end(event.end, before=place.offset))
            begins = event.type == EventType.PREVIOUS_GTIDS and place.file == upto.file
            if begins or place.order() <= upto.order():
                yield event
            if place.order() >= upto.order() and event.type not in (EventType.ROTATE, EventType.FORMAT_DESCRIPTION):
                return
    raise ReplicationError(
        f"MySQL server {server}: it ended its log at {place}, before {upto}, as it does when somebody ends the"
        " statement of a reader (KILL QUERY); run it again"
    )
