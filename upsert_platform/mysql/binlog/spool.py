"""One reading of a server's log for all tables that a process follows.

What one table's reader was sent is kept on disk, as it came, up to the last transaction that it read whole. The reader
of another table, whose position is in there, is given those bytes again, and asks the server for what follows alone.
"""

from __future__ import annotations

import os
import struct
import tempfile
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, Self

from upsert_platform.mysql.binlog.events import ARTIFICIAL, HEADER, EventType, has_checksum
from upsert_platform.mysql.binlog.stream import LogStream, log_end
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform.mysql.position import LogPosition

MOST_BYTES: Final = 1 << 30
"""Disk that what was read of one server may take; a reading that is longer is not kept."""
_PATIENCE_SECONDS: Final = 120.0
"""How long a reader waits for another one of the same server, before it asks the server by itself."""
_LENGTH: Final = struct.Struct("<I")
_POSITION: Final = struct.Struct("<Q")
_READ_BYTES: Final = 1 << 20
_SLACK_SECONDS: Final = 2.0
_WITHIN: Final = frozenset(
    (
        *range(EventType.TABLE_MAP, EventType.DELETE_ROWS_V1 + 1),
        *range(EventType.WRITE_ROWS, EventType.ANONYMOUS_GTID + 1),
        *range(EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1, EventType.MARIADB_DELETE_ROWS_COMPRESSED + 1),
        EventType.PARTIAL_UPDATE_ROWS,
        EventType.MARIADB_ANNOTATE_ROWS,
        EventType.MARIADB_GTID,
    )
)
"""Types of events behind which no reader ever stops."""
_BEATS: Final = (EventType.HEARTBEAT, EventType.HEARTBEAT_V2)


class _Chain:
    """Events without a gap, in a file that has no name.

    Attributes:
        end: the place behind the last of them that counts.
        size: bytes of the file that count; what follows was read of a transaction that may not be whole.
        full: whether more was read than is kept.
    """

    def __init__(self, start: LogPosition, *, checksum: bool) -> None:
        self.checksum = checksum
        self.end = start
        self.size = 0
        self.full = False
        self._file = tempfile.TemporaryFile(prefix="upsert-platform-log-")  # noqa: SIM115 (closed by `close`)
        self._name = start.file
        self._tail = 0
        self._places = array("Q", [_number(start)])
        self._offsets = array("Q", [0])
        self._descriptions: list[tuple[int, bytes]] = []

    def close(self) -> None:
        """Gives the disk back."""
        self._file.close()

    def offset_of(self, position: LogPosition) -> int | None:
        """Return the file offset of the events behind a position, or None if no event ends there."""
        wanted = _number(position)
        at = bisect_left(self._places, wanted)
        if at == len(self._places) or self._places[at] != wanted or self._offsets[at] > self.size:
            return None
        return self._offsets[at]

    def add(self, data: bytes) -> None:
        """Keeps one more event, on trial."""
        kind, end, flags = data[4], int.from_bytes(data[13:17], "little"), int.from_bytes(data[17:19], "little")
        if kind in _BEATS:
            return
        artificial = bool(flags & ARTIFICIAL)
        place: LogPosition | None = None
        if kind == EventType.ROTATE:
            body = data[HEADER.size : -4] if has_checksum(data) else data[HEADER.size :]
            self._name = body[_POSITION.size :].decode("utf-8")
            if artificial and not self._tail:
                return  # a replay begins with one of its own
            place = None if artificial else LogPosition(self._name, _POSITION.unpack_from(body)[0])
        elif kind == EventType.FORMAT_DESCRIPTION:
            self._descriptions.append((self._tail, data))
        elif end and not artificial and kind not in _WITHIN:
            place = LogPosition(self._name, end)
        if self._tail + len(data) > MOST_BYTES:
            self.full = True
        if self.full:
            return
        self._file.write(_LENGTH.pack(len(data)))
        self._file.write(data)
        self._tail += _LENGTH.size + len(data)
        if place is not None and _number(place) > self._places[-1]:
            self._places.append(_number(place))
            self._offsets.append(self._tail)

    def settle(self, position: LogPosition) -> bool:
        """Ends the chain at a place between two transactions, or where it ended before; False where it does neither."""
        position = max(position, self.end, key=_number)
        wanted = _number(position)
        at = bisect_left(self._places, wanted)
        if self.full or at == len(self._places) or self._places[at] != wanted:
            return False
        del self._places[at + 1 :], self._offsets[at + 1 :]
        self.end, self.size = LogPosition(position.file, position.offset), self._offsets[at]
        self._name, self._tail = position.file, self.size
        self._descriptions = [item for item in self._descriptions if item[0] < self.size]
        self._file.flush()
        self._file.seek(self.size)
        self._file.truncate()
        return True

    def opening(self, position: LogPosition, offset: int) -> Iterator[bytes]:
        """Yield the first data that a server sends to a reader that begins at a position."""
        body = _POSITION.pack(position.offset) + position.file.encode("utf-8")
        yield HEADER.pack(0, EventType.ROTATE, 0, HEADER.size + len(body), 0, ARTIFICIAL) + body
        at = bisect_left([place for place, _ in self._descriptions], offset) - 1
        if at >= 0:
            told = self._descriptions[at][1]
            yield told[:13] + bytes(4) + told[17:]  # of no place: it stands before

    def events(self, offset: int) -> Iterator[bytes]:
        """The events from a place in the file on."""
        held = b""
        while offset < self.size or held:
            while len(held) < (wanted := _needed(held)):
                some = min(max(_READ_BYTES, wanted - len(held)), self.size - offset)
                more = os.pread(self._file.fileno(), some, offset)
                assert more, "the chain ends within an event"
                held, offset = held + more, offset + len(more)
            at = 0
            while len(held) - at >= _LENGTH.size:
                behind = at + _LENGTH.size + _LENGTH.unpack_from(held, at)[0]
                if behind > len(held):
                    break
                yield held[at + _LENGTH.size : behind]
                at = behind
            held = held[at:]


class LogSpool:
    """The spool of one server's log; readers take turns.

    Attributes:
        chain: None before the first.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.turn = threading.Lock()
        self.chain: _Chain | None = None
        self._up: tuple[float, float] | None = None

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """Reads the log beside its readers: behind them, or at the end of the patience with them."""
        has_turn = self.turn.acquire(timeout=_PATIENCE_SECONDS)
        try:
            yield
        finally:
            if has_turn:
                self.turn.release()

    def found(self, position: LogPosition) -> tuple[_Chain, int] | None:
        """The chain, and the place in its file at which a reader begins; None where the server has to be asked."""
        offset = self.chain.offset_of(position) if self.chain is not None else None
        if self.chain is None or offset is None or not self._is_the_same_log(self.chain):
            return None
        return self.chain, offset

    def begin(self, position: LogPosition, *, checksum: bool) -> _Chain:
        """A chain from a place on, instead of the one that there was."""
        self.forget()
        with Connection(self.server) as connection:
            self._up = (_uptime(connection), time.monotonic())
        self.chain = _Chain(position, checksum=checksum)
        return self.chain

    def forget(self) -> None:
        """Gives up the chain."""
        if self.chain is not None:
            self.chain.close()
        self.chain = None

    def _is_the_same_log(self, chain: _Chain) -> bool:
        """Return whether the server has been up all the time, and its log is not shorter than what was read of it."""
        assert self._up is not None
        with Connection(self.server) as connection:
            uptime, now = _uptime(connection), time.monotonic()
            before, then = self._up
            self._up = (uptime, now)
            return uptime >= before + (now - then) - _SLACK_SECONDS and log_end(connection).order() >= chain.end.order()


@lru_cache(maxsize=8)
def spool_of(server: Server) -> LogSpool:
    """The one of a server, in this process."""
    return LogSpool(server)


class SpooledLog:
    """As `LogStream` up to the log's end, of a position between two transactions; the caller closes it.

    Args:
        begins: whether what is read is kept where nothing before it is.

    Attributes:
        checksum: whether events have checksums.
        sent: whether the server was asked for events.

    Raises:
        EndpointError: the server is not reached, or refuses the user.
    """

    def __init__(
        self, spool: LogSpool, position: LogPosition, *, server_id: int, heartbeat: float = 30.0, begins: bool = True
    ) -> None:
        self._spool = spool
        self._position = position
        self._server_id, self._heartbeat = server_id, heartbeat
        self._stream: LogStream | None = None
        self._chain: _Chain | None = None
        self._offset: int | None = None
        self._settled = False
        self.sent = False
        self._has_turn = spool.turn.acquire(timeout=_PATIENCE_SECONDS)
        try:
            found = spool.found(position) if self._has_turn else None
            if found is not None:
                self._chain, self._offset = found
                self.checksum = self._chain.checksum
            else:
                self._stream = self._open(position)
                self.checksum = self._stream.checksum
                if self._has_turn and begins:
                    self._chain = spool.begin(position, checksum=self.checksum)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        """Events, with what the server sends before the first one.

        Raises:
            ReplicationError: the position is not in the log any more.
            EndpointError: the connection broke.
        """
        replays = self._offset is not None
        if self._chain is not None and self._offset is not None:
            yield from self._chain.opening(self._position, self._offset)
            yield from self._chain.events(self._offset)
            self._stream = self._open(self._chain.end)
        assert self._stream is not None
        for number, data in enumerate(self._stream):
            if replays and number == 0 and data[4] == EventType.ROTATE:
                continue  # tells the file and the place that the reader is at
            if self._chain is not None:
                self._chain.add(data)
            yield data

    def settle(self, position: LogPosition) -> None:
        """Keeps what was read up to a place between two transactions, for other readers."""
        if self._chain is not None and self._chain.settle(position):
            self._settled = True

    def close(self) -> None:
        """Ends the stream; what was not settled is forgotten, and the next reader has its turn."""
        if self._stream is not None:
            self._stream.close()
        if not self._has_turn:
            return
        self._has_turn = False
        chain, self._chain = self._chain, None
        try:
            if chain is not None and not self._settled and not (self._offset is not None and chain.settle(chain.end)):
                self._spool.forget()
        finally:
            self._spool.turn.release()

    def _open(self, position: LogPosition) -> LogStream:
        self.sent = True
        return LogStream(
            self._spool.server, position, server_id=self._server_id, to_end=True, heartbeat=self._heartbeat
        )


def _needed(held: bytes) -> int:
    """Bytes of the first event that is held, with its length; those of the length where that is not there yet."""
    return _LENGTH.size + (_LENGTH.unpack_from(held)[0] if len(held) >= _LENGTH.size else 0)


def _number(position: LogPosition) -> int:
    """Files and offsets in the order of the log; one transaction of a file may stand beyond 32 bits."""
    file, offset = position.order()
    return (file << 33) + offset


def _uptime(connection: Connection) -> float:
    return float(connection.query("SHOW GLOBAL STATUS LIKE 'Uptime'")[0][1])
