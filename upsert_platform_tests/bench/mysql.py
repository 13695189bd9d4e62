"""Reading MySQL: a snapshot against the C client that throws rows away, and the log against the library's own decoder.

Needs a MariaDB server (Debian: mariadb-server); the library (mysql-replication) is measured where it is installed.
"""

from __future__ import annotations

import importlib.util
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from upsert_platform.local.mariadb import USER, start_mariadb
from upsert_platform.mysql.binlog.reader import LogReader, TableRows
from upsert_platform.mysql.binlog.stream import LogStream, log_end
from upsert_platform.mysql.catalog import read_table
from upsert_platform.mysql.columns import TypeRules
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform.mysql.position import LogPosition
from upsert_platform_tests.systems.followed import Followed

ROWS = 400_000
"""Of the table whose log is read."""
LARGE = 4_000_000
"""Rows of the table whose snapshot is read: a few seconds of a client, so that a session's share is small."""
PROCESSES = 2
_COLUMNS = (
    "id BIGINT PRIMARY KEY, a INT, b BIGINT UNSIGNED, c DECIMAL(12, 2), d DOUBLE, e VARCHAR(40), f VARCHAR(40),"
    " g DATETIME(3), h DATE, i TINYINT(1)"
)
_VALUES = (
    "n, n * 7 % 1000003, n * 1000003, n / 7, n / 3, CONCAT('name ', n), CONCAT('city ', n % 1000),"
    " '2024-01-01' + INTERVAL n SECOND, '2024-01-01' + INTERVAL n % 1000 DAY, n % 2"
)


def run() -> Iterator[dict[str, Any]]:
    """One measure each: rows per second."""
    with tempfile.TemporaryDirectory() as folder, start_mariadb(Path(folder) / "server") as mariadb:
        server = Server("127.0.0.1", mariadb.port, USER, mariadb.password)
        with Connection(server) as connection:
            connection.query("CREATE DATABASE bench CHARACTER SET utf8mb4")
            start = log_end(connection)
            _fill(connection, "t", ROWS)
            connection.query("SET SESSION sql_log_bin = OFF")
            _fill(connection, "few", 40_000)
            _fill(connection, "large", LARGE)
        yield from _log(server, start)
        yield from _snapshot(server, Path(folder))


def _fill(connection: Connection, table: str, rows: int) -> None:
    connection.query(f"CREATE TABLE bench.{table} ({_COLUMNS})")
    for low in range(1, rows, 20_000):
        numbers = f"SELECT seq n FROM mysql.seq_{low}_to_{low + 19_999}"
        connection.query(f"INSERT INTO bench.{table} SELECT {_VALUES} FROM ({numbers}) s")


def _log(server: Server, start: LogPosition) -> Iterator[dict[str, Any]]:
    with Connection(server) as connection:
        table = read_table(connection, "bench", "t")
    with LogStream(server, start, server_id=secrets.randbelow(10**9) + 10, to_end=True) as stream:
        events, checksum = list(stream), stream.checksum
    began, count = time.perf_counter(), 0
    reader = LogReader(start, lambda *_: table, rules=TypeRules(), checksum=checksum)
    for event in events:
        count += sum(item.rows.num_rows for item in reader.read(event) if isinstance(item, TableRows))
    count += sum(item.rows.num_rows for item in reader.drain() if isinstance(item, TableRows))
    own = count / (time.perf_counter() - began)
    assert count == ROWS
    measured = {"measure": "binlog_decode", "rows": count, "rows_per_second": round(own)}
    if importlib.util.find_spec("pymysqlreplication") is None:
        yield {**measured, "note": "mysql-replication is not installed: its own decoder was not measured"}
        return
    with Connection(server) as connection:
        library = _library(connection, events, checksum=checksum)
    yield {**measured, "library_rows_per_second": round(library), "ratio": round(own / library, 2)}


def _library(connection: Connection, events: list[bytes], *, checksum: bool) -> float:
    """Rows per second of the library, given the same packets: its stream connects anew for ever with MariaDB."""
    from pymysql.connections import MysqlPacket
    from pymysqlreplication.event import FormatDescriptionEvent
    from pymysqlreplication.packet import BinLogPacketWrapper
    from pymysqlreplication.row_event import TableMapEvent, WriteRowsEvent

    connection.raw._get_dbms = lambda: "mariadb"
    allowed = frozenset((FormatDescriptionEvent, TableMapEvent, WriteRowsEvent))
    version = tuple(int(part) for part in connection.query("SELECT VERSION()")[0][0].split("-")[0].split("."))
    maps: dict[int, Any] = {}
    lengths: Any = None
    began, count = time.perf_counter(), 0
    for data in events:
        packet = MysqlPacket(b"\0" + data, "utf8")
        found = BinLogPacketWrapper(
            packet, maps, connection.raw, version, checksum, allowed, None, None, None, None, False, False, False,
            False, False, True, lengths,
        )  # fmt: skip
        if isinstance(found.event, FormatDescriptionEvent):
            lengths = found.event.post_header_len
        elif isinstance(found.event, TableMapEvent):
            maps[found.event.table_id] = found.event.get_table()
        elif isinstance(found.event, WriteRowsEvent):
            count += len(found.event.rows)
    assert count == ROWS
    return count / (time.perf_counter() - began)


def _snapshot(server: Server, folder: Path) -> Iterator[dict[str, Any]]:
    """A whole sync of a table in a session that has read another one; the client before it and behind it."""
    from upsert_platform.jvm.session import open_session

    spark = open_session({"spark.master": f"local[{PROCESSES}]"})
    try:
        Followed(spark, server, "bench", "few", folder / "lake", {}).sync()
        before = _client(server)
        followed = Followed(spark, server, "bench", "large", folder / "lake", {})
        began = time.perf_counter()
        result = followed.sync()
        seconds = time.perf_counter() - began
        client = (before + _client(server)) / 2
    finally:
        spark.stop()
    assert result.account.rows == LARGE
    yield {
        "measure": "mysql_snapshot",
        "rows": LARGE,
        "rows_per_second": round(LARGE / seconds),
        "client_rows_per_second": round(LARGE / client),
        "ratio": round(client / seconds, 2),
    }


def _client(server: Server) -> float:
    """Seconds that as many processes of the C client take, each with its share, which they write to nowhere."""
    command = [
        *("mariadb", "--no-defaults", "--quick", "--batch", "--skip-column-names", f"--host={server.host}"),
        *(f"--port={server.port}", f"--user={server.user}", f"--password={server.password}"),
    ]
    share = LARGE // PROCESSES
    began = time.perf_counter()
    clients = [
        subprocess.Popen(
            [*command, "-e", f"SELECT * FROM bench.large WHERE id > {share * n} AND id <= {share * (n + 1)}"],
            stdout=subprocess.DEVNULL,
        )
        for n in range(PROCESSES)
    ]
    assert [client.wait() for client in clients] == [0] * PROCESSES
    return time.perf_counter() - began
