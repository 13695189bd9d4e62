"""Compressed parts of a log: MySQL's whole transactions (zstd), MariaDB's statements and rows (zlib)."""

from __future__ import annotations

import zlib
from typing import Final

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.events import Event, split_events
from upsert_platform.mysql.binlog.packed import Reader

_END, _SIZE, _ALGORITHM, _WHOLE_SIZE = range(4)
"""Fields of MySQL's TRANSACTION_PAYLOAD; after the end comes the payload."""
_ZSTD, _NONE = 0, 255
MAX_TRANSACTION: Final = 1 << 31
"""Bytes that a transaction may have when it is unpacked; no more than that fits an Arrow array."""


def unpack_transaction(event: Event, *, place: str) -> list[Event]:
    """Events of a compressed transaction of MySQL, which have no checksums of their own.

    Raises:
        ReplicationError: it is packed in a way that is not known, or does not unpack to the size it says.
    """
    told = f"{place}: event TRANSACTION_PAYLOAD"
    reader = Reader(event.body, told)
    fields: dict[int, int] = {}
    while (name := reader.packed()) != _END:
        length = reader.packed()
        inner = Reader(reader.take(length), told)
        fields[name] = inner.packed()
    algorithm = fields.get(_ALGORITHM)
    packed = reader.take(fields.get(_SIZE, reader.left))
    if algorithm == _NONE:
        return split_events(packed, place=place)
    if algorithm != _ZSTD:
        raise ReplicationError(f"{told} is compressed by algorithm {algorithm}; zstd (0) and none (255) are known")
    size = fields.get(_WHOLE_SIZE)
    if size is None or size > MAX_TRANSACTION:
        raise ReplicationError(f"{told} unpacks to {size} bytes; at most {MAX_TRANSACTION} are read")
    return split_events(_unpack_zstd(packed, size, told), place=place)


def _unpack_zstd(packed: bytes, size: int, told: str) -> bytes:
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            whole = bytes(stream.read(size + 1))
    except OSError as error:
        raise ReplicationError(f"{told} cannot be unpacked: {error}") from error
    if len(whole) != size:
        raise ReplicationError(f"{told} says {size} bytes and unpacks to {'more' if len(whole) > size else len(whole)}")
    return whole


def unpack_mariadb(packed: bytes, *, place: str) -> bytes:
    """Decompress data of MariaDB: a byte with algorithm and width, the size big-endian, the bytes.

    Raises:
        ReplicationError: the algorithm is not zlib, or the size is another.
    """
    reader = Reader(packed, f"{place}: a compressed event")
    head = reader.number(1)
    algorithm, width = (head >> 4) & 0x07, head & 0x07
    if not head & 0x80 or algorithm != 0:
        raise ReplicationError(f"{place}: an event is compressed by algorithm {algorithm}; zlib (0) is known")
    size = int.from_bytes(reader.take(width), "big")
    if size > MAX_TRANSACTION:
        raise ReplicationError(f"{place}: an event unpacks to {size} bytes; at most {MAX_TRANSACTION} are read")
    try:
        unpacker = zlib.decompressobj()
        whole = unpacker.decompress(reader.take(reader.left), size + 1)
    except zlib.error as error:
        raise ReplicationError(f"{place}: a compressed event cannot be unpacked: {error}") from error
    if len(whole) != size or not unpacker.eof:
        raise ReplicationError(f"{place}: a compressed event does not unpack to the {size} bytes that it says")
    return whole
