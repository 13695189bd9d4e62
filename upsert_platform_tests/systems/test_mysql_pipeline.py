"""The ingestion pipeline of the vendor's document: a MySQL table to a topic, and on to the tables behind it."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from upsert_platform.local.database import Database
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform_tests.graph.change_events import followed
from upsert_platform_tests.graph.stack import Stack, checks_of, metadata_of
from upsert_platform_tests.referee.judging import records_of
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
from upsert_platform_tests.systems.servers import numbers, server_of

pytestmark = pytest.mark.systems


@pytest.fixture
def database(server: Server) -> Iterator[Connection]:
    with Connection(server) as connection:
        yield connection


@pytest.fixture
def users(database: Connection) -> str:
    """A table of users in a schema of its own."""
    schema = f"s_{secrets.token_hex(4)}"
    database.query(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
    database.query(f"CREATE TABLE {schema}.users ({TABLE})")
    database.query(FILL.format(table=f"{schema}.users", numbers=numbers(500)))
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
    ingested = stack.run("ingest")
    assert ingested.success
    assert held(stack) == wanted(database, users)
    assert len(serving(stack)) == 500, "the job takes what is written from the database alone"
    second = stack.run()
    assert second.success
    assert held(stack) == wanted(database, users)
    assert serving(stack) == dict(database.query(f"SELECT user_id, name FROM {users}"))
    assert all(checks_of(second).values())
    again = stack.run()
    assert again.success
    assert "records" not in metadata_of(again, "changelogs", source)
    assert stack.run("verify").success


CHANGES = """
source: {{type: mysql, hostname: 127.0.0.1, port: {port}, username: {user}, password: {password}, tables: {table}}}
sink:
  type: kafka
  properties.bootstrap.servers: ${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}
  sink.delivery-guarantee: exactly-once
"""


@pytest.mark.soak
def test_sink_kafka_tells_every_change_with_its_row_before(stack: Stack, database: Connection, users: str) -> None:
    """Without a route topic and messages have the names of schema and table."""
    server = database.server
    stack.project.mkdir(parents=True, exist_ok=True)
    for file in stack.project.iterdir():
        file.unlink()
    text = CHANGES.format(port=server.port, user=server.user, password=server.password, table=users)
    (stack.project / "pipeline.yaml").write_text(text)

    def judged() -> list[str]:
        found = records_of(stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], users)
        state, kinds = followed(found, table=users, key="user_id")
        assert state == wanted(database, users)
        return kinds

    assert stack.run("ingest").success
    assert judged() == ["c"] * 500
    database.query(f"UPDATE {users} SET name = CONCAT(name, '!') WHERE user_id % 3 = 0")
    database.query(f"DELETE FROM {users} WHERE user_id % 7 = 0")
    database.query(f"UPDATE {users} SET user_id = user_id + 10000 WHERE user_id % 5 = 0")
    database.query(f"INSERT INTO {users} VALUES (7, 'again', 'eu', 1, '2024-06-01')")
    assert killed(stack, 9)
    done = stack.execute()
    assert done.returncode == 0, done.stderr[-3000:]
    assert {"c", "u", "d"} == set(judged()[500:])
    assert stack.run("verify").success


SHARDS = """
transform:
  - source-table: {schema}.orders_\\.*
    projection: \\*, amount * 2 AS twice, __table_name__ AS origin
    filter: amount > 1
pipeline:
  name: shards
"""


def test_shards_become_one_topic_with_names_of_tables_and_headers(stack: Stack, database: Connection) -> None:
    """Two tables, one of them with a column more; a row that leaves the filter is deleted."""
    schema = f"s_{secrets.token_hex(4)}"
    database.query(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
    database.query(f"CREATE TABLE {schema}.orders_1 (id INT PRIMARY KEY, amount INT)")
    database.query(f"CREATE TABLE {schema}.orders_2 (id INT PRIMARY KEY, amount INT, note VARCHAR(9))")
    database.query(f"INSERT INTO {schema}.orders_1 VALUES (1, 5), (2, 0), (3, 7)")
    database.query(f"INSERT INTO {schema}.orders_2 VALUES (11, 6, 'a'), (12, 1, 'b'), (13, 9, NULL)")
    declare(stack, database, rf"{schema}.orders_\.*", more="sink.add-tableId-to-header-enabled: true")
    (stack.project / "users.sql").unlink()
    with (stack.project / "pipeline.yaml").open("a") as file:
        file.write(SHARDS.format(schema=schema))
    assert stack.run().success
    given = {json.loads(key or b"")["id"]: (value, headers) for key, value, headers in records(stack)}
    assert {key: json.loads(value or b"") for key, (value, _) in given.items()} == {
        1: {"id": 1, "amount": 5, "twice": 10, "origin": "orders_1", "note": None},
        3: {"id": 3, "amount": 7, "twice": 14, "origin": "orders_1", "note": None},
        11: {"id": 11, "amount": 6, "twice": 12, "origin": "orders_2", "note": "a"},
        13: {"id": 13, "amount": 9, "twice": 18, "origin": "orders_2", "note": None},
    }
    named = [("namespace", b""), ("schemaName", b""), ("tableName", stack.topic.encode())]
    assert {tuple(headers) for _, headers in given.values()} == {tuple(named)}
    database.query(f"UPDATE {schema}.orders_1 SET amount = 1 WHERE id = 3")
    database.query(f"UPDATE {schema}.orders_2 SET id = 14 WHERE id = 13")
    database.query(f"INSERT INTO {schema}.orders_1 VALUES (4, 8)")
    assert stack.run().success
    state: dict[int, Any] = {}
    for key, value, _ in records(stack):
        state.pop(json.loads(key or b"")["id"], None)
        if value is not None:
            state[json.loads(key or b"")["id"]] = json.loads(value)
    assert sorted(state) == [1, 4, 11, 14]
    assert state[4] == {"id": 4, "amount": 8, "twice": 16, "origin": "orders_1", "note": None}


def test_a_new_snapshot_by_the_job_corrects_what_the_log_did_not_tell(
    stack: Stack, database: Connection, users: str
) -> None:
    declare(stack, database, users)
    assert stack.run().success
    database.query("SET SESSION sql_log_bin = OFF")
    database.query(f"DELETE FROM {users} WHERE user_id < 20")
    database.query(f"UPDATE {users} SET name = 'unlogged' WHERE user_id > 490")
    database.query("SET SESSION sql_log_bin = ON")
    assert stack.run().success
    assert held(stack) != wanted(database, users)
    job = stack.definitions().resolve_job_def("rebuild")
    config = {"ops": {"rebuild_queries": {"config": {"tables": [users]}}}}
    assert job.execute_in_process(run_config=config, raise_on_error=False).success
    assert stack.run().success
    assert held(stack) == wanted(database, users)
    assert serving(stack) == dict(database.query(f"SELECT user_id, name FROM {users}"))


COMPUTED = """
transform:
  - source-table: {table}
    projection: \\*, UPPER(name) AS loud, CAST(balance AS INT) + 1 AS more
    filter: region <> 'test' AND user_id < 100
"""


def test_a_new_column_is_carried_beside_computed_ones(stack: Stack, database: Connection, users: str) -> None:
    declare(stack, database, users)
    with (stack.project / "pipeline.yaml").open("a") as file:
        file.write(COMPUTED.format(table=users))
    assert stack.run("ingest").success
    database.query(f"UPDATE {users} SET name = 'before' WHERE user_id = 1")
    database.query(f"ALTER TABLE {users} ADD COLUMN extra BIGINT")
    database.query(f"UPDATE {users} SET extra = 99 WHERE user_id = 2")
    assert stack.run("ingest").success
    found = held(stack)
    assert sorted(found) == [number for number in range(1, 100) if number % 10]
    assert (found[1]["name"], found[1]["loud"], found[1]["more"], found[1]["extra"]) == ("before", "BEFORE", 1, None)
    assert found[2]["extra"] == 99
    assert "extra" not in found[3]


@pytest.mark.timeout(900)
def test_writes_kills_and_a_restart_leave_everything_equal(
    stack: Stack, tmp_path: Path, start: Callable[..., Database]
) -> None:
    """The snapshot and the log are read while the table is written, the server is restarted and runs are killed."""
    data = tmp_path / "server"
    running = start(data)
    try:
        server = server_of(running)
        with Connection(server) as database:
            database.query("CREATE DATABASE shop CHARACTER SET utf8mb4")
            database.query(f"CREATE TABLE shop.users ({TABLE})")
            database.query(FILL.format(table="shop.users", numbers=numbers(6_000)))
            declare(stack, database, "shop.users", chunk=3)
        writer = Writer(server, "shop.users", pause=0.01)
        writer.start()
        kills = sum(killed(stack, seconds) for seconds in (9, 12, 15))
        running.stop()
        running = start(data, port=server.port, password=server.password)
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
        running.stop()
