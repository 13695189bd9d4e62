"""Rows of a log as mysql-replication decodes them, from the bytes of its events: what our decoder is compared with.

The library's own stream connects anew for ever with MariaDB, so its classes of packets and events are given the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pymysql.connections import MysqlPacket
from pymysqlreplication.event import FormatDescriptionEvent
from pymysqlreplication.packet import BinLogPacketWrapper
from pymysqlreplication.row_event import DeleteRowsEvent, TableMapEvent, UpdateRowsEvent, WriteRowsEvent

from upsert_platform.mysql.connection import Connection

_ALLOWED = frozenset((FormatDescriptionEvent, TableMapEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent))


def library_rows(
    connection: Connection, events: Iterable[bytes], *, kind: str, checksum: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kind and values of every row, in the order of the log of a server.

    Args:
        connection: to the server, whose 'binlog_row_metadata' is FULL: it tells the library names and signs.
        events: as `LogStream` gives them.
        kind: of the server: ``mariadb`` or ``mysql``.
        checksum: whether four bytes of one are behind each.
    """
    connection.raw._get_dbms = lambda: kind
    version = connection.version()
    maps: dict[int, Any] = {}
    lengths: Any = None
    for data in events:
        event = BinLogPacketWrapper(
            MysqlPacket(b"\0" + data, "utf8"),
            table_map=maps,
            ctl_connection=connection.raw,
            mysql_version=version,
            use_checksum=checksum,
            allowed_events=_ALLOWED,
            only_tables=None,
            ignored_tables=None,
            only_schemas=None,
            ignored_schemas=None,
            freeze_schema=False,
            ignore_decode_errors=False,
            verify_checksum=False,
            optional_meta_data=True,
            enable_logging=False,
            post_header_lengths=lengths,
        ).event
        if isinstance(event, FormatDescriptionEvent):
            lengths = event.post_header_len
        elif isinstance(event, TableMapEvent):
            maps[event.table_id] = event.get_table()
        elif isinstance(event, WriteRowsEvent):
            yield from (("+I", row["values"]) for row in event.rows)
        elif isinstance(event, DeleteRowsEvent):
            yield from (("-D", row["values"]) for row in event.rows)
        elif isinstance(event, UpdateRowsEvent):
            for row in event.rows:
                yield "-U", row["before_values"]
                yield "+U", row["after_values"]
