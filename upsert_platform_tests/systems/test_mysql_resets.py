"""Logs that are not what they seem: files that were begun anew, streams that end early, tables that keep old rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from upsert_platform.core.errors import EndpointError, ReplicationError
from upsert_platform.local.database import Database
from upsert_platform.mysql.binlog.stream import LogStream, log_end
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform.mysql.log_batch import next_change
from upsert_platform.sync.checkups.databases import checked_table
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform_tests.systems.followed import Followed, fill
from upsert_platform_tests.systems.servers import ONLY_MARIADB, server_of

pytestmark = pytest.mark.systems

NOBODY = cast("SparkSession", None)
"""Nothing is read by Spark here."""


def reset(connection: Connection) -> None:
    """Begins the log anew; a server refuses it as long as a reader that has just ended may need it."""
    for left in range(300, -1, -1):
        try:
            connection.query("RESET MASTER")
        except EndpointError:
            if not left:
                raise
            time.sleep(0.1)
        else:
            return


@pytest.mark.parametrize("read_between", [False, True])
def test_a_log_that_was_reset_is_not_read_as_if_it_went_on(
    read_between: bool, spark: SparkSession, tmp_path: Path, start: Callable[..., Database]
) -> None:
    """The file of the position is there again, is longer than before, and holds other changes."""
    with start(tmp_path / "server") as database:
        server = server_of(database)
        with Connection(server) as connection:
            reset(connection)
            connection.query("CREATE DATABASE shop")
            fill(connection, "shop")
            followed = Followed(spark, server, "shop", "t", tmp_path, {})
            followed.sync()
            if read_between:
                connection.query("UPDATE shop.t SET v = 1")
                followed.sync()
            place = log_end(connection)
            time.sleep(1.1)  # a server dates its files to the second
            reset(connection)
            connection.query("DELETE FROM shop.t WHERE id % 2 = 0")
            while log_end(connection).order() <= place.order():
                connection.query("UPDATE shop.t SET v = v + 1")
            connection.query("UPDATE shop.t SET name = 'late' WHERE id < 9")
            told = r"file log\.000001 of the log is another one than was read.*'rebuild' with this table"
            for _ in range(2):
                with pytest.raises(ReplicationError, match=told):
                    followed.sync()
            assert followed.hop().begin_anew() is not None
            followed.sync()
            connection.query("UPDATE shop.t SET v = 0 WHERE id = 1")
            followed.sync()
            assert followed.rows() == followed.wanted()
            followed.sums()


def test_a_log_that_is_reset_between_two_tables_of_a_run(
    spark: SparkSession, tmp_path: Path, start: Callable[..., Database]
) -> None:
    """The second reader is given what the first was sent, and then what follows in the files that are there now."""
    with start(tmp_path / "server") as database:
        server = server_of(database)
        with Connection(server) as connection:
            for schema in ("shop", "other"):
                connection.query(f"CREATE DATABASE {schema}")
                fill(connection, schema)
            tables = [Followed(spark, server, schema, "t", tmp_path / schema, {}) for schema in ("shop", "other")]
            for followed in tables:
                followed.sync()
            first = log_end(connection)
            connection.query("UPDATE other.t SET v = 1")
            connection.query("FLUSH BINARY LOGS")
            connection.query("UPDATE other.t SET v = 2")
            tables[0].sync()
            place = log_end(connection)
            time.sleep(1.1)
            reset(connection)
            for until in (first, place):
                if until is place:
                    connection.query("FLUSH BINARY LOGS")
                while log_end(connection).order() <= until.order():
                    connection.query("UPDATE other.t SET v = v + 1")
            with pytest.raises(ReplicationError, match=r"file log\.000002 of the log is another one than was read"):
                tables[1].sync()


def test_a_stream_that_somebody_ends_is_not_the_end_of_the_log(
    connection: Connection,
    server: Server,
    schema: str,
    follow: Callable[..., Followed],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server then says that all is told; the statements before the rows are no transaction that lacks its end."""
    fill(connection, schema)
    followed = follow()
    followed.sync()
    start = log_end(connection)
    for number in range(60):
        connection.query(f"CREATE OR REPLACE VIEW {schema}.v AS SELECT '{number}{'x' * 400_000}'")
    connection.query(f"UPDATE {schema}.t SET v = 5")
    read = LogStream.__iter__

    def ended(self: LogStream) -> Iterator[bytes]:
        for number, data in enumerate(read(self)):
            if number == 5:
                with Connection(server) as other:
                    for row in other.query("SHOW PROCESSLIST"):
                        if row[4].startswith("Binlog Dump"):
                            other.query(f"KILL QUERY {row[0]}")
            yield data

    monkeypatch.setattr(LogStream, "__iter__", ended)
    with pytest.raises(ReplicationError, match=r"it ended its log at .*, before the end .* that it had told"):
        followed.sync()
    source = followed.source()
    end = log_end(connection)
    table = source.progress(followed.hop().store.head().positions).table  # type: ignore[union-attr]
    with pytest.raises(ReplicationError, match=r"it ended its log at .*, before the end"):
        next_change(source.settings, table, start=start, upto=end)
    monkeypatch.setattr(LogStream, "__iter__", read)
    followed.sync()
    assert followed.rows() == followed.wanted()


@pytest.mark.soak
def test_a_reader_that_another_one_of_its_id_ends_tells_so(connection: Connection, server: Server, schema: str) -> None:
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v MEDIUMTEXT)")
    start = log_end(connection)
    for number in range(30):
        connection.query(f"INSERT INTO {schema}.t VALUES ({number}, '{'x' * 900_000}')")
    with LogStream(server, start, server_id=4714, to_end=True) as first:
        events = iter(first)
        next(events)
        with LogStream(server, start, server_id=4714, to_end=True) as second:
            assert sum(map(len, second)) > 27_000_000
        # A thread that waits to send is ended with its connection; another one says why.
        with pytest.raises((EndpointError, ReplicationError), match="'server-id'"):
            for _ in events:
                pass


@ONLY_MARIADB
def test_tables_that_keep_their_earlier_rows_are_refused(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema, 5)
    followed = follow()
    followed.sync()
    connection.query(f"ALTER TABLE {schema}.t ADD SYSTEM VERSIONING")
    connection.query(f"UPDATE {schema}.t SET v = 5")
    connection.query(f"DELETE FROM {schema}.t WHERE id = 3")
    told = f"table {schema}.t is system-versioned: .* leave it out by 'tables.exclude'"
    for refused in (lambda: followed.hop().plan(), lambda: list(checked_table(followed.source(), followed.place()))):
        with pytest.raises(ReplicationError, match=told):
            refused()


@ONLY_MARIADB
def test_a_table_that_begins_to_keep_them_within_the_log_is_refused(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema, 5)
    followed = follow()
    followed.sync()
    hop = followed.hop()
    connection.query(f"UPDATE {schema}.t SET v = 4")
    plan = hop.plan()
    connection.query(f"ALTER TABLE {schema}.t ADD SYSTEM VERSIONING")
    with pytest.raises(ReplicationError, match="is system-versioned"):
        hop.execute(OnDemand.dividing(followed.spark), plan)


@ONLY_MARIADB
def test_statements_behind_settings_of_their_own(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    """MariaDB logs them with their settings before them."""
    fill(connection, schema)
    followed = follow(on_truncate="delete")
    followed.sync()

    def set_for(sql: str, *given: Any) -> None:
        connection.query(f"SET STATEMENT max_statement_time = 0, lock_wait_timeout = 50 FOR {sql}", given)

    set_for(f"CREATE TABLE {schema}.other (id INT PRIMARY KEY)")
    set_for(f"ALTER TABLE {schema}.t ADD COLUMN more INT")
    set_for(f"UPDATE {schema}.t SET more = id")
    set_for(f"ANALYZE TABLE {schema}.t")
    followed.sync()
    assert followed.rows() == followed.wanted()
    assert followed.rows()[0][3] is not None
    set_for(f"TRUNCATE TABLE {schema}.t")
    set_for(f"INSERT INTO {schema}.t VALUES (5, 5, 'back', 5)")
    set_for(f"DROP TABLE {schema}.other")
    followed.sync()
    assert followed.rows() == followed.wanted() == [(5, 5, "back", 5)]
    hop = followed.hop()
    set_for(f"RENAME TABLE {schema}.t TO {schema}.gone")
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT, name VARCHAR(20), more INT)")
    with pytest.raises(ReplicationError, match="was dropped or renamed at"):
        followed.sync(hop)
