"""Queries about a server's log: the server's identity, the end of its log, the distance, visibility."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.stream import executed_gtids, log_end, log_status
from upsert_platform.mysql.connection import Connection
from upsert_platform.mysql.position import LogPosition, holds_transactions

SETTLE_SECONDS: Final = 1.0
"""The time after which a server shows what its log holds, unless something is waited for."""
_PATIENCE_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.02
_FILE_START: Final = 4


@dataclass(frozen=True, slots=True)
class ServerLog:
    """The log as a server tells it.

    Attributes:
        identity: of the server, for positions.
        end: where the log ends.
        executed: global ids of transactions that were executed before it ended there.
        files: their sizes by name, in order.
    """

    identity: str
    end: LogPosition
    files: tuple[tuple[str, int], ...]
    executed: str = ""

    def has(self, position: LogPosition) -> bool:
        """Return whether the log can be read from a position."""
        return any(name == position.file and position.offset <= max(size, _FILE_START) for name, size in self.files)

    def has_all(self, gtids: str) -> bool:
        """Return whether the log holds every transaction that global ids name."""
        return holds_transactions(self.executed, gtids)

    @property
    def start(self) -> LogPosition:
        """The oldest position that is there."""
        return LogPosition(self.files[0][0], _FILE_START)

    def bytes_from(self, position: LogPosition) -> int:
        """Bytes from a position to the end, as `LogReader.distance` counts them."""
        if position.file == self.end.file:
            return max(0, self.end.offset - position.offset)
        names = [name for name, _ in self.files]
        if position.file not in names or self.end.file not in names:
            return 0
        passed = self.files[names.index(position.file) : names.index(self.end.file)]
        return sum(size - _FILE_START for _, size in passed) - position.offset + self.end.offset


def read_server_log(connection: Connection) -> ServerLog:
    """Asks a server.

    Raises:
        ReplicationError: it keeps no log.
    """
    # Asked for first: none of them stands behind the end.
    executed = executed_gtids(connection)
    end = log_end(connection)
    rows = connection.query("SHOW BINARY LOGS")
    return ServerLog(identity(connection), end, tuple((str(row[0]), int(row[1])) for row in rows), executed)


def require_logged(connection: Connection, schema: str) -> str | None:
    """Stops where a server changes the tables of a schema without a word in its log.

    Returns:
        A warning where statements may be left out of it: they are chosen by the schema that a session uses.

    Raises:
        ReplicationError: the log leaves the schema out, or the changes of the server that this one follows.
    """
    row = connection.query(log_status(connection))[0]
    only, never = (_listed(value) for value in row[2:4])
    if schema.casefold() in never or (only and schema.casefold() not in only):
        setting = "binlog-ignore-db" if schema.casefold() in never else "binlog-do-db"
        raise ReplicationError(
            f"MySQL server {connection.server} leaves schema {schema} out of its log by '{setting}', so nothing tells"
            " what changes there; take the setting away"
        )
    logs = connection.variable("log_replica_updates") or connection.variable("log_slave_updates")
    if logs == "OFF" and _is_replica(connection):
        raise ReplicationError(
            f"MySQL server {connection.server} is a replica that does not log what it is sent; start it with"
            " 'log_slave_updates', or name the server that it follows"
        )
    if not only and not never:
        return None
    setting, names = ("binlog-do-db", only) if only else ("binlog-ignore-db", never)
    return (
        f"MySQL server {connection.server} leaves schemas out of its log by '{setting}' ({', '.join(sorted(names))}),"
        " and statements by the schema that their session uses, not by the table that they name: TRUNCATE TABLE or"
        f" ALTER TABLE of a table of {schema} in a session that uses one which is left out (or none, of MariaDB with"
        " 'binlog-do-db') is in no log, and is not followed. Take the setting away, or give such statements in sessions"
        f" that use {schema}"
    )


def _listed(value: object) -> set[str]:
    return {name.strip().casefold() for name in str(value or "").split(",") if name.strip()}


def _is_replica(connection: Connection) -> bool:
    if connection.is_mariadb():
        # Who may ask for more than the count needs another privilege than to read the log.
        running = connection.query("SHOW GLOBAL STATUS LIKE 'Slaves_running'")
        return bool(running) and int(running[0][1]) > 0
    word = "REPLICA" if connection.version() >= (8, 0, 22) else "SLAVE"
    return bool(connection.query(f"SHOW {word} STATUS"))


def identity(connection: Connection) -> str:
    """Return the identity of a server: its UUID, or for MariaDB, which has none, the id that its replicas know."""
    return connection.variable("server_uuid") or f"server-id {connection.variable('server_id')}"


def await_visible(connection: Connection, position: LogPosition) -> None:
    """Returns when a SELECT sees all that stands in the log before a position.

    A server writes a transaction into its log first and shows it a moment later, or, where a replica has to acknowledge
    it before (semi-sync), much later. MariaDB tells for a consistent read where the log stood for it. MySQL tells the
    global ids of what it shows; without ids there is a second, and that no session waits for a replica.

    Raises:
        ReplicationError: it takes too long.
    """
    if connection.is_mariadb():
        _await_snapshot(connection, position)
    elif position.gtids and connection.variable("gtid_mode") == "ON":
        _await_executed(connection, position)
    else:
        _await_replicas(connection, position)


def _await_executed(connection: Connection, position: LogPosition) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while connection.query("SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)", (position.gtids,)) != [(1,)]:
        if time.monotonic() > deadline:
            raise _not_visible(connection, position, "its transactions have not all been executed")
        time.sleep(_PAUSE_SECONDS)


def _await_snapshot(connection: Connection, position: LogPosition) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (seen := snapshot_end(connection)).order() < position.order():
        if time.monotonic() > deadline:
            raise _not_visible(connection, position, f"it shows what stands before {seen}")
        time.sleep(_PAUSE_SECONDS)


def snapshot_end(connection: Connection) -> LogPosition:
    """Return the place in the log of MariaDB up to which a read that begins now sees everything, and nothing beyond."""
    connection.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    found = dict(connection.query("SHOW STATUS LIKE 'binlog_snapshot_%'"))
    connection.query("ROLLBACK")
    names = {name.lower(): value for name, value in found.items()}
    return LogPosition(names["binlog_snapshot_file"], int(names["binlog_snapshot_position"]))


def _await_replicas(connection: Connection, position: LogPosition) -> None:
    """Returns when what waited for replicas at a position does so no more, as each does for a time at most."""
    began = time.monotonic()
    time.sleep(SETTLE_SECONDS)
    longest = SETTLE_SECONDS + _longest_wait(connection)
    while waiting_sessions(connection) and time.monotonic() - began < longest:
        if time.monotonic() - began > _PATIENCE_SECONDS:
            raise _not_visible(connection, position, "sessions wait for replicas to acknowledge it (semi-sync)")
        time.sleep(_PAUSE_SECONDS)


def waiting_sessions(connection: Connection) -> int:
    """Return how many sessions wait for replicas (semi-sync), each with a transaction in the log that no one sees yet.

    Where sessions wait behind their commit (AFTER_COMMIT), others see it before any replica does: then it is 0.
    """
    found = connection.query("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_%_wait_sessions'")
    count = sum(int(value) for _, value in found)
    names = ("rpl_semi_sync_source_wait_point", "rpl_semi_sync_master_wait_point")
    return 0 if count and any(connection.variable(name) == "AFTER_COMMIT" for name in names) else count


def _longest_wait(connection: Connection) -> float:
    """Return the seconds after which a session does not wait for replicas any more."""
    names = ("rpl_semi_sync_source_timeout", "rpl_semi_sync_master_timeout")
    return max(int(connection.variable(name) or 0) for name in names) / 1000


def _not_visible(connection: Connection, position: LogPosition, why: str) -> ReplicationError:
    return ReplicationError(
        f"MySQL server {connection.server}: what its log holds up to {position} is not visible after"
        f" {_PATIENCE_SECONDS:.0f} s: {why}; run it again"
    )
