"""The ingestion pipeline of the vendor's document: a MySQL table to a topic, and on to the tables behind it."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from upsert_platform.local.mariadb import USER, MariaDb, start_mariadb
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform_tests.graph.stack import Stack, checks_of, metadata_of
from upsert_platform_tests.systems.ingesting import (
    FILL,
    TABLE,
    Writer,
    declare,
    held,
    killed,
    records,
    serving,
    wanted,
)

pytestmark = pytest.mark.systems


@pytest.fixture
def database(mariadb: MariaDb) -> Iterator[Connection]:
    with Connection(Server("127.0.0.1", mariadb.port, USER, mariadb.password)) as connection:
        yield connection


@pytest.fixture
def users(database: Connection) -> str:
    """A table of users in a schema of its own."""
    schema = f"s_{secrets.token_hex(4)}"
    database.query(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
    database.query(f"CREATE TABLE {schema}.users ({TABLE})")
    database.query(FILL.format(table=f"{schema}.users", rows=500))
    return f"{schema}.users"


def test_the_documents_pipeline_makes_topic_changelog_and_both_tables_equal_the_database(
    stack: Stack, database: Connection, users: str
) -> None:
    declare(stack, database, users)
    first = stack.run()
    assert first.success
    source = f"mysql.{users}"
    done = metadata_of(first, "changelogs", source)
    assert done["rows"] == 500
    assert ":" in done["consistent_from"]
    assert all(checks_of(first).values())
    assert held(stack) == wanted(database, users)
    assert len(records(stack)) == 500
    assert serving(stack) == dict(database.query(f"SELECT user_id, name FROM {users}"))
    database.query(f"UPDATE {users} SET name = CONCAT(name, '!') WHERE user_id % 3 = 0")
    database.query(f"DELETE FROM {users} WHERE user_id % 7 = 0")
    database.query(f"UPDATE {users} SET user_id = user_id + 10000 WHERE user_id % 5 = 0")
    database.query(f"INSERT INTO {users} VALUES (7, 'again', 'eu', 1, '2024-06-01')")
    second = stack.run()
    assert second.success
    assert held(stack) == wanted(database, users)
    assert serving(stack) == dict(database.query(f"SELECT user_id, name FROM {users}"))
    assert all(checks_of(second).values())
    again = stack.run()
    assert again.success
    assert metadata_of(again, "changelogs", source)["records"] == 0
    assert stack.run("verify").success


@pytest.mark.timeout(900)
def test_writes_kills_and_a_restart_leave_everything_equal(stack: Stack, tmp_path: Path) -> None:
    """The snapshot and the log are read while the table is written, the server is restarted and runs are killed."""
    data = tmp_path / "mariadb"
    mariadb = start_mariadb(data, die_with_parent=True)
    try:
        server = Server("127.0.0.1", mariadb.port, USER, mariadb.password)
        with Connection(server) as database:
            database.query("CREATE DATABASE shop CHARACTER SET utf8mb4")
            database.query(f"CREATE TABLE shop.users ({TABLE})")
            database.query(FILL.format(table="shop.users", rows=6_000))
            declare(stack, database, "shop.users", chunk=20)
        writer = Writer(server, "shop.users", pause=0.01)
        writer.start()
        kills = sum(killed(stack, seconds) for seconds in (9, 12, 15))
        mariadb.stop()
        mariadb = start_mariadb(data, port=server.port, password=server.password, die_with_parent=True)
        done = stack.execute()
        assert done.returncode == 0, done.stderr[-3000:]
        before = Counter((key, value) for key, value, _ in records(stack))
        kills += sum(killed(stack, seconds) for seconds in (11, 14))
        writer.ended.set()
        writer.join(60)
        assert kills >= 3
        assert writer.written > 500
        done = stack.execute()
        assert done.returncode == 0, done.stderr[-3000:]
        with Connection(server) as database:
            assert held(stack) == wanted(database, "shop.users")
            assert serving(stack) == dict(database.query("SELECT user_id, name FROM shop.users"))
        # Every write has a number, and the snapshot is done: a value that comes twice was written twice.
        late = Counter((key, value) for key, value, _ in records(stack)) - before
        assert [pair for pair, count in late.items() if count > 1 and b'"w' in (pair[1] or b"")] == []
        assert stack.execute("verify").returncode == 0
    finally:
        mariadb.stop()
