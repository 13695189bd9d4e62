"""Transactions in two phases on a server: a table ends equal to the database, wherever a reader was meanwhile."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from upsert_platform.core.errors import EndpointError, ReplicationError
from upsert_platform.local.database import Database
from upsert_platform.mysql.binlog import reader
from upsert_platform.mysql.binlog.stream import log_end
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform_tests.systems.followed import Followed, disturbed_landings, fill
from upsert_platform_tests.systems.servers import Kind, numbers, server_of

pytestmark = pytest.mark.systems

NO_GAPS = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
"""What is prepared keeps its locks: so it locks no more than the rows that it changes."""


@contextmanager
def prepared(server: Server, name: str, *statements: str) -> Iterator[None]:
    """A transaction that a session, which has gone, has prepared; committed behind the block."""
    prepare(server, name, *statements)
    yield
    with Connection(server) as connection:
        complete(connection, f"XA COMMIT '{name}'")


def complete(connection: Connection, statement: str) -> None:
    """Commits or rolls back; a server knows the transaction when it has ended the session that prepared it."""
    for left in range(100, -1, -1):
        try:
            connection.query(statement)
        except EndpointError as error:
            if "XAER_NOTA" not in str(error) or not left:
                raise
            time.sleep(0.1)
        else:
            return


def prepare(server: Server, name: str, *statements: str) -> None:
    with Connection(server) as connection:
        connection.query(NO_GAPS)
        for statement in (f"XA START '{name}'", *statements, f"XA END '{name}'", f"XA PREPARE '{name}'"):
            connection.query(statement)


@pytest.fixture
def compression(connection: Connection, kind: Kind) -> Iterator[Callable[[str], None]]:
    """Switches it on or off; it is off behind the test."""

    def switch(state: str) -> None:
        connection.query(f"SET GLOBAL {kind.compression} = {state}")

    yield switch
    connection.query(f"SET GLOBAL {kind.compression} = OFF")


def test_random_transactions_between_random_batches(
    connection: Connection,
    server: Server,
    schema: str,
    compression: Callable[[str], None],
    follow: Callable[..., Followed],
) -> None:
    """Some wait over several batches, some are rolled back, some of one phase, some compressed."""
    chosen = random.Random(7)
    fill(connection, schema)
    connection.query(f"CREATE TABLE {schema}.other (id INT PRIMARY KEY AUTO_INCREMENT)")
    followed = follow()
    followed.sync()
    waiting: dict[str, range] = {}
    for number in range(40):
        free = [at for at in range(0, 60, 5) if range(at, at + 5) not in waiting.values()]
        keys = range(at := chosen.choice(free), at + 5)
        where = f"WHERE id BETWEEN {keys[0]} AND {keys[-1]}"
        name = f"{schema}{number}"
        compression(chosen.choice(("ON", "OFF")))
        with Connection(server) as session:
            session.query(NO_GAPS)
            session.query(f"XA START '{name}', 'b', {number}")
            session.query(f"UPDATE {schema}.t SET v = {number}, name = REPEAT('x', {chosen.randrange(20)}) {where}")
            if chosen.random() < 0.3:
                session.query(f"DELETE FROM {schema}.t {where} AND id % 2 = {number % 2}")
            if chosen.random() < 0.3:
                session.query(f"INSERT INTO {schema}.other VALUES ()")
            session.query(f"XA END '{name}', 'b', {number}")
            if chosen.random() < 0.2:
                session.query(f"XA COMMIT '{name}', 'b', {number} ONE PHASE")
            else:
                session.query(f"XA PREPARE '{name}', 'b', {number}")
                waiting[f"'{name}', 'b', {number}"] = keys
        connection.query(f"REPLACE INTO {schema}.t VALUES ({1000 + number % 5}, {number}, 'plain')")
        for name in chosen.sample(sorted(waiting), chosen.randrange(min(len(waiting), 3) + 1)):
            complete(connection, f"XA {chosen.choice(('COMMIT', 'COMMIT', 'ROLLBACK'))} {name}")
            waiting.pop(name)
        if number % 4 == 3:
            followed.sync()
            assert followed.rows() == followed.wanted()
    for name in waiting:
        complete(connection, f"XA COMMIT {name}")
    followed.sync()
    assert followed.rows() == followed.wanted()
    followed.sums()


def test_a_commit_behind_batches_and_restarts(
    spark: SparkSession, tmp_path: Path, start: Callable[..., Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of few rows and of many; the server and the reader are started anew between the two phases."""
    with start(tmp_path / "server") as database:
        server = server_of(database)
        with Connection(server) as connection:
            connection.query("CREATE DATABASE shop")
            fill(connection, "shop")
        followed = Followed(spark, server, "shop", "t", tmp_path, {})
        followed.sync()
        prepare(server, "few", "UPDATE shop.t SET v = 5 WHERE id < 9", "DELETE FROM shop.t WHERE id = 20")
        prepare(server, "many", f"INSERT INTO shop.t SELECT seq + 1000, 1, 'many' FROM {numbers(900)}")
        prepare(server, "never", "UPDATE shop.t SET v = 99 WHERE id = 50")
        for number in range(3):
            with Connection(server) as connection:
                connection.query(f"UPDATE shop.t SET v = {number} WHERE id = 30")
                connection.query("FLUSH BINARY LOGS")
            followed.sync()
            assert followed.rows() == followed.wanted()
    with start(tmp_path / "server") as database:
        followed.server = server_of(database)
        with Connection(followed.server) as connection:
            complete(connection, "XA COMMIT 'few'")
            followed.sync()
            assert {row[1] for row in followed.rows() if row[0] < 9} == {5}
            monkeypatch.setattr(reader, "_MOST_BYTES", 5_000)
            connection.query("UPDATE shop.t SET v = 7 WHERE id = 31")
            complete(connection, "XA COMMIT 'many'")
            connection.query("UPDATE shop.t SET v = 8 WHERE id = 1005")
            complete(connection, "XA ROLLBACK 'never'")
        followed.sync()
        assert followed.rows() == followed.wanted()
        assert len(followed.rows()) == 959
        followed.sums()
        assert followed.hop().plan().backlog == ()


def test_what_is_prepared_when_a_snapshot_begins(
    connection: Connection, server: Server, schema: str, follow: Callable[..., Followed]
) -> None:
    """Its rows stand in the log before the snapshot, and count behind it."""
    fill(connection, schema)
    with prepared(server, f"{schema}a", f"UPDATE {schema}.t SET v = 5 WHERE id < 9"):
        connection.query("FLUSH BINARY LOGS")
        connection.query(f"UPDATE {schema}.t SET v = 1 WHERE id = 30")
        followed = follow()
        followed.sync()
        assert {row[1] for row in followed.rows() if row[0] < 9} == {0}
    followed.sync()
    assert followed.rows() == followed.wanted()
    prepare(server, f"{schema}b", f"DELETE FROM {schema}.t WHERE id < 5")
    assert followed.hop().begin_anew() is not None
    complete(connection, f"XA ROLLBACK '{schema}b'")
    followed.sync()
    assert followed.rows() == followed.wanted()


def test_commits_while_a_snapshot_is_read(
    connection: Connection, server: Server, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema)
    followed = follow(scan__incremental__snapshot__chunk__size="7")

    def disturb(number: int) -> None:
        if number:
            complete(connection, f"XA {'ROLLBACK' if number % 3 == 0 else 'COMMIT'} '{schema}{number - 1}'")
        key = (number * 11) % 55
        keys = f"id BETWEEN {key} AND {key + 4}"
        prepare(server, f"{schema}{number}", f"UPDATE {schema}.t SET v = {number + 1} WHERE {keys}")

    with disturbed_landings(disturb) as landed:
        followed.sync()
    complete(connection, f"XA COMMIT '{schema}{landed() - 1}'")
    followed.sync()
    assert followed.rows() == followed.wanted()
    followed.sums()


def lose_files_before(connection: Connection, file: str) -> None:
    """Purges the log up to the file that is written, until one of its files is gone."""
    for _ in range(300):
        connection.query(f"PURGE BINARY LOGS TO '{log_end(connection).file}'")
        if file not in {row[0] for row in connection.query("SHOW BINARY LOGS")}:
            return
        time.sleep(0.1)
    raise AssertionError("the log stays")


def test_other_tables_are_passed_over(
    connection: Connection, server: Server, schema: str, follow: Callable[..., Followed]
) -> None:
    """They are no reason to read anything again, nor to stop where their rows are not in the log any more."""
    fill(connection, schema)
    connection.query(f"CREATE TABLE {schema}.other (id INT PRIMARY KEY)")
    followed = follow()
    followed.sync()
    file = log_end(connection).file
    prepare(server, f"{schema}a", f"INSERT INTO {schema}.other VALUES (1)")
    connection.query("FLUSH BINARY LOGS")
    connection.query(f"UPDATE {schema}.t SET v = 2")
    followed.sync()
    lose_files_before(connection, file)
    complete(connection, f"XA COMMIT '{schema}a'")
    connection.query(f"UPDATE {schema}.t SET v = 3")
    followed.sync()
    assert followed.rows() == followed.wanted()


def test_rows_that_the_log_does_not_hold_any_more_stop(
    connection: Connection, server: Server, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema)
    followed = follow()
    followed.sync()
    file = log_end(connection).file
    prepare(server, f"{schema}a", f"UPDATE {schema}.t SET v = 5 WHERE id < 9")
    connection.query("FLUSH BINARY LOGS")
    connection.query(f"UPDATE {schema}.t SET v = 2 WHERE id = 20")
    followed.sync()
    lose_files_before(connection, file)
    complete(connection, f"XA COMMIT '{schema}a'")
    with pytest.raises(ReplicationError, match=r"\(XA\) was committed before .* where it was prepared \(.*'rebuild'"):
        followed.sync()
    assert followed.hop().begin_anew() is not None
    followed.sync()
    assert followed.rows() == followed.wanted()
