"""The stream of a server's log: the reader says that it is a replica, and asks for events from a position on."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, Self

from upsert_platform.core.errors import EndpointError, ReplicationError
from upsert_platform.mysql.connection import Connection, Server, endpoint_error
from upsert_platform.mysql.position import GtidSet, LogPosition

_REGISTER: Final = 0x15
_DUMP: Final = 0x12
_DUMP_GTID: Final = 0x1E
_END_WHEN_CAUGHT_UP: Final = 0x01
"""Flag of a dump: the server ends the stream after its last event, instead of waiting for another."""
_OK, _ERROR, _END = 0x00, 0xFF, 0xFE
_PURGED: Final = 1236
_LOST: Final = 2013
_SAME_ID: Final = "same server_uuid/server_id"
_FILE_START: Final = 4
_OFFSETS: Final = 1 << 32
"""Offsets that a server can be asked for; one transaction may go beyond."""
_ROTATE_BYTES: Final = 19 + 8 + 4
"""Those of the event at the end of a file, without the name of the next one."""
_MARIADB_CAPABILITY: Final = 4
"""What MariaDB is told that a replica understands: its global ids, and every event before them."""


def log_end(connection: Connection) -> LogPosition:
    """Return the end of a server's log, of which no global ids are known yet; `with_gtids` adds them.

    Raises:
        ReplicationError: it keeps no log.
    """
    rows = connection.query(log_status(connection))
    if not rows:
        raise ReplicationError(f"MySQL server {connection.server} keeps no log; start it with 'log_bin'")
    return LogPosition(str(rows[0][0]), int(rows[0][1]))


def executed_gtids(connection: Connection) -> str:
    """Return the global ids of all transactions that a server has executed; others may stand in its log already."""
    known = "gtid_binlog_pos" if connection.is_mariadb() else "gtid_executed"
    return "".join(str(connection.query(f"SELECT @@GLOBAL.{known}")[0][0] or "").split())


def log_status(connection: Connection) -> str:
    """The statement that shows where the log ends, and what is left out of it."""
    newer = not connection.is_mariadb() and connection.version() >= (8, 2)
    return "SHOW BINARY LOG STATUS" if newer else "SHOW MASTER STATUS"


class LogStream:
    """Events as the server sends them, each with its header and checksum; the caller closes it.

    Args:
        server_id: of this reader among all replicas of the server.
        by_gtids: whether it begins behind the global ids of the position, in whatever file they are.
        to_end: whether the stream ends at the log's end, instead of waiting for more.
        heartbeat: seconds after which a server without news says that it lives; a broken connection is noticed by it.

    Attributes:
        checksum: whether the server's events have checksums.

    Raises:
        EndpointError: the server is not reached, or refuses the user.
    """

    def __init__(
        self,
        server: Server,
        position: LogPosition,
        *,
        server_id: int,
        to_end: bool,
        heartbeat: float = 30.0,
        by_gtids: bool = False,
    ) -> None:
        self._connection = Connection(server, read_timeout=max(3 * heartbeat, 10.0))
        self._position = position
        try:
            self.checksum = (self._connection.variable("binlog_checksum") or "NONE").upper() == "CRC32"
            self._connection.query("SET @master_binlog_checksum = @@GLOBAL.binlog_checksum")
            self._connection.query(f"SET @master_heartbeat_period = {int(heartbeat * 1e9)}")
            is_mariadb = self._connection.is_mariadb()
            if is_mariadb:
                self._connection.query(f"SET @mariadb_slave_capability = {_MARIADB_CAPABILITY}")
            if by_gtids and is_mariadb:
                self._connection.query("SET @slave_connect_state = %s", (position.gtids,))
                self._connection.query("SET @slave_gtid_strict_mode = 1")
            known = GtidSet.parse(position.gtids) if by_gtids and not is_mariadb else None
            begin = LogPosition("", _FILE_START) if by_gtids else self._askable(position)
            self._ask(begin, server_id=server_id, to_end=to_end, known=known)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the stream; the server notices a closed connection."""
        self._connection.close()

    def __iter__(self) -> Iterator[bytes]:
        """Events; ends only if the stream was asked to.

        Raises:
            ReplicationError: the position is not in the log any more.
            EndpointError: the connection broke.
        """
        import pymysql

        while True:
            try:
                data = self._connection.raw._read_packet().get_all_data()  # noqa: SLF001
            except (pymysql.Error, OSError) as error:
                raise self._broken(error) from error
            if data[0] == _END and len(data) < 9:
                return
            if data[0] != _OK:
                raise EndpointError(
                    f"MySQL server {self._connection.server}: a packet of its log begins with {data[0]}"
                )
            yield data[1:]

    def _askable(self, position: LogPosition) -> LogPosition:
        """The position, or the beginning of the next file where it stands behind all transactions of its own.

        Raises:
            ReplicationError: it is beyond what a server can be asked for, and transactions follow.
        """
        if position.offset < _OFFSETS:
            return position
        files = [(str(row[0]), int(row[1])) for row in self._connection.query("SHOW BINARY LOGS")]
        for (name, size), (following, _) in pairwise(files):
            if name == position.file and size <= position.offset + _ROTATE_BYTES + len(following.encode()):
                return LogPosition(following, _FILE_START, position.gtids)
        raise ReplicationError(
            f"MySQL server {self._connection.server}: {position} is beyond 4 GB of its file, where no server can be"
            " asked to begin; FLUSH BINARY LOGS lets the log go on in another file where nothing was written since, or"
            " take a new snapshot: job 'rebuild' with this table"
        )

    def _ask(self, position: LogPosition, *, server_id: int, to_end: bool, known: GtidSet | None) -> None:
        """Registers as a replica and asks for events: from a position, or all that are not known (MySQL)."""
        import pymysql

        raw = self._connection.raw
        # Server id; empty host, user and password, which the server shows in lists of replicas; port, rank, primary.
        register = struct.pack("<IBBBHII", server_id, 0, 0, 0, 0, 0, 0)
        name = position.file.encode("utf-8")
        flags = _END_WHEN_CAUGHT_UP if to_end else 0
        try:
            raw._execute_command(_REGISTER, register)  # noqa: SLF001
            raw._read_packet()  # noqa: SLF001
            if known is None:
                raw._execute_command(_DUMP, struct.pack("<IHI", position.offset, flags, server_id) + name)  # noqa: SLF001
            else:
                seen = known.to_bytes()
                head = struct.pack("<HII", flags, server_id, len(name)) + name
                asked = head + struct.pack("<QI", position.offset, len(seen)) + seen
                raw._execute_command(_DUMP_GTID, asked)  # noqa: SLF001
        except (pymysql.Error, OSError) as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> EndpointError | ReplicationError:
        number, text = error.args[0] if error.args else None, str(error)
        if number == _LOST:
            lost = endpoint_error(self._connection.server, error)
            return EndpointError(
                f"{lost}; a server ends its connection to a reader when another one has its 'server-id'"
            )
        if number != _PURGED and _SAME_ID not in text:
            return endpoint_error(self._connection.server, error)
        if _SAME_ID in text:
            told = "another replica reads with the same server id; give every pipeline a 'server-id' of its own"
        else:
            told = (
                f"the log cannot be read from {self._position}: {error.args[1]}; where the server has purged it, what"
                " changed since is known to the database alone, and a new snapshot takes its place"
            )
        return ReplicationError(f"MySQL server {self._connection.server}: {told}")
