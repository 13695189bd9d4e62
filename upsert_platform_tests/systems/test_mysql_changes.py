"""Statements that change a table that is followed, and what stops a reader: told, and mended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from upsert_platform.core.errors import EndpointError, ReplicationError
from upsert_platform.local.database import Database
from upsert_platform.mysql.binlog.stream import LogStream, log_end
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform_tests.systems.followed import CHUNK, Followed, disturbed_landings, fill, purge
from upsert_platform_tests.systems.servers import Kind, create_user, server_of

pytestmark = pytest.mark.systems


def test_columns_that_are_added_dropped_and_widened(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema)
    followed = follow(new_columns="fail")
    old = followed.hop()
    followed.sync(old)
    connection.query(f"UPDATE {schema}.t SET v = 1 WHERE id < 10")
    connection.query(f"ALTER TABLE {schema}.t ADD COLUMN more BIGINT, MODIFY name VARCHAR(200), ALGORITHM=COPY")
    connection.query(f"UPDATE {schema}.t SET more = id WHERE id < 20")
    with pytest.raises(ReplicationError, match=r"has new columns since log\.\d+:\d+: more"):
        followed.sync(old)
    followed.sync()
    assert followed.rows() == followed.wanted()
    connection.query(f"ALTER TABLE {schema}.t DROP COLUMN v")
    connection.query(f"INSERT INTO {schema}.t VALUES (500, 'new', 5)")
    dropped = follow(new_columns="ignore")
    dropped.sync()
    assert dropped.rows() == dropped.wanted()


def test_a_table_that_changes_within_its_snapshot(
    connection: Connection, schema: str, follow: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(connection, schema)
    followed = follow(new_columns="ignore", **CHUNK)
    hop = followed.hop()

    def disturb(number: int) -> None:
        connection.query(f"UPDATE {schema}.t SET name = 'r{number}' WHERE id % 5 = {number % 5}")
        if number == 2:
            connection.query(f"ALTER TABLE {schema}.t DROP COLUMN v")
        connection.query(f"UPDATE {schema}.t SET name = 's{number}' WHERE id % 7 = {number % 7}")

    with disturbed_landings(disturb):
        followed.sync(hop)
    followed.sync(hop)
    names = [column.name for column in hop.source.table.columns]
    assert names == ["id", "v", "name"]
    monkeypatch.setattr(Followed, "source", lambda _: hop.source)
    assert sorted((row[0], row[2]) for row in followed.rows()) == sorted(followed.wanted())


def test_a_table_that_changes_twice_stops_where_rows_between_are_unknown(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    """Both changes leave the same types behind, so only the statements tell."""
    fill(connection, schema)
    followed = follow(new_columns="ignore")
    hop = followed.hop()
    followed.sync(hop)
    connection.query(f"ALTER TABLE {schema}.t CHANGE v w INT")
    connection.query(f"ALTER TABLE {schema}.t CHANGE w v INT")
    followed.sync(hop)
    connection.query(f"UPDATE {schema}.t SET v = 2 WHERE id = 1")
    followed.sync(hop)
    assert followed.rows() == followed.wanted()
    connection.query(f"ALTER TABLE {schema}.t CHANGE v w INT")
    connection.query(f"UPDATE {schema}.t SET w = 3 WHERE id = 1")
    connection.query(f"ALTER TABLE {schema}.t CHANGE w v INT")
    with pytest.raises(ReplicationError, match="was changed twice before the log was read up to"):
        followed.sync(hop)


def test_a_swap_of_tables_is_followed(connection: Connection, schema: str, follow: Callable[..., Followed]) -> None:
    fill(connection, schema)
    followed = follow()
    followed.sync()
    connection.query(f"CREATE TABLE {schema}._t_gho LIKE {schema}.t")
    connection.query(f"ALTER TABLE {schema}._t_gho ADD COLUMN extra INT DEFAULT 7")
    connection.query(f"INSERT INTO {schema}._t_gho (id, v, name) SELECT * FROM {schema}.t")
    connection.query(f"RENAME TABLE {schema}.t TO {schema}._t_del, {schema}._t_gho TO {schema}.t")
    connection.query(f"UPDATE {schema}.t SET v = 9, extra = 8 WHERE id < 5")
    followed.sync()
    read = {row[0]: row[1:3] for row in followed.rows()}
    assert read == {row[0]: row[1:3] for row in followed.wanted()}
    assert {row[3] for row in followed.rows() if row[0] < 5} == {8}


def test_a_truncated_table(connection: Connection, schema: str, follow: Callable[..., Followed]) -> None:
    fill(connection, schema)
    stops = follow()
    stops.sync()
    connection.query(f"TRUNCATE TABLE {schema}.t")
    connection.query(f"INSERT INTO {schema}.t VALUES (1, 5, 'x'), (100, 6, 'y')")
    with pytest.raises(ReplicationError, match=r"was truncated at .*'on-truncate' = 'delete' deletes"):
        stops.sync()
    follows = follow(on_truncate="delete")
    follows.sync()
    assert follows.rows() == follows.wanted() == [(1, 5, "x"), (100, 6, "y")]
    follows.sums()


STOPS = [
    ("DROP TABLE {t}", "was dropped or renamed at"),
    ("RENAME TABLE {t} TO {t}_old", "was dropped or renamed at"),
    ("ALTER TABLE {t} RENAME {t}_old", "was dropped or renamed at"),
    ("ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", r"primary key was changed to \(id, v\)"),
]


@pytest.mark.parametrize(("statement", "told"), STOPS)
def test_statements_that_stop_a_table(
    statement: str, told: str, connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema, 3)
    followed = follow()
    hop = followed.hop()
    followed.sync(hop)
    connection.query(statement.format(t=f"{schema}.t"))
    connection.query(f"CREATE TABLE IF NOT EXISTS {schema}.t (id INT PRIMARY KEY, v INT, name VARCHAR(20))")
    with pytest.raises(ReplicationError, match=told):
        followed.sync(hop)


def test_a_purged_log_is_told_and_a_new_snapshot_mends_it(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema)
    followed = follow(**CHUNK)
    followed.sync()
    connection.query(f"DELETE FROM {schema}.t WHERE id % 2 = 0")
    connection.query(f"UPDATE {schema}.t SET v = 5 WHERE id % 3 = 0")
    purge(connection)
    hop = followed.hop()
    with pytest.raises(ReplicationError, match=r"does not hold the position .* job 'rebuild'"):
        hop.plan()
    assert hop.begin_anew() is not None
    connection.query(f"INSERT INTO {schema}.t VALUES (2, 7, 'back')")
    followed.sync()
    assert followed.rows() == followed.wanted()
    followed.sums()
    assert followed.hop().plan().backlog == ()


def test_grants_that_are_missing_are_spelled_out(
    connection: Connection, kind: Kind, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema, 3)
    create_user(connection, "least")
    connection.query(f"GRANT SELECT ON `{schema}`.* TO 'least'@'127.0.0.1'")
    followed = follow(username="least", password="least")
    hop = followed.hop()
    with pytest.raises(EndpointError, match=r"BINLOG MONITOR|REPLICATION"):
        followed.sync(hop)
    connection.query(f"GRANT {kind.client_grant} ON *.* TO 'least'@'127.0.0.1'")
    told = r"GRANT REPLICATION SLAVE ON \*\.\* TO 'least'@'127\.0\.0\.1'"
    with pytest.raises(EndpointError, match=told):
        followed.sync(hop)
    connection.query("GRANT REPLICATION SLAVE ON *.* TO 'least'@'127.0.0.1'")
    followed.sync(hop)
    assert followed.rows() == followed.wanted()


MODES = [
    ({"scan__startup__mode": "latest-offset"}, [3]),
    ({"scan__startup__mode": "earliest-offset"}, [1, 2, 3]),
    ({"scan__startup__mode": "specific-offset"}, [2, 3]),
    ({"scan__startup__mode": "snapshot"}, [1, 2]),
]


@pytest.mark.parametrize(("mode", "ids"), MODES, ids=[item[0]["scan__startup__mode"] for item in MODES])
def test_where_reading_begins(
    mode: dict[str, str], ids: list[int], connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    purge(connection)  # other tests leave changes in the log that stop a reader
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    connection.query(f"INSERT INTO {schema}.t VALUES (1)")
    place = log_end(connection)
    connection.query(f"INSERT INTO {schema}.t VALUES (2)")
    more = dict(mode)
    if "specific-offset" in mode.values():
        more["scan__startup__specific-offset__file"] = place.file
        more["scan__startup__specific-offset__pos"] = str(place.offset)
    followed = follow(**more)
    followed.sync()
    connection.query(f"INSERT INTO {schema}.t VALUES (3)")
    followed.sync()
    assert followed.rows() == [(number,) for number in ids]


def test_another_server_and_a_restart(
    spark: SparkSession, tmp_path: Path, kind: Kind, start: Callable[..., Database], connection: Connection
) -> None:
    """The same server goes on after a restart; another one, with transactions of its own, is noticed."""
    data = tmp_path / "server"
    with start(data, variables={"server-id": "77"}) as first:
        own = server_of(first)
        with Connection(own) as opened:
            opened.query("CREATE DATABASE shop")
            fill(opened, "shop", 20)
        followed = Followed(spark, own, "shop", "t", tmp_path, {})
        followed.sync()
        with Connection(own) as opened:
            opened.query("UPDATE shop.t SET v = 1")
    with start(data, variables={"server-id": "77"}) as again:
        followed.server = server_of(again)
        with Connection(followed.server) as opened:
            opened.query("DELETE FROM shop.t WHERE id = 5")
        followed.sync()
        assert followed.rows() == followed.wanted()
        assert followed.hop().plan().backlog == ()
    connection.query("CREATE DATABASE shop")
    try:
        fill(connection, "shop", 3)
        for _ in range(100):  # so that its numbers are beyond those of the other one
            connection.query("UPDATE shop.t SET v = v + 1")
        followed.server = connection.server
        with pytest.raises(
            ReplicationError, match="the log cannot be read from" if kind.name == "mariadb" else "another one"
        ):
            followed.sync()
    finally:
        connection.query("DROP DATABASE shop")


def test_reading_goes_on_at_a_replica_that_takes_over(
    spark: SparkSession, tmp_path: Path, kind: Kind, start: Callable[..., Database]
) -> None:
    """Its log has other files; the transactions in it are found by their global ids."""
    replica = {"server-id": "78", kind.replica_log: "1", "log-bin": str(tmp_path / "replica" / "other")}
    with (
        start(tmp_path / "first", variables={"server-id": "77"}) as first,
        start(tmp_path / "replica", variables=replica) as second,
    ):
        own, other = server_of(first), server_of(second)
        with Connection(own) as source, Connection(other) as target:
            source.query("RESET MASTER")
            target.query("RESET MASTER")
            kind.replicate(target, own)
            source.query("CREATE DATABASE shop")
            fill(source, "shop", 20)
            source.query("FLUSH BINARY LOGS")
            source.query("UPDATE shop.t SET v = 1 WHERE id < 9")
            followed = Followed(spark, own, "shop", "t", tmp_path, {})
            followed.sync()
            source.query("UPDATE shop.t SET v = 2 WHERE id < 5")
            source.query("DELETE FROM shop.t WHERE id = 7")
            kind.await_replica(target, source)
            target.query("STOP SLAVE")
            target.query("UPDATE shop.t SET id = 100 WHERE id = 8")
            followed.server = other
            followed.sync()
            assert followed.rows() == followed.wanted()
            assert followed.hop().plan().backlog == ()
            target.query("INSERT INTO shop.t VALUES (200, 1, 'x')")
            run = followed.sync()
            assert run.account.rows == 1
            assert followed.rows() == followed.wanted()
            followed.sums()


def test_a_replica_that_takes_over_sends_nothing_that_stands_before_the_beginning(
    spark: SparkSession, tmp_path: Path, kind: Kind, start: Callable[..., Database]
) -> None:
    """Without a snapshot: what the first server has purged, and the replica has not, is older than what was read."""
    replica = {"server-id": "78", kind.replica_log: "1"}
    with (
        start(tmp_path / "first", variables={"server-id": "77"}) as first,
        start(tmp_path / "replica", variables=replica) as second,
    ):
        own, other = server_of(first), server_of(second)
        with Connection(own) as source, Connection(other) as target:
            source.query("RESET MASTER")
            target.query("RESET MASTER")
            kind.replicate(target, own)
            source.query("CREATE DATABASE shop")
            fill(source, "shop", 20)
            kind.await_replica(target, source)
            purge(source)
            source.query("UPDATE shop.t SET v = 5")
            followed = Followed(spark, own, "shop", "t", tmp_path, {"scan.startup.mode": "earliest-offset"})
            followed.sync()
            kind.await_replica(target, source)
            target.query("STOP SLAVE")
            target.query("UPDATE shop.t SET v = 6 WHERE id = 1")
            followed.server = other
            followed.sync()
            assert followed.rows() == followed.wanted()


def test_two_readers_of_one_id_are_told(connection: Connection, server: Server) -> None:
    start = log_end(connection)
    with LogStream(server, start, server_id=4712, to_end=False, heartbeat=0.2) as first:
        next(iter(first))
        with (
            LogStream(server, start, server_id=4712, to_end=False, heartbeat=0.2) as second,
            pytest.raises(ReplicationError, match="reads with the same server id; give every pipeline a 'server-id'"),
        ):
            next(iter(second))
            for _ in first:
                pass
