"""A proof against the database finds what no log has: unlogged statements, cascades, and nothing that is right."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from upsert_platform.cli.main import main
from upsert_platform.core.errors import EndpointError, ReplicationError
from upsert_platform.mysql.chunk_sums import Load
from upsert_platform.mysql.connection import Connection
from upsert_platform.proofs.database import Differences, compare_database
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.systems.followed import CHUNK, Followed, fill
from upsert_platform_tests.systems.ingesting import FILL, TABLE, Writer, declare
from upsert_platform_tests.systems.test_mysql_log import TYPES
from upsert_platform_tests.systems.test_mysql_tables import KEYS

pytestmark = pytest.mark.systems

FETCHED = ("FLOAT", "DOUBLE", "POINT", "GEOMETRY")
"""Types whose values the server cannot write as Arrow does, so that rows are fetched for their sums."""
OTHER: Mapping[str, str] = {
    "DATE": "'1999-01-02'", "TIME": "'01:02:03'", "DATETIME": "'1999-01-02 03:04:05'",
    "TIMESTAMP": "'1999-01-02 03:04:05'", "YEAR": "1999", "JSON": "'[7]'", "BIT": "b'0'",
    "ENUM": "'x\\\\y'", "SET": "'p'",
    "POINT": "ST_GeomFromText('POINT(7 7)')", "GEOMETRY": "ST_GeomFromText('POINT(7 7)')",
    "DECIMAL": "7", "FLOAT": "7", "DOUBLE": "7", "TINYINT(1)": "1 - COALESCE({0}, 0)",
}  # fmt: skip
"""A value that no row has, where it is no number and no text."""


SOME_KEYS = (0, 1, 2, 4, 8, 11, 13)
"""Numbers that bound chunks, and keys of other types, one of them of three columns."""


def compared(followed: Followed, **more: Any) -> Differences:
    given = {"load": Load(), "examples": 1000, **more}
    return compare_database(followed.spark, followed.source(), followed.place(), **given)


def named(found: Differences) -> dict[tuple[str, str], str]:
    """Status and key of what a proof names, with the columns that differ."""
    return {
        (row["status"], row["key"]): ", ".join(part.partition(":")[0] for part in row["difference"].split("; "))
        for row in found.examples
    }


def unlogged(connection: Connection, *statements: str) -> None:
    connection.query("SET SESSION sql_log_bin = 0")
    for statement in statements:
        connection.query(statement)
    connection.query("SET SESSION sql_log_bin = 1")


def other_value(kind: str, column: str) -> str:
    """SQL of a value that a column of a type does not have."""
    for begins, value in OTHER.items():
        if kind.startswith(begins):
            return value.format(column)
    return "7" if "INT" in kind else "'o'"


def test_a_wrong_value_of_every_type_is_named(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    hashed = [item for item in TYPES if not item[0].startswith(FETCHED)]
    for name, types in (("hashed", hashed), ("fetched", TYPES)):
        columns = ", ".join(f"c{number} {kind} NULL" for number, (kind, *_) in enumerate(types))
        connection.query(f"CREATE TABLE {schema}.{name} (id INT PRIMARY KEY, {columns})")
        most = max(len(values) for _, values, *_ in types)
        rows = [
            ", ".join(values[row % (most + 1)] if row % (most + 1) < len(values) else "NULL" for _, values, *_ in types)
            for row in range(len(types) + 10)
        ]
        for row, values in enumerate(rows[: len(rows) // 2]):
            connection.query(f"INSERT INTO {schema}.{name} VALUES ({row}, {values})")
        followed = follow(name)
        followed.sync()
        for row, values in enumerate(rows[len(rows) // 2 :], len(rows) // 2):
            connection.query(f"INSERT INTO {schema}.{name} VALUES ({row}, {values})")
        followed.sync()
        for row in range(3):  # which the log has, and the changelog does not yet
            connection.query(f"UPDATE {schema}.{name} SET id = id + 1000 WHERE id = {row}")
        found = compared(followed)
        assert (found.missing, found.extra, found.stale, found.rows) == (0, 0, 0, len(rows))
        assert found.fetched == 0, "sums of right rows differ"
        assert found.through is not None

        wanted: dict[tuple[str, str], str] = {}
        for number, (kind, *_) in enumerate(types):
            column, row = f"c{number}", number + 5
            unlogged(connection, f"UPDATE {schema}.{name} SET {column} = {other_value(kind, column)} WHERE id = {row}")
            wanted["stale", f"id={row}"] = column
        unlogged(
            connection,
            f"DELETE FROM {schema}.{name} WHERE id = 4",
            f"INSERT INTO {schema}.{name} (id) VALUES (5000)",
        )
        wanted |= {("extra", "id=4"): "", ("missing", "id=5000"): ""}
        assert named(compared(followed)) == wanted


def test_wrong_rows_of_tables_with_any_key_are_found(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    for number, (columns, key, values) in enumerate(KEYS[place] for place in SOME_KEYS):
        name = f"k{number}"
        connection.query(f"CREATE TABLE {schema}.{name} ({columns}, v INT, PRIMARY KEY ({key}))")
        connection.query(
            f"INSERT INTO {schema}.{name} ({key}, v) WITH RECURSIVE n AS"
            f" (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT {values}, i FROM n"
        )
        followed = follow(name, **CHUNK)
        followed.sync()
        connection.query(f"UPDATE {schema}.{name} SET v = v + 1000 WHERE v % 3 = 0")
        connection.query(f"DELETE FROM {schema}.{name} WHERE v % 5 = 0")
        found = compared(followed)
        assert (found.missing, found.extra, found.stale, found.fetched) == (0, 0, 0, 0), columns
        unlogged(
            connection,
            f"UPDATE {schema}.{name} SET v = 7000 WHERE v = 7",
            f"DELETE FROM {schema}.{name} WHERE v IN (8, 11)",
        )
        found = compared(followed)
        assert (found.missing, found.extra, found.stale) == (0, 2, 1), columns
        assert 0 < found.fetched <= 3


@pytest.mark.soak
def test_the_last_rows_of_a_changelog_are_found_however_long_it_is(
    connection: Connection, schema: str, follow: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upsert_platform.changelog.latest_in_tasks.MOST_ROWS", 0)
    for again, ways in ((9, (1000, 0)), (2, (1000,))):
        name = f"every_{again}"
        connection.query(f"CREATE TABLE {schema}.{name} (a INT, b VARCHAR(20), v INT, PRIMARY KEY (a, b))")
        values = ", ".join(f"({row}, 'b{row % 7}', {row})" for row in range(300))
        connection.query(f"INSERT INTO {schema}.{name} VALUES {values}")
        followed = follow(name, **CHUNK)
        followed.sync()
        connection.query(f"UPDATE {schema}.{name} SET v = v + 1000 WHERE a % {again} = 0")
        followed.sync()
        connection.query(f"DELETE FROM {schema}.{name} WHERE a % {3 * again} = 0")
        followed.sync()
        unlogged(
            connection,
            f"UPDATE {schema}.{name} SET v = 7 WHERE a = {again}",
            f"DELETE FROM {schema}.{name} WHERE a = 8",
            f"INSERT INTO {schema}.{name} VALUES (0, 'b0', 1000)",
        )
        for counted in ways:
            monkeypatch.setattr("upsert_platform.changelog.latest_in_tasks.MOST_COUNTED", counted)
            assert named(compared(followed)) == {
                ("stale", f"a={again}, b=b{again % 7}"): "v",
                ("extra", "a=8, b=b1"): "",
                ("missing", "a=0, b=b0"): "",
            }


def test_rows_that_a_cascade_or_an_exchange_has_changed_are_found(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    connection.query(f"CREATE TABLE {schema}.parent (id INT PRIMARY KEY)")
    connection.query(
        f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, parent INT, v INT,"
        f" FOREIGN KEY (parent) REFERENCES {schema}.parent (id) ON DELETE CASCADE)"
    )
    connection.query(f"INSERT INTO {schema}.parent VALUES (1), (2), (3)")
    connection.query(f"INSERT INTO {schema}.t VALUES " + ", ".join(f"({n}, {n % 3 + 1}, {n})" for n in range(30)))
    followed = follow()
    followed.sync()
    connection.query(f"DELETE FROM {schema}.parent WHERE id = 3")
    followed.sync()
    found = compared(followed)
    assert sorted(named(found)) == sorted(("extra", f"id={number}") for number in range(30) if number % 3 == 2)
    unlogged(
        connection,
        f"UPDATE {schema}.t SET v = 1 - v WHERE id IN (0, 1)",
        f"UPDATE {schema}.t SET id = 99 WHERE id = 3",
    )
    found = compared(followed)
    assert {("stale", "id=0"), ("stale", "id=1"), ("extra", "id=3"), ("missing", "id=99")} <= set(named(found))


@pytest.mark.soak
def test_no_row_is_named_while_the_table_is_written(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    connection.query(f"CREATE TABLE {schema}.t ({TABLE})")
    connection.query(f"CREATE TABLE {schema}.n (seq INT)")
    for first in range(0, 12_000, 2000):
        values = ", ".join(f"({number})" for number in range(first, first + 2000))
        connection.query(f"INSERT INTO {schema}.n VALUES {values}")
    connection.query(FILL.format(table=f"{schema}.t", numbers=f"{schema}.n"))
    followed = follow(scan__incremental__snapshot__chunk__size="500")
    followed.sync()
    writers = [Writer(connection.server, f"{schema}.t", pause=0.0) for _ in range(2)]
    for writer in writers:
        writer.start()
    began = time.monotonic()
    try:
        for turn in range(4):
            found = compared(followed)
            assert (named(found), found.missing, found.extra, found.stale) == ({}, 0, 0, 0)
            assert found.rows > 5000
            if turn == 1:
                followed.sync()
        unlogged(connection, f"REPLACE INTO {schema}.t VALUES (12001, 'unlogged', 'eu', 1, NULL)")
        assert named(compared(followed)) == {("missing", "user_id=12001"): ""}
    finally:
        for writer in writers:
            writer.ended.set()
        for writer in writers:
            writer.join(30)
    assert sum(writer.written for writer in writers) / (time.monotonic() - began) > 50


def test_a_killed_proof_goes_on_behind_its_last_round(
    connection: Connection, schema: str, follow: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upsert_platform.proofs.database._ROUND_CHUNKS", 3)
    fill(connection, schema)
    followed = follow(**CHUNK)
    followed.sync()
    unlogged(connection, f"DELETE FROM {schema}.t WHERE id IN (2, 59)")

    def killed(line: str) -> None:
        raise KeyboardInterrupt(line)

    with pytest.raises(KeyboardInterrupt, match="21 rows of"):
        compared(followed, tell=killed)
    lines: list[str] = []
    found = compared(followed, resume=True, tell=lines.append)
    assert set(named(found)) == {("extra", "id=2"), ("extra", "id=59")}
    assert (found.rows, lines[0].split()[0]) == (58, "42"), lines
    lines.clear()
    assert compared(followed, resume=True, tell=lines.append).rows == 58
    assert lines[0].split()[0] == "21", "a proof that has ended leaves something to resume"


def test_a_proof_waits_while_the_server_is_busy(
    connection: Connection, schema: str, follow: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(connection, schema)
    followed = follow()
    with pytest.raises(ReplicationError, match="its snapshot is not complete"):
        compared(followed)
    followed.sync()
    assert compared(followed, load=Load(threads=1000, lag=1.0)).rows == 60
    monkeypatch.setattr("upsert_platform.mysql.chunk_sums._LONGEST_WAIT", 1.0)
    with Connection(connection.server) as asking, pytest.raises(EndpointError, match="threads run, above --max-load 0"):
        Load(threads=0).wait(asking)


def test_a_topic_is_proven_against_the_database_by_the_command_and_the_job(
    connection: Connection, schema: str, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.query(f"CREATE TABLE {schema}.t ({TABLE})")
    connection.query(
        f"INSERT INTO {schema}.t VALUES (1, 'a', 'eu', 1, NULL), (2, 'b', 'eu', 2, NULL), (3, 'c', 'eu', 3, NULL)"
    )
    declare(stack, connection, f"{schema}.t")
    assert stack.run().success
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    arguments = ["prove", stack.topic, "--project", str(stack.project), "--source", "database"]
    ran = CliRunner().invoke(main, arguments)
    assert (ran.exit_code, f"of {schema}.t, 3 rows compared" in ran.output) == (0, True), ran.output

    unlogged(connection, f"DELETE FROM {schema}.t WHERE user_id = 3")
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    producer.produce(stack.topic, key=b'{"user_id":9}', value=b'{"user_id":9,"name":"by hand"}')
    assert producer.flush(20) == 0
    ran = CliRunner().invoke(main, [*arguments, "--json"])
    told = json.loads(ran.stdout)
    assert (ran.exit_code, told["equal"], told["missing"], told["extra"], told["stale"]) == (3, False, 0, 2, 0)
    assert sorted((row["in"], row["status"], row["key"]) for row in told["examples"]) == [
        ("changelog", "extra", "user_id=3"),
        ("destination", "extra", "user_id=9"),
    ]
    assert told["proven_through"]["position"] > 4
    judged = {item.asset_key.path[-1]: item for item in stack.run("prove").get_asset_check_evaluations()}
    shown: dict[str, Any] = {name: value.value for name, value in judged[stack.topic].metadata.items()}
    assert (judged[stack.topic].passed, shown["extra"], shown["compared"]) == (False, 2, 2)
    assert shown["proven_through"].startswith(told["proven_through"]["file"].partition(".")[0])
    assert shown["proven_offset"] > 0
    ran = CliRunner().invoke(main, ["prove", "users_serving", "--project", str(stack.project), "--source", "database"])
    assert (ran.exit_code, "is no table of MySQL or MariaDB" in ran.output) == (1, True), ran.output
    ran = CliRunner().invoke(main, [*arguments, "--at", "latest"])
    assert (ran.exit_code, "leave --at out" in ran.output) == (1, True), ran.output
