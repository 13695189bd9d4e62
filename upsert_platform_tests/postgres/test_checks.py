"""Checks of a PostgreSQL table: both runners pass what is right, and find what somebody else changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from upsert_platform.postgres import client
from upsert_platform.postgres.connector import PostgresConnector
from upsert_platform.postgres.destination import PostgresDestination
from upsert_platform.sync.checkups import stores
from upsert_platform.sync.checkups.finding import State
from upsert_platform.sync.connectors import CONNECTORS
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.reconcile import reconcile
from upsert_platform.sync.verify import check_batch, check_everything
from upsert_platform_tests.changelog.places import Placed
from upsert_platform_tests.postgres.conftest import Tables
from upsert_platform_tests.postgres.declared import changes, found_rows, write
from upsert_platform_tests.sync.test_one_task import append, hop_to, never
from upsert_platform_tests.writing.in_memory import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.systems
Ask = Callable[..., list[tuple[Any, ...]]]


@pytest.mark.parametrize("kind", ["text", "jsonb"])
def test_checks_find_what_somebody_else_changed(
    kind: str, spark: SparkSession, postgres_tables: Tables, ask: Ask, tmp_path: Path
) -> None:
    """Of jsonb too, whose texts the server holds in another form than they were written."""
    table = postgres_tables({"id": "INT", "name": "STRING"}, **{"auto.create": "false"})
    name = table.place.sql
    ask(f"CREATE TABLE {name} (id integer PRIMARY KEY, name {kind})")
    destination = PostgresDestination(table)
    in_memory = hop_to(Place(), tmp_path)
    hop = DestinationHop(in_memory.target, in_memory.store, destination, refused=in_memory.refused, run="run")
    append(hop.store, 1, [Placed(1, 0, key, None, key, f'{{"b":{key},  "a":1}}') for key in range(50)])
    hop.execute(OnDemand(never), hop.plan())
    second = [Placed(2, 0, 100 + key, None, key, None if key < 5 else f"[{key} ]") for key in range(30)]
    append(hop.store, 2, second)
    hop.execute(OnDemand(lambda: spark), hop.plan())
    local = OnDemand(never)
    for found in (
        check_batch(local, hop, after=1, upto=2),
        check_batch(OnDemand.dividing(spark), hop, after=1, upto=2),
    ):
        assert (found.passed, found.compared) == (True, 50)
    assert check_everything(spark, hop, upto=2).passed
    ask(
        f"DELETE FROM {name} WHERE id IN (7, 8); UPDATE {name} SET name = '0' WHERE id IN (9, 40);"
        f" INSERT INTO {name} VALUES (3, '1')"
    )
    for found in (
        check_batch(local, hop, after=1, upto=2),
        check_batch(OnDemand.dividing(spark), hop, after=1, upto=2),
    ):
        assert (found.missing, found.stale, found.extra) == (2, 2, 1)
    ask(f"INSERT INTO {name} VALUES (1000, '1')")
    assert check_everything(spark, hop, upto=2).extra == 2
    repaired = reconcile(spark, hop, dry_run=False)
    assert repaired.report is not None
    assert (repaired.report.upserts, repaired.report.deletes, repaired.last.passed) == (4, 2, True)
    assert check_everything(spark, hop, upto=2).passed
    assert ask(f"SELECT count(*), min(id), max(id) FROM {name}") == [(45, 5, 49)]
    destination.close()


def test_nothing_is_needed_of_a_session_beyond_a_transaction(
    postgres_tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler that gives each transaction another session: here each one has a connection of its own."""
    rows = client.Session.rows

    def once(session: client.Session, *arguments: Any) -> Any:
        try:
            return rows(session, *arguments)
        finally:
            session.close()

    monkeypatch.setattr(client.Session, "rows", once)
    columns = {"id": "BIGINT", "name": "STRING"}
    table = postgres_tables(columns)
    frame = changes(columns, (1, "a", "U"), (2, "b", "U"))
    assert write(table, frame).upserts == 2
    assert found_rows(table, frame.select(["id"])).to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def test_a_lookup_finds_rows_by_their_keys(postgres_tables: Tables) -> None:
    from upsert_platform.postgres.reader import PostgresKeyReader

    columns = {"code": "STRING", "id": "BIGINT", "name": "STRING"}
    table = postgres_tables(columns, "id", "code")
    frame = changes(columns, *[(f"c{n % 3}", n, f"n{n}", "U") for n in range(100)])
    write(table, frame)
    with PostgresKeyReader(table).open() as find:
        wanted = frame.select(["id", "code"]).slice(40, 3)
        found = [row for batch in find(wanted) for row in batch.to_pylist()]
    assert sorted(row["name"] for row in found) == ["n40", "n41", "n42"]


def test_doctor_and_peek_see_the_table(postgres_tables: Tables, ask: Ask) -> None:
    columns = {"id": "BIGINT", "name": "STRING"}
    table = postgres_tables(columns)
    connector = CONNECTORS["postgres"]
    assert isinstance(connector, PostgresConnector)
    (missing,) = stores._written("users", table, connector)
    assert missing.state is State.OK
    assert "the first run creates it ('auto.create')" in missing.told
    write(table, changes(columns, (2, "b", "U"), (1, "a", "U"), (3, "c", "U")))
    (there,) = stores._written("users", table, connector)
    assert (there.state, there.told.endswith("is as it is declared")) == (State.OK, True)
    told, found = connector.first_rows(table, 2)
    assert told == f"the first rows of PostgreSQL table {table.place}, by key"
    assert found.to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    ask(f"ALTER TABLE {table.place.sql} DROP COLUMN name")
    (differs,) = stores._written("users", table, connector)
    assert (differs.state, "column 'name' is missing" in differs.told) == (State.FAULT, True)


def test_columns_that_the_next_write_adds_are_read_as_nulls(
    spark: SparkSession, postgres_tables: Tables, ask: Ask
) -> None:
    first = postgres_tables({"id": "INT", "name": "STRING"})
    write(first, changes({"id": "INT", "name": "STRING"}, (1, "a", "U"), (2, "b", "U")))
    wider = {"id": "INT", "list": "ARRAY<INT>", "name": "STRING", "pairs": "MAP<STRING, INT>", "at": "TIMESTAMP(6)"}
    for auto_create in ("true", "false"):
        destination = PostgresDestination(postgres_tables(wider, name=first.name, **{"auto.create": auto_create}))
        destination.show_added()
        if auto_create == "true":
            expected = spark.sql("SELECT 2 AS id, array(1) AS list, 'b' AS name, map('a', 1) AS pairs, now() AS at")
            assert destination.held(expected.drop("at")).count() == 1
            keys = spark.sql("SELECT 2 AS id")
            assert [tuple(row) for row in destination.read(spark, keys=keys).collect()] == [(2, None, "b", None, None)]
            rows = destination.read(spark).orderBy("id").collect()
            assert [tuple(row) for row in rows] == [(1, None, "a", None, None), (2, None, "b", None, None)]
        else:
            with pytest.raises(Exception, match="list"):
                destination.read(spark).collect()
        destination.close()
    assert ask(f"SELECT count(*) FROM information_schema.columns WHERE table_name = '{first.name}'") == [(2,)]
