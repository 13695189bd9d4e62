"""Global ids of all transactions before a place in a log, as the log itself has them.

What a server says that it has executed is of another moment than the place that it tells: a transaction stands in the
log first, and waits, for an acknowledgement say, before it counts as executed. A set that lacks a transaction which was
read has a hole, and another server, asked to go on by it, would send that transaction behind newer ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog import control
from upsert_platform.mysql.binlog.events import ARTIFICIAL, EventType, has_checksum, read_event
from upsert_platform.mysql.binlog.spool import spool_of
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
    found = None
    if executed:
        # The server passes over what it has executed, and tells where it is when it has; some do not tell.
        start = LogPosition("", _FILE_START, executed)
        found = _read(connection.server, start, GtidSet.parse(executed), upto=position, server_id=server_id)
    if found is None:
        # Transactions of a backup that the server began with are in no file, and count as purged.
        ((purged,),) = connection.query("SELECT @@GLOBAL.gtid_purged")
        start = LogPosition(position.file, _FILE_START)
        found = _read(connection.server, start, GtidSet.parse(str(purged or "")), upto=position, server_id=server_id)
    if found is None:
        raise ReplicationError(
            f"MySQL server {connection.server}: it ended its log at an event before {position}, as it does when"
            " somebody ends the statement of a reader (KILL QUERY); run it again"
        )
    return str(found)


def _read(server: Server, start: LogPosition, known: GtidSet, *, upto: LogPosition, server_id: int) -> GtidSet | None:
    """Return known global ids and those of the log up to a place between two transactions; None where it ends before.

    What the log holds of rows is not looked at.

    Args:
        start: of a file; without one, behind its global ids.
    """
    by_gtids = not start.file
    place, checksum = (LogPosition("start.000000", _FILE_START) if by_gtids else start), False
    # Tables that share an id read one after the other: a server ends the reader of an id that comes once more.
    with (
        spool_of(server).waited_for(),
        LogStream(server, start, server_id=server_id, to_end=True, by_gtids=by_gtids) as stream,
    ):
        for data in stream:
            of_file = data[4] != EventType.ROTATE
            event = read_event(
                data, checksum=checksum if of_file else has_checksum(data), place=str(place), before=place.offset
            )
            if event.type == EventType.FORMAT_DESCRIPTION:
                checksum = control.read_format(event).checksum
            if event.type == EventType.ROTATE:
                rotate = control.read_rotate(event)
                place = LogPosition(rotate.file, rotate.position)
            elif event.end and not event.flags & ARTIFICIAL:
                place = LogPosition(place.file, event.end)
            if event.type == EventType.PREVIOUS_GTIDS and place.file == upto.file:
                known = known.union(control.read_previous_gtids(event))
            elif event.type == EventType.GTID and place.order() <= upto.order():
                known = known.with_transaction(control.read_mysql_gtid(event).text)
            elif event.type == EventType.GTID_TAGGED:
                raise ReplicationError(f"{place}: event GTID_TAGGED: a global id with a tag is not read")
            if place.order() >= upto.order() and event.type not in (EventType.ROTATE, EventType.FORMAT_DESCRIPTION):
                return known
    return None
