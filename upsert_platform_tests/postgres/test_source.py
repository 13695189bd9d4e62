"""A PostgreSQL table as a source: snapshots of one moment, taken again when that is due, and an INSERT from one."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pytest

from upsert_platform.changelog.lake import Lake
from upsert_platform.core.errors import DestinationError
from upsert_platform.core.model import Options, Table
from upsert_platform.postgres import reader
from upsert_platform.postgres.source import PostgresSource
from upsert_platform.postgres.table import PostgresTable
from upsert_platform.sync.binding import changelog_of
from upsert_platform.sync.changelog_hop import ChangelogHop
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform_tests.postgres.conftest import Tables
from upsert_platform_tests.postgres.declared import PLACE, changes, write
from upsert_platform_tests.postgres.test_rows import ALL_TYPES, EMPTY, FULL
from upsert_platform_tests.sync.test_one_task import never

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.systems
Ask = Callable[..., list[tuple[Any, ...]]]
COLUMNS = {"id": "BIGINT", "n": "BIGINT"}


def _hop(table: PostgresTable, root: Path) -> ChangelogHop:
    declared = Table(table.name, table.columns, table.primary_key, Options({"connector": "postgres"}), PLACE)
    source = PostgresSource(declared, str(table.place), table.settings.snapshot_interval, table)
    return ChangelogHop(source, changelog_of(source, Lake(str(root))), run="run")


def _run(hop: ChangelogHop, spark: OnDemand) -> int:
    """Reads what is due; gives the number of batches, whose counts add up."""
    done = hop.execute(spark, hop.plan())
    assert [account.imbalance() for account in done.ranges] == [None] * len(done.ranges)
    return done.batches


def _held(hop: ChangelogHop) -> dict[Any, dict[str, Any]]:
    """The rows that a changelog stands for, by the first column: what its last batch says of each key."""
    found: dict[Any, dict[str, Any]] = {}
    names = [column.name for column in hop.source.table.columns]
    rows = hop.store.dataset().to_table().sort_by("_batch").to_pylist()
    for row in rows:
        if row["_kind"] == "-D":
            assert found.pop(row[names[0]], None) is not None, "a delete of a key that is not there"
        elif row["_kind"] != "#":
            found[row[names[0]]] = {name: row[name] for name in names}
    return found


def test_every_type_is_read_as_it_was_written(postgres_tables: Tables, tmp_path: Path) -> None:
    table = postgres_tables(ALL_TYPES)
    written = changes(ALL_TYPES, FULL, EMPTY, (3, *[None] * 18, "U"))
    write(table, written)
    hop = _hop(table, tmp_path)
    assert _run(hop, OnDemand(never)) == 1
    assert [*_held(hop).values()] == written.select(list(ALL_TYPES)).to_pylist()
    plan = hop.plan()
    assert not plan.backlog, "a snapshot is taken once"


def test_ranges_are_read_at_one_moment(
    postgres_tables: Tables, postgres_server: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While transactions move amounts between rows, and rows between pages, each snapshot has the same sum."""
    monkeypatch.setattr(reader, "_PAGES", 2)
    table = postgres_tables(COLUMNS)
    write(table, changes(COLUMNS, *[(number, 100, "U") for number in range(3000)]))
    ended, moved = threading.Event(), []

    def move() -> None:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            while not ended.is_set():
                one = len(moved) % 2999
                sql = f"UPDATE {table.place.sql} SET n = n + CASE id WHEN {one} THEN 7 ELSE -7 END"
                connection.execute(f"{sql} WHERE id IN ({one}, {2999 - one})".encode())
                moved.append(one)

    thread = threading.Thread(target=move)
    thread.start()
    try:
        for turn in range(3):
            hop = _hop(table, tmp_path / str(turn))
            before = len(moved)
            assert _run(hop, OnDemand.dividing(spark)) == 1
            assert len(moved) > before
            held = _held(hop)
            assert (len(held), sum(row["n"] for row in held.values())) == (3000, 300_000)
    finally:
        ended.set()
        thread.join()


def test_a_new_snapshot_deletes_the_keys_that_it_does_not_meet(
    postgres_tables: Tables, ask: Ask, spark: SparkSession, tmp_path: Path
) -> None:
    table = postgres_tables(COLUMNS, **{"auto.create": "false"})
    ask(f"CREATE TABLE {table.place.sql} (id bigint PRIMARY KEY, n bigint)")
    hop, on_demand = _hop(table, tmp_path), OnDemand(lambda: spark)
    assert hop.begin_anew() is None
    assert (_run(hop, on_demand), _held(hop)) == (1, {})
    ask(f"INSERT INTO {table.place.sql} SELECT n, n FROM generate_series(1, 5) AS s(n)")
    assert _run(hop, on_demand) == 0
    for statement, expected in (
        ("SELECT", {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}),
        (f"DELETE FROM {table.place.sql} WHERE id < 3; UPDATE {table.place.sql} SET n = 9 WHERE id = 4",
         {3: 3, 4: 9, 5: 5}),
        (f"INSERT INTO {table.place.sql} VALUES (1, 8); DELETE FROM {table.place.sql} WHERE id > 3", {1: 8, 3: 3}),
        (f"DELETE FROM {table.place.sql}", {}),
    ):  # fmt: skip
        ask(statement)
        assert hop.begin_anew() is not None
        assert _run(hop, on_demand) == 2
        assert {key: row["n"] for key, row in _held(hop).items()} == expected
        assert _run(hop, on_demand) == 0


def test_a_snapshot_that_is_too_old_is_taken_again(postgres_tables: Tables, ask: Ask, tmp_path: Path) -> None:
    table = postgres_tables(COLUMNS, **{"scan.snapshot.interval": "1 ms"})
    write(table, changes(COLUMNS, (1, 1, "U")))
    hop = _hop(table, tmp_path)
    assert _run(hop, OnDemand(never)) == 1
    ask(f"UPDATE {table.place.sql} SET n = 2")
    plan = hop.plan()
    assert [item.offsets for item in plan.backlog] != []
    hourly = postgres_tables(COLUMNS, name=table.name, **{"scan.snapshot.interval": "1 h"})
    assert not _hop(hourly, tmp_path).plan().backlog


def test_a_table_without_one_row_per_key_is_refused(postgres_tables: Tables, ask: Ask, tmp_path: Path) -> None:
    table = postgres_tables(COLUMNS)
    ask(f"CREATE TABLE {table.place.sql} (id bigint, n bigint)")
    with pytest.raises(DestinationError, match="no unique index is on just the declared primary key"):
        _hop(table, tmp_path).plan()


PROJECT = """
CREATE TABLE users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'postgres', 'url' = 'jdbc:postgresql://{place}', 'username' = '{user}',
  'password' = '${{SHOWN_PASSWORD}}', 'table-name' = 'source_users');
CREATE TABLE copies (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'postgres', 'url' = 'jdbc:postgresql://{place}', 'username' = '{user}',
  'password' = '${{SHOWN_PASSWORD}}', 'table-name' = 'source_copies', 'auto.create' = 'true');
INSERT INTO copies SELECT id, UPPER(name) FROM users WHERE id > 1;
"""


@pytest.mark.soak
def test_an_insert_reads_a_table_and_rebuild_reads_it_again(
    postgres_server: str, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = urlsplit(postgres_server)
    monkeypatch.setenv("SHOWN_PASSWORD", str(parts.password))
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    shop = tmp_path / "shop"
    shop.mkdir()
    place = f"{parts.hostname}:{parts.port}{parts.path}"
    (shop / "shop.sql").write_text(PROJECT.format(place=place, user=parts.username))
    ask(
        "DROP TABLE IF EXISTS source_users, source_copies; CREATE TABLE source_users (id bigint PRIMARY KEY, name text)"
    )
    ask("INSERT INTO source_users VALUES (1, 'ann'), (2, 'bob'), (3, 'cid')")

    def run(*words: str) -> str:
        # A process of its own: definitions that this one has imported are of another project.
        command = [Path(sys.executable).parent / "upsert-platform", *words, "--project", shop]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("sync")
    assert ask("SELECT id, name FROM source_copies ORDER BY id") == [(2, "BOB"), (3, "CID")]
    ask("DELETE FROM source_users WHERE id = 2; INSERT INTO source_users VALUES (4, 'dan')")
    run("sync")
    assert ask("SELECT id, name FROM source_copies ORDER BY id") == [(2, "BOB"), (3, "CID")]
    config = tmp_path / "rebuild.yaml"
    config.write_text("ops: {rebuild_queries: {config: {tables: [users]}}}")
    run("run", "rebuild", "--config", str(config))
    run("sync")
    assert ask("SELECT id, name FROM source_copies ORDER BY id") == [(3, "CID"), (4, "DAN")]
    run("run", "verify")
