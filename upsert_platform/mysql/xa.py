"""Rows of transactions in two phases (XA) that were committed after a reader had let go of them.

Rows are logged when their transaction is prepared, and count when it is committed: seconds later, or days, after
restarts of readers and servers. A reader holds what is small; of the rest, and of what an earlier batch prepared, it
keeps the position, and the rows are read again from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.changes import TableRows, XaCommitted
from upsert_platform.mysql.binlog.reader import LogReader
from upsert_platform.mysql.binlog.stream import LogStream
from upsert_platform.mysql.columns import MySqlTable
from upsert_platform.mysql.connection import Connection
from upsert_platform.mysql.options import MySqlCdcSettings
from upsert_platform.mysql.position import LogPosition
from upsert_platform.mysql.server_state import ServerLog, read_server_log


def prepared_rows(
    settings: MySqlCdcSettings,
    committed: XaCommitted,
    find: Callable[[str, str], MySqlTable | None],
    *,
    before: LogPosition,
    server_id: int,
) -> Iterator[TableRows]:
    """Rows of a transaction, in the order of the log, dated by its commit.

    Args:
        find: the table of that schema and name, or None for one that is not wanted.
        before: behind the commit.
        server_id: of a reader; no other one of that id may be reading.

    Raises:
        ReplicationError: the log does not hold them any more, or they cannot be read.
        EndpointError: the server does not answer.
    """
    with Connection(settings.server) as connection:
        log = read_server_log(connection)
    place = committed.place
    if place is not None and not log.has(place):
        raise _lost(committed, before, f"where it was prepared ({place})")
    if place is None:
        place = _search(settings, committed.xid, log, before=before, server_id=server_id)
    if place is None:
        raise _lost(committed, before, f"where it was prepared (its oldest file is {log.start.file})")
    with LogStream(settings.server, place, server_id=server_id, to_end=True) as stream:
        reader = LogReader(place, find, rules=settings.type_rules, checksum=stream.checksum, commits_prepared=True)
        for event in stream:
            for told in reader.read(event):
                if isinstance(told, TableRows):
                    yield replace(told, ends=(committed.end,) * len(told.ends))
            if reader.last_prepared is not None:
                break
        if reader.last_prepared != committed.xid:
            raise _lost(committed, before, f"it as prepared behind {place}")
        for told in reader.drain():
            if isinstance(told, TableRows):
                yield replace(told, ends=(committed.end,) * len(told.ends))


def _search(
    settings: MySqlCdcSettings, xid: str, log: ServerLog, *, before: LogPosition, server_id: int
) -> LogPosition | None:
    """A position before the last transaction of an id that was prepared, from the newest file of the log back."""
    for name, _ in reversed(log.files):
        start = LogPosition(name, log.start.offset)
        if start.order() >= before.order():
            continue
        with LogStream(settings.server, start, server_id=server_id, to_end=True) as stream:
            reader = LogReader(start, lambda *_: None, rules=settings.type_rules, checksum=stream.checksum)
            found: LogPosition | None = None
            for event in stream:
                list(reader.read(event))
                if reader.place.file != name or reader.place.order() >= before.order():
                    break
                if xid in reader.prepared:
                    found = reader.prepared[xid].place
        if found is not None:
            return found
    return None


def _lost(committed: XaCommitted, before: LogPosition, what: str) -> ReplicationError:
    return ReplicationError(
        f"transaction {committed.xid} (XA) was committed before {before}, and the log does not hold {what} any more:"
        " which rows it changed is known to the database alone; take a new snapshot: job 'rebuild' with this table"
    )
