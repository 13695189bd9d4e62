"""Rows of a SELECT out of the packets that a server sends, many at once: columns by arithmetic over their bytes.

Protocol: text result set rows. A packet has a length of three bytes and a number, then the values of a row, each behind
its length; a row of 16 MiB and more goes on in the packets that follow. A client in Python that takes every value by
itself is the slowest part of a snapshot.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.mysql.connection import Connection, endpoint_error
from upsert_platform.mysql.text_values import TextReader

_READ_BYTES: Final = 256 << 10
"""At once: what is made of them meanwhile stays in a processor's cache."""
_BLOCK_BYTES: Final = 4 << 20
"""Bytes that are read before rows are made of them."""
_PACKET: Final = 0xFFFFFF
"""Length of a packet that the next one goes on with."""
_NULL, _TWO, _THREE, _EIGHT, _ERROR = 0xFB, 0xFC, 0xFD, 0xFE, 0xFF
"""First bytes of a value: null, or a length in so many bytes; a lesser one is the length. And that of an error."""
_HEAD: Final = struct.Struct("<I")
_BROKEN: Final = "the connection broke within an answer"
_FEW_BYTES: Final = 48 << 10
"""Below, one packet after the other is quicker."""
_MARGIN: Final = 16
"""Zero bytes behind a block, so that lengths may be looked at where none are."""


def read_rows(
    connections: Sequence[Connection], statements: Iterable[str], readers: Sequence[TextReader]
) -> Iterator[pa.RecordBatch]:
    """Rows of statements that select what readers read, a few megabytes at a time; no answer is ever held whole.

    Args:
        connections: which take turns: the server works on a statement while rows are made of the answer before.

    Raises:
        EndpointError: the server refuses a statement, or a connection broke.
        ReplicationError: a value cannot be carried.
    """
    schema = pa.schema([pa.field(reader.name, reader.type) for reader in readers])
    free, asked, rest = deque(connections), deque[Connection](), iter(statements)
    while True:
        while free and (sql := next(rest, None)) is not None:
            _ask(free[0], sql)
            asked.append(free.popleft())
        if not asked:
            return
        answering = asked.popleft()
        for block in _blocks(answering):
            arrays = [reader.read(values) for reader, values in zip(readers, block.columns(readers), strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        free.append(answering)


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows as the server sent them.

    Attributes:
        data: padded.
        starts: where the values of each row begin.
    """

    data: bytes
    starts: np.ndarray

    def columns(self, readers: Sequence[TextReader]) -> Iterator[pa.Array]:
        """Per column an array of texts, or of bytes where the type has no character set."""
        raw = np.frombuffer(self.data, np.uint8)
        buffer = pa.py_buffer(self.data)
        at = self.starts
        every_other = pa.array(np.arange(0, 2 * len(at), 2, dtype=np.int64))
        for reader in readers:
            head = raw[at]
            valid: np.ndarray | None = None
            begins, lengths = at + 1, head
            if int(head.max()) >= _NULL:
                valid, lengths = head != _NULL, head.astype(np.int64)
                lengths[~valid] = 0
                for first, width in ((_TWO, 2), (_THREE, 3), (_EIGHT, 8)):
                    long = head == first
                    if long.any():
                        places = at[long]
                        lengths[long] = sum(
                            raw[places + 1 + byte].astype(np.int64) << 8 * byte for byte in range(width)
                        )
                        begins[long] += width
            ends = begins + lengths
            # One array over the bytes as they lie, in which values and what stands between them take turns.
            bounds = np.empty(2 * len(at), np.int32)
            bounds[0::2], bounds[1::2] = begins, ends
            kind = pa.string() if reader.is_ascii else pa.binary()
            turns = pa.Array.from_buffers(kind, len(bounds) - 1, [None, pa.py_buffer(bounds), buffer])
            found = turns.take(every_other)
            if valid is not None and not valid.all():
                found = pc.if_else(pa.array(valid), found, pa.scalar(None, kind))
            yield found if reader.has_bytes or reader.is_ascii else found.cast(pa.string())
            at = ends


def _ask(connection: Connection, sql: str) -> None:
    """Sends a statement; `_blocks` reads the answer."""
    import pymysql
    from pymysql.constants import COMMAND

    try:
        connection.raw._execute_command(COMMAND.COM_QUERY, sql)  # noqa: SLF001
    except (pymysql.Error, OSError) as error:
        raise endpoint_error(connection.server, error) from error


def _blocks(connection: Connection) -> Iterator[_Block]:
    """The rows of the answer to what was asked."""
    import pymysql

    raw = connection.raw
    try:
        raw._read_query_result(unbuffered=True)  # noqa: SLF001
        source = raw._rfile  # noqa: SLF001
        _detach(raw)
        pieces: list[bytes] = []
        starts: list[np.ndarray] = []
        size, held, ended = 0, b"", False
        while not ended:
            data = held + _more(source, held) if held else _some(source)
            rows, behind, ended = _row_starts(data)
            if len(rows):
                pieces.append(data[:behind])
                starts.append(size + rows)
                size += behind
            held = data[behind:]
            long = not ended and len(held) >= 4 and _length(held, 0) == _PACKET
            if starts and (ended or long or size >= _BLOCK_BYTES):
                yield _Block(b"".join([*pieces, bytes(_MARGIN)]), np.concatenate(starts))
                pieces, starts, size = [], [], 0
            if long:
                row, held = _long_row(source, held)
                yield _Block(row + bytes(_MARGIN), np.zeros(1, np.int64))
    except (pymysql.Error, OSError) as error:
        raise endpoint_error(connection.server, error) from error


def _detach(raw: Any) -> None:
    """Takes the answer away from the client, which would read it to its end by itself."""
    result = raw._result  # noqa: SLF001
    result.unbuffered_active, result.connection, raw._result = False, None, None  # noqa: SLF001


def _length(data: bytes, at: int) -> int:
    return data[at] | data[at + 1] << 8 | data[at + 2] << 16


def _more(source: BufferedReader, held: bytes) -> bytes:
    """Return available bytes of the answer: at least one, and no more than a large packet that has begun needs."""
    missing = 4 + _length(held, 0) - len(held) if len(held) >= 4 else 0
    return _exactly(source, missing) if missing > _READ_BYTES else _some(source)


def _some(source: BufferedReader) -> bytes:
    found = source.read1(_READ_BYTES)
    if not found:
        raise OSError(_BROKEN)
    return found


def _exactly(source: BufferedReader, count: int) -> bytes:
    found = source.read(count)
    if found is None or len(found) < count:
        raise OSError(_BROKEN)
    return found


def _row_starts(data: bytes) -> tuple[np.ndarray, int, bool]:
    """Return the starts of rows, the offset behind the last whole one, and whether the answer ends there.

    Raises:
        pymysql.Error: the server ends the answer with an error.
    """
    heads, at = _linked_heads(data)
    starts, behind, ended = _starts_from(data, at)
    return np.concatenate([heads + 4, np.array(starts, np.int64)]), behind, ended


def _linked_heads(data: bytes) -> tuple[np.ndarray, int]:
    """Return the starts of packets of whole rows, many at once, and the offset behind them; none if it is uncertain.

    A head's third byte is zero in a packet below 64 KiB, and few other bytes are. Of the places that could be heads
    those are kept that another one leads to, by its length and its number. What is left is right if every place leads
    to the next one, from the first byte on; if not, nothing is said.
    """
    raw, none = np.frombuffer(data, np.uint8), np.empty(0, np.int64)
    size = len(raw)
    if size < _FEW_BYTES:
        return none, 0
    heads = np.flatnonzero(raw[2 : size - 2] == 0)
    if len(heads) > size // 8:
        return none, 0
    for _ in range(2):
        behind = _behind(raw, heads)
        inside = behind < size - 3
        to = behind[inside]
        led = np.zeros(size, bool)
        led[to[raw[to + 3] == raw[heads[inside] + 3] + np.uint8(1)]] = True
        led[0] = True
        heads = heads[led[heads]]
    behind = _behind(raw, heads)
    if not len(heads) or heads[0] != 0 or (behind[:-1] != heads[1:]).any():
        return none, 0
    # The last one may be cut off; and the end of an answer, or an error, is not a row.
    others = np.flatnonzero((behind > size) | (raw[heads + 4] >= _EIGHT))
    if len(others):
        return heads[: others[0]], int(heads[others[0]])
    return heads, int(behind[-1])


def _behind(raw: np.ndarray, heads: np.ndarray) -> np.ndarray:
    return heads + 4 + raw[heads] + (raw[heads + 1].astype(np.int64) << 8)


def _starts_from(data: bytes, at: int) -> tuple[list[int], int, bool]:
    """Return the result of `_row_starts` for the packets from one on, packet by packet."""
    starts: list[int] = []
    size, head = len(data), _HEAD.unpack_from
    while at + 5 <= size:
        length = head(data, at)[0] & _PACKET
        behind = at + 4 + length
        if behind > size or length == _PACKET:
            break
        first = data[at + 4]
        if first >= _EIGHT:
            if first == _ERROR:
                import pymysql

                pymysql.err.raise_mysql_exception(data[at + 4 : behind])
            if length < 9:
                return starts, at, True
        starts.append(at + 4)
        at = behind
    return starts, at, False


def _long_row(source: BufferedReader, held: bytes) -> tuple[bytes, bytes]:
    """The values of a row of several packets, and what was read behind it."""
    parts: list[bytes] = []
    while True:
        held += _exactly(source, max(0, 4 - len(held)))
        length = _length(held, 0)
        held += _exactly(source, max(0, 4 + length - len(held)))
        parts.append(held[4 : 4 + length])
        held = held[4 + length :]
        if length < _PACKET:
            return b"".join(parts), held
