"""Tables of one server share one reading of its log: what the server sends, and that every table ends equal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from upsert_platform.local.database import Database
from upsert_platform.mysql.binlog import spool
from upsert_platform.mysql.binlog.events import EventType
from upsert_platform.mysql.binlog.spool import SpooledLog, spool_of
from upsert_platform.mysql.binlog.stream import log_end
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform.mysql.known_gtids import with_gtids
from upsert_platform.mysql.position import LogPosition
from upsert_platform_tests.systems.followed import Followed
from upsert_platform_tests.systems.servers import numbers, server_of

pytestmark = pytest.mark.systems

TABLES = ("a", "b", "c", "d")


def _bytes_sent(connection: Connection) -> int:
    return int(connection.query("SHOW GLOBAL STATUS LIKE 'Bytes_sent'")[0][1])


def _write(connection: Connection, schema: str, *, turn: int) -> None:
    for name in TABLES:
        connection.query(
            f"INSERT INTO {schema}.{name} (id, v) SELECT seq + {turn * 10_000}, REPEAT(CHAR(65 + seq % 26), 200)"
            f" FROM {numbers(2_000)}"
        )
        connection.query(f"UPDATE {schema}.{name} SET v = '{turn}' WHERE id % 5 = {turn}")
        connection.query(f"DELETE FROM {schema}.{name} WHERE id % 7 = {turn}")


def test_a_server_sends_its_log_once_for_all_tables(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    for name in TABLES:
        connection.query(f"CREATE TABLE {schema}.{name} (id INT PRIMARY KEY, v VARCHAR(200))")
    followed = [follow(name) for name in TABLES]
    for item in followed:
        item.sync()
    for turn in range(3):
        start = log_end(connection)
        _write(connection, schema, turn=turn)
        connection.query("FLUSH BINARY LOGS")
        if turn == 1:
            connection.query(f"ALTER TABLE {schema}.b ADD COLUMN w INT")
        _write(connection, schema, turn=turn + 3)
        sizes = {str(row[0]): int(row[1]) for row in connection.query("SHOW BINARY LOGS")}
        written = sizes[start.file] - start.offset + log_end(connection).offset
        before = _bytes_sent(connection)
        for item in followed if turn < 2 else reversed(followed):
            item.sync()
        sent = _bytes_sent(connection) - before
        assert sent < 1.3 * written, (turn, sent, written)
        for item in followed:
            while item.hop().plan().backlog:
                item.sync()
            assert item.rows() == item.wanted()
            item.sums()


def test_a_reading_that_breaks_off_is_not_given_to_others(
    connection: Connection, schema: str, server: Server, follow: Callable[..., Followed]
) -> None:
    """What stands behind the last whole transaction of a reader that failed is asked of the server again."""
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT)")
    start = log_end(connection)
    connection.query(f"INSERT INTO {schema}.t SELECT seq, 1 FROM {numbers(100)}")
    end = log_end(connection)
    connection.query(f"INSERT INTO {schema}.t SELECT seq, 2 FROM {numbers(200, first=101)}")
    own = spool_of(server)
    with SpooledLog(own, start, server_id=71, heartbeat=30) as log:
        whole = list(log)
        log.settle(end)
    with pytest.raises(ZeroDivisionError), SpooledLog(own, start, server_id=71, heartbeat=30) as log:
        for number, _ in enumerate(log):
            assert number < len(whole) - 1 or 1 / 0
    assert own.chain is not None
    assert own.chain.end.order() == end.order()
    with SpooledLog(own, start, server_id=71, heartbeat=30) as log:
        again = list(log)
    rows = [data for data in whole if data[4] in (23, 30)]
    assert [data for data in again if data[4] in (23, 30)] == rows
    assert len(rows) >= 2
    with SpooledLog(own, end, server_id=71, heartbeat=30) as log:
        assert [data for data in log if data[4] in (23, 30)] == rows[-1:]


def test_a_reading_that_is_too_long_is_not_kept(
    connection: Connection, schema: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v VARCHAR(200))")
    start = log_end(connection)
    connection.query(f"INSERT INTO {schema}.t SELECT seq, REPEAT('x', 200) FROM {numbers(2_000)}")
    monkeypatch.setattr(spool, "MOST_BYTES", 100_000)
    own = spool_of(server)
    with SpooledLog(own, start, server_id=72, heartbeat=30) as log:
        first = list(log)
        log.settle(log_end(connection))
    assert own.chain is None
    with SpooledLog(own, start, server_id=72, heartbeat=30) as log:
        assert list(log) == first


def test_a_server_that_was_started_anew_is_asked_again(
    spark: SparkSession, tmp_path: Path, start: Callable[..., Database]
) -> None:
    data = tmp_path / "server"
    database = start(data)
    try:
        server = server_of(database)
        followed = [Followed(spark, server, "shop", name, tmp_path, {}) for name in ("a", "b")]
        with Connection(server) as connection:
            connection.query("CREATE DATABASE shop")
            for item in followed:
                connection.query(f"CREATE TABLE shop.{item.name} (id INT PRIMARY KEY, v INT)")
                item.sync()
                connection.query(f"INSERT INTO shop.{item.name} VALUES (1, 1)")
        followed[0].sync()
        assert spool_of(server).chain is not None
        database.stop()
        database = start(data, port=server.port, password=server.password)
        with Connection(server) as connection:
            begin = log_end(connection)
        with SpooledLog(spool_of(server), begin, server_id=73, heartbeat=30) as log:
            assert log.sent
        for item in followed:
            item.sync()
            assert item.rows() == item.wanted() == [(1, 1)]
    finally:
        database.stop()


def test_global_ids_are_read_in_turn_with_readers_of_the_same_id(
    connection: Connection, schema: str, server: Server
) -> None:
    """The server would end the reader that came first. MariaDB tells the ids without sending its log."""
    start = log_end(connection)
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    end = log_end(connection)
    found: list[LogPosition] = []

    def ask() -> None:
        with Connection(server) as own:
            found.append(with_gtids(own, end, executed="", server_id=71))

    asking = threading.Thread(target=ask)
    with SpooledLog(spool_of(server), start, server_id=71) as log:
        asking.start()
        asking.join(3)
        assert asking.is_alive() is not connection.is_mariadb()
        assert any(data[4] == EventType.QUERY for data in log)
    asking.join(60)
    assert [bool(position.gtids) for position in found] == [True]
