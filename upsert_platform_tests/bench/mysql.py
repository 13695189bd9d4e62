"""Reading MySQL: a snapshot against the C client that throws rows away, and the log against the library's own decoder.

Needs a MariaDB server (Debian: mariadb-server). What is compared runs in turn, several times; beside the clock the
processor's seconds are told, the server's among them, which other work on the machine changes less.
"""

from __future__ import annotations

import secrets
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from upsert_platform.changelog.tables import TableLocation
from upsert_platform.local.database import USER, start_database
from upsert_platform.local.mariadb import mariadb_server
from upsert_platform.mysql.binlog.changes import TableRows
from upsert_platform.mysql.binlog.reader import LogReader
from upsert_platform.mysql.binlog.stream import LogStream, log_end
from upsert_platform.mysql.catalog import read_table
from upsert_platform.mysql.chunks import find_chunks
from upsert_platform.mysql.columns import MySqlTable, TypeRules
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform.mysql.position import LogPosition
from upsert_platform.mysql.snapshot import SnapshotPart, selected_rows
from upsert_platform_tests.systems.followed import Followed
from upsert_platform_tests.systems.library_decoder import library_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 2
ROWS = 100_000
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
    told = {"binlog-row-metadata": "FULL"}  # the library reads names and signs from the log alone
    with (
        tempfile.TemporaryDirectory() as folder,
        start_database(mariadb_server, Path(folder) / "server", variables=told) as mariadb,
    ):
        server = Server("127.0.0.1", mariadb.port, USER, mariadb.password)
        with Connection(server) as connection:
            connection.query("CREATE DATABASE bench CHARACTER SET utf8mb4")
            start = log_end(connection)
            _fill(connection, "t", ROWS)
            connection.query("SET SESSION sql_log_bin = OFF")
            _fill(connection, "few", 40_000)
            _fill(connection, "large", LARGE)
        yield _log(server, start)
        yield from _snapshot(server, Path(folder))


def _fill(connection: Connection, table: str, rows: int) -> None:
    connection.query(f"CREATE TABLE bench.{table} ({_COLUMNS})")
    for low in range(1, rows, 20_000):
        numbers = f"SELECT seq n FROM mysql.seq_{low}_to_{low + 19_999}"
        connection.query(f"INSERT INTO bench.{table} SELECT {_VALUES} FROM ({numbers}) s")


@dataclass(frozen=True, slots=True)
class _Spent:
    """Seconds of several rounds."""

    wall: float = 0.0
    processor: float = 0.0

    def __add__(self, other: _Spent) -> _Spent:
        return _Spent(self.wall + other.wall, self.processor + other.processor)


def _spent(work: Callable[[], object], processor: Callable[[], float]) -> _Spent:
    began, used = time.perf_counter(), processor()
    work()
    return _Spent(time.perf_counter() - began, processor() - used)


def _of_all() -> float:
    """Seconds of the processor that this process and all below it have used, the server too."""
    own = psutil.Process()
    # The times of a process that has ended are among those of its parent.
    return sum(sum(process.cpu_times()[:4]) for process in (own, *own.children(recursive=True)))


def _told(measure: str, rows: int, ours: _Spent, other: _Spent, name: str) -> dict[str, Any]:
    rows *= ROUNDS
    return {
        "measure": measure,
        "rows_per_second": round(rows / ours.wall),
        f"{name}_rows_per_second": round(rows / other.wall),
        "ratio": round(other.wall / ours.wall, 2),
        "processor_microseconds_per_row": round(ours.processor / rows * 1e6, 2),
        f"{name}_processor_microseconds_per_row": round(other.processor / rows * 1e6, 2),
        "processor_ratio": round(other.processor / ours.processor, 2),
    }


def _log(server: Server, start: LogPosition) -> dict[str, Any]:
    """The same events, given to our decoder and to the library's."""
    with Connection(server) as connection:
        table = read_table(connection, "bench", "t")
        assert table is not None
        with LogStream(server, start, server_id=secrets.randbelow(10**9) + 10, to_end=True) as stream:
            events, checksum = list(stream), stream.checksum
        own = partial(_decode, events, table, start, checksum=checksum)
        theirs = partial(_decode_by_library, events, connection, checksum=checksum)
        own()  # what a first time loads is not the decoder's
        ours = library = _Spent()
        for _ in range(ROUNDS):
            ours += _spent(own, time.process_time)
            library += _spent(theirs, time.process_time)
    return _told("binlog_decode", ROWS, ours, library, "library")


def _decode(events: list[bytes], table: MySqlTable, start: LogPosition, *, checksum: bool) -> None:
    reader = LogReader(start, lambda *_: table, rules=TypeRules(), checksum=checksum)
    told = (item for event in (*events, None) for item in (reader.drain() if event is None else reader.read(event)))
    assert sum(item.rows.num_rows for item in told if isinstance(item, TableRows)) == ROWS


def _decode_by_library(events: list[bytes], connection: Connection, *, checksum: bool) -> None:
    assert sum(1 for _ in library_rows(connection, events, kind="mariadb", checksum=checksum)) == ROWS


def _snapshot(server: Server, folder: Path) -> Iterator[dict[str, Any]]:
    """Syncs of a table in a session that has read another one, and what its tasks read alone, thrown away."""
    from upsert_platform.spark.session import open_session

    spark = open_session({"spark.master": f"local[{PROCESSES}]"})
    spent: dict[str, _Spent] = defaultdict(_Spent)
    try:
        Followed(spark, server, "bench", "few", folder / "lake", {}).sync()
        _client(server)  # beside it the server still writes the pages that were filled
        for number in range(ROUNDS):
            spent["client"] += _spent(partial(_client, server), _of_all)
            spent["read"] += _spent(partial(_read, spark, server, folder), _of_all)
            spent["whole"] += _spent(partial(_sync, spark, server, folder / f"lake{number}"), _of_all)
    finally:
        spark.stop()
    yield _told("mysql_snapshot_read", LARGE, spent["read"], spent["client"], "client")
    yield _told("mysql_snapshot", LARGE, spent["whole"], spent["client"], "client")


def _sync(spark: SparkSession, server: Server, lake: Path) -> None:
    assert Followed(spark, server, "bench", "large", lake, {}).sync().account.rows == LARGE


def _read(spark: SparkSession, server: Server, folder: Path) -> None:
    """The rows of all chunks as Arrow, which tasks throw away: what comes behind is the landing in the lake."""
    source = Followed(spark, server, "bench", "large", folder / "none", {}).source()
    settings = source.settings
    with Connection(server) as connection:
        table = read_table(connection, "bench", "large")
        assert table is not None
        chunks, ended = find_chunks(connection, table, after=None, rows=settings.chunk_size, most=LARGE)
    assert ended
    part = SnapshotPart(settings, source.table, table, 1, 1, TableLocation.of(str(folder / "none")))
    tasks = 2 * PROCESSES

    def counted(numbers: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        mine = [chunk for batch in numbers for number in batch.column(0).to_pylist() for chunk in chunks[number::tasks]]
        yield pa.record_batch({"rows": [sum(block.num_rows for block in selected_rows(part, mine))]})

    found = spark.range(0, tasks, 1, tasks).mapInArrow(counted, "rows BIGINT").collect()
    assert sum(row["rows"] for row in found) == LARGE


def _client(server: Server) -> None:
    """As many processes of the C client, each with its share, which they write to nowhere."""
    command = [
        *("mariadb", "--no-defaults", "--quick", "--batch", "--skip-column-names", f"--host={server.host}"),
        *(f"--port={server.port}", f"--user={server.user}", f"--password={server.password}"),
    ]
    share = LARGE // PROCESSES
    clients = [
        subprocess.Popen(
            [*command, "-e", f"SELECT * FROM bench.large WHERE id > {share * n} AND id <= {share * (n + 1)}"],
            stdout=subprocess.DEVNULL,
        )
        for n in range(PROCESSES)
    ]
    assert [client.wait() for client in clients] == [0] * PROCESSES
