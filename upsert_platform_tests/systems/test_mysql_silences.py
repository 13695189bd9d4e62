"""Servers that would change a table without a word to a reader of their log: told, or understood."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from upsert_platform.changelog.lake import Lake
from upsert_platform.core.errors import ReplicationError
from upsert_platform.local.database import Database
from upsert_platform.mysql.binlog.reader import LogReader
from upsert_platform.mysql.binlog.stream import LogStream, log_end
from upsert_platform.mysql.columns import TypeRules
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform.sync.checkups.databases import checked_table
from upsert_platform.sync.checkups.finding import State
from upsert_platform_tests.systems.followed import Followed, fill
from upsert_platform_tests.systems.servers import Kind, await_table, server_of

pytestmark = pytest.mark.systems

NOBODY = cast("SparkSession", None)
"""Nothing is read by Spark here."""


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"binlog-ignore-db": "shop"}, "leaves schema shop out of its log by 'binlog-ignore-db'"),
        ({"binlog-do-db": "other"}, "leaves schema shop out of its log by 'binlog-do-db'"),
    ],
)
def test_a_schema_that_is_not_logged_is_refused(
    variables: dict[str, str], told: str, tmp_path: Path, start: Callable[..., Database]
) -> None:
    with start(tmp_path / "server", variables=variables) as database:
        server = server_of(database)
        with Connection(server) as connection:
            for schema in ("shop", "other"):
                connection.query(f"CREATE DATABASE {schema}")
                connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT, name VARCHAR(20))")
            before = log_end(connection)
            connection.query("USE shop")
            connection.query("ALTER TABLE other.t ADD COLUMN more INT")
            assert log_end(connection).order() == before.order()
        with pytest.raises(ReplicationError, match=told):
            Followed(NOBODY, server, "shop", "t", tmp_path, {}).hop().plan()
        plan = Followed(NOBODY, server, "other", "t", tmp_path, {}).hop().plan()
        assert plan.backlog
        (warned,) = plan.warnings
        assert "statements by the schema that their session uses" in warned


def test_a_replica_that_does_not_log_what_it_is_sent_is_refused(
    tmp_path: Path, kind: Kind, start: Callable[..., Database]
) -> None:
    with (
        start(tmp_path / "first", variables={"server-id": "77"}) as first,
        start(tmp_path / "replica", variables={"server-id": "78", kind.replica_log: "OFF"}) as second,
    ):
        own, other = server_of(first), server_of(second)
        with Connection(own) as source, Connection(other) as target:
            for server in (source, target):
                server.query("RESET MASTER")
            source.query("CREATE DATABASE shop")
            fill(source, "shop", 3)
            kind.replicate(target, own)
            await_table(target, "t")
            with pytest.raises(ReplicationError, match="a replica that does not log what it is sent"):
                Followed(NOBODY, other, "shop", "t", tmp_path, {}).hop().plan()
            target.query("STOP SLAVE")
        assert Followed(NOBODY, own, "shop", "t", tmp_path, {}).hop().plan().backlog


def test_a_server_that_logs_names_in_lower_case(
    spark: SparkSession, tmp_path: Path, start: Callable[..., Database]
) -> None:
    """The declared name is that of the table, in whatever case the log has it."""
    variables = {"lower-case-table-names": "1"}
    with start(tmp_path / "server", variables=variables) as database:
        server = server_of(database)
        with Connection(server) as connection:
            connection.query("CREATE DATABASE Shop")
            fill(connection, "Shop", 10)
            followed = Followed(spark, server, "Shop", "T", tmp_path, {})
            followed.sync()
            connection.query("UPDATE Shop.t SET v = 5 WHERE id < 4")
            connection.query("DELETE FROM Shop.t WHERE id = 7")
        followed.sync()
        assert followed.rows() == followed.wanted()


def test_tables_whose_names_differ_by_case_are_two(
    spark: SparkSession, connection: Connection, server: Server, schema: str, tmp_path: Path
) -> None:
    fill(connection, schema, 10)
    connection.query(f"CREATE TABLE {schema}.T LIKE {schema}.t")
    followed = Followed(spark, server, schema, "t", tmp_path, {"on-truncate": "delete"})
    followed.sync()
    connection.query(f"TRUNCATE TABLE {schema}.T")
    connection.query(f"INSERT INTO {schema}.T VALUES (1, 100, 'of the other'), (500, 1, 'of the other')")
    connection.query(f"UPDATE {schema}.t SET v = 5 WHERE id = 2")
    connection.query(f"DROP TABLE {schema}.T")
    followed.sync()
    assert followed.rows() == followed.wanted()


def test_keys_that_cascade_are_told_by_a_checkup(
    connection: Connection, server: Server, schema: str, tmp_path: Path
) -> None:
    """And the log has no row of what they do: if it had one day, the warning would be wrong."""
    connection.query(f"CREATE TABLE {schema}.p (id INT PRIMARY KEY)")
    connection.query(
        f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, p INT, q INT, CONSTRAINT falls FOREIGN KEY (p)"
        f" REFERENCES {schema}.p (id) ON DELETE CASCADE, CONSTRAINT stays FOREIGN KEY (q) REFERENCES {schema}.p (id))"
    )
    connection.query(f"INSERT INTO {schema}.p VALUES (1)")
    connection.query(f"INSERT INTO {schema}.t VALUES (1, 1, NULL)")
    told: list[tuple[State, str]] = []
    for name in ("t", "p"):
        source = Followed(NOBODY, server, schema, name, tmp_path, {}).source()
        told += [(found.state, found.told) for found in checked_table(source, Lake(str(tmp_path / "lake")))]
    assert [state for state, _ in told] == [State.WARNING, State.OK, State.OK]
    assert "foreign keys (falls)" in told[0][1]
    start = log_end(connection)
    connection.query(f"DELETE FROM {schema}.p")
    assert connection.query(f"SELECT * FROM {schema}.t") == []
    names = []
    with LogStream(server, start, server_id=4713, to_end=True) as stream:
        reader = LogReader(start, lambda *found: names.append(found[1]), rules=TypeRules(), checksum=stream.checksum)
        for event in stream:
            list(reader.read(event))
    assert names == ["p"]


def test_what_a_server_gives_by_default_is_not_believed(tmp_path: Path, start: Callable[..., Database]) -> None:
    """Some are set up to end a SELECT after so many rows, or to show what is not committed."""
    with start(tmp_path / "server") as database:
        server = server_of(database)
        with Connection(server) as connection:
            connection.query("CREATE DATABASE shop")
            fill(connection, "shop", 20)
            connection.query("SET GLOBAL sql_select_limit = 5")
            connection.query("SET GLOBAL TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
        with Connection(server) as writer, Connection(server) as reader:
            writer.query("BEGIN")
            writer.query("INSERT INTO shop.t VALUES (500, 1, 'not committed')")
            writer.query("DELETE FROM shop.t WHERE id = 3")
            assert reader.query("SELECT id FROM shop.t ORDER BY id") == [(number,) for number in range(1, 21)]
            writer.query("ROLLBACK")
