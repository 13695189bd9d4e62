"""Tasks in Spark's workers: what is pickled on the way there, and what several tasks at once make of one stage."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, cast

import pytest
from pyspark.sql import SparkSession

from upsert_platform.engine import engine, store
from upsert_platform.engine.runners import LocalRunner, SparkRunner
from upsert_platform.engine.tasks import Answer, Task
from upsert_platform.sql.evaluation import prepared
from upsert_platform_tests.engine.people import DIM, ORDERS, Arrived, kept_over, people_on_tablestore
from upsert_platform_tests.engine.world import Kept, World, plan_query, same_rows
from upsert_platform_tests.local.tablestore.server import ServerHandle

pytestmark = pytest.mark.whole_runs

STATEMENTS = {
    "groups": "SELECT kind, COUNT(*) AS n, COUNT(DISTINCT uid) AS u, MAX(amount) AS hi FROM orders GROUP BY kind",
    "a join": "SELECT o.oid, u.region FROM orders o LEFT JOIN users u ON o.uid = u.id",
    "first rows": "SELECT oid, uid, amount FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY uid ORDER BY amount DESC"
    " NULLS LAST, oid) AS rn FROM orders) AS t WHERE rn <= 2",
    "steps of Spark": "SELECT REPEAT(UPPER(kind), 1) AS k, uid, COUNT(*) AS n FROM orders"
    " GROUP BY REPEAT(UPPER(kind), 1), uid",
}


@pytest.fixture
def in_workers(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> SparkRunner:
    """Sends every task to a worker, several per stage."""

    def refuse(self: LocalRunner, tasks: Sequence[Task], *, rows: int, state: int) -> list[Answer]:
        assert not tasks, "a task ran in this process"
        return []

    monkeypatch.setattr(engine, "_FEW_ROWS", 5)
    monkeypatch.setattr(store, "BUCKETS", 4)
    monkeypatch.setattr(LocalRunner, "run", refuse)
    return SparkRunner(lambda: prepared(spark))


@pytest.mark.parametrize("name", STATEMENTS)
def test_workers_give_what_a_computation_from_nothing_gives(name: str, tmp_path: Path, in_workers: SparkRunner) -> None:
    world = World(tmp_path, random.Random(name))
    kept = Kept(world, plan_query(STATEMENTS[name]), runner=in_workers)
    for _ in range(2):
        for table in kept.query.tables:
            world.change(table, 24)
        done = kept.advance()
        assert done is not None
        assert done.read == 24 * len(kept.query.tables)
        assert same_rows(kept.result(), world.judge(STATEMENTS[name]))


def test_workers_find_rows_in_a_table(tmp_path: Path, in_workers: SparkRunner, shared_tablestore: ServerHandle) -> None:
    people = people_on_tablestore(shared_tablestore)
    world = World(tmp_path, random.Random(21))
    sql = f"SELECT o.oid, d.name FROM {ORDERS} LEFT JOIN {DIM} o.proc AS d ON o.uid = d.id"
    kept, arrived = kept_over(people, world, sql), Arrived(lambda row: (row["uid"],))
    kept.runner = in_workers
    for _ in range(2):
        people.change(6)
        world.change("orders", 20)
        kept.advance()
        arrived.follow(world.rows["orders"], people.rows)
        expected = [(oid, found[0] if found else None) for oid, (_, found) in arrived.shown.items()]
        assert same_rows(kept.result(), expected)
    people.destination.close()


def test_the_local_bound_is_that_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened() -> NoReturn:
        raise AssertionError("Spark was opened")

    ran: list[int] = []
    monkeypatch.setattr(LocalRunner, "run", lambda self, tasks, *, rows, state: ran.append(rows) or [])
    runner, task = SparkRunner(opened, local_rows=1_000_000), (cast("Task", None),)
    for rows in (1, 100_000, 1_000_000):
        assert runner.parallel(rows=rows, state=0) == 1
        runner.run(task, rows=rows, state=0)
    assert ran == [1, 100_000, 1_000_000]
    for made, rows, state in ((runner, 1_000_001, 0), (runner, 1, 1 << 30), (SparkRunner(opened), 1, 0)):
        with pytest.raises(AssertionError, match="Spark was opened"):
            made.run(task, rows=rows, state=state)
