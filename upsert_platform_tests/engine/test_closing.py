"""Windows that close: what comes later is counted and left out, by a reckoning with a list and a dictionary."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from upsert_platform.changelog import rows
from upsert_platform.core.plan import Query, Window
from upsert_platform.engine import store
from upsert_platform.engine.engine import QueryBatch
from upsert_platform.engine.rebuild import rebuild
from upsert_platform.engine.runners import LocalRunner
from upsert_platform.engine.store import QueryStore
from upsert_platform.sql.evaluation import prepared
from upsert_platform.sql.reader import Fault
from upsert_platform_tests.engine.reckoning import LATENESS, MINUTE, NOON, Reckoning, windows
from upsert_platform_tests.engine.world import DDL, START, Kept, World, declared, plan_query, same_rows
from upsert_platform_tests.sql.planning.test_finals import nodes
from upsert_platform_tests.sql.reading import errors, read

pytestmark = pytest.mark.whole_runs


def planned(sql: str, *, lateness: timedelta | None = LATENESS) -> Query:
    """A query over tables with a watermark."""
    watermark = "WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE"
    more = {name: replace(declared()[name], watermark=watermark) for name in ("orders", "views")}
    return plan_query(sql, more=more, lateness=None if lateness is None else lateness // timedelta(microseconds=1))


def _view(world: World, moment: datetime, lane: int) -> dict[str, Any]:
    world.offsets["views"] += 1
    return {
        "uid": world.rng.randrange(3), "page": world.rng.choice(["p", "q", None]), "secs": 1, "ts": moment,
        rows.KIND: rows.KIND_INSERT, rows.TOPIC: "views", rows.PARTITION: lane, rows.OFFSET: world.offsets["views"],
        rows.ROW: 0, rows.TIMESTAMP: START,
    }  # fmt: skip


def _views(world: World, now: datetime, count: int) -> list[dict[str, Any]]:
    """Records of two partitions, the second of which is behind; some of each are later than that."""
    found = []
    for _ in range(count):
        lane = world.rng.randrange(2)
        back = timedelta(seconds=world.rng.choice([world.rng.randrange(60), world.rng.randrange(1200)]))
        found.append(_view(world, now - lane * 2 * MINUTE - back, lane))
    return found


WINDOWS = {
    "TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '3' MINUTES)": (3, 3),
    "HOP(TABLE {}, DESCRIPTOR(ts), INTERVAL '2' MINUTES, INTERVAL '6' MINUTES)": (6, 2),
}


@pytest.mark.parametrize("window", WINDOWS)
def test_rows_that_are_added_to_windows_until_they_close(
    window: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over so many batches that state is merged as a whole: closed groups leave it, and nothing else."""
    monkeypatch.setattr(store, "BUCKETS", 1)
    size, step = WINDOWS[window]
    world, reckoning = World(tmp_path, random.Random(window)), Reckoning(size, step)
    columns = "window_start, window_end, uid"
    sql = f"SELECT {columns}, COUNT(*) AS n FROM TABLE({window.format('views')}) GROUP BY {columns}"
    kept, pages = Kept(world, planned(sql)), Kept(world, planned(sql.replace("(*)", "(DISTINCT page)")), "pages")
    seen: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
    late = let_go = 0
    for turn in range(14):
        batch = _views(world, NOON + turn * MINUTE, 12)
        world.write("views", batch)
        left_out = reckoning.batch([(1, row["ts"], row["uid"]) for row in batch],
                                   [(row[rows.PARTITION], row["ts"]) for row in batch])  # fmt: skip
        done = kept.advance()
        assert done is not None
        assert done.late == left_out
        assert same_rows(kept.result(), reckoning.rows)
        for row in batch:
            for start, end in windows(row["ts"], size=size, step=step):
                if reckoning.closed is None or end > reckoning.closed:
                    seen[start, end, row["uid"]] |= {row["page"]} - {None}
        of_pages = pages.advance()
        assert of_pages is not None
        assert same_rows(pages.result(), [(*group, len(seen[group])) for group in reckoning.held])
        late += left_out
        let_go += done.let_go
    assert late > 15
    assert let_go > 5


def test_changes_of_rows_in_closed_windows_are_left_out_both_ways(tmp_path: Path) -> None:
    """A row that moves on leaves its closed window as it was, and is added where it goes."""
    world, reckoning = World(tmp_path, random.Random(32)), Reckoning(3, 3)
    window, columns = "TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '3' MINUTES)", "window_start, window_end, kind"
    kept = Kept(world, planned(f"SELECT {columns}, COUNT(*) AS n FROM TABLE({window}) GROUP BY {columns}"))
    there: dict[int, tuple[datetime, str]] = {}
    late = 0
    for turn in range(12):
        batch, now = [], NOON + turn * MINUTE
        for _ in range(10):
            oid, gone = world.rng.randrange(20), world.rng.random() < 0.2
            world.offsets["orders"] += 1
            row = {
                "oid": oid, "uid": 1, "amount": world.rng.randrange(9), "kind": world.rng.choice("ab"),
                "ts": now - timedelta(seconds=world.rng.randrange(900)),
            }  # fmt: skip
            batch.append({
                **(dict.fromkeys(row) | {"oid": oid} if gone else row), rows.TOPIC: "orders", rows.PARTITION: 0,
                rows.KIND: rows.KIND_DELETE if gone else rows.KIND_UPDATE_AFTER, rows.ROW: 0, rows.TIMESTAMP: START,
                rows.OFFSET: world.offsets["orders"],
            })  # fmt: skip
        world.write("orders", batch)
        changes: list[tuple[int, datetime, Any]] = []
        for oid, row in {row["oid"]: row for row in batch}.items():
            old = there.pop(oid, None)
            new = (row["ts"], row["kind"]) if row["ts"] is not None else None
            if new is not None:
                there[oid] = new
            if old != new:
                changes += [(-1, *old)] if old else []
                changes += [(1, *new)] if new else []
        left_out = reckoning.batch(changes, [(0, row["ts"]) for row in batch if row["ts"] is not None])
        done = kept.advance()
        assert done is not None
        assert done.late == left_out
        assert same_rows(kept.result(), reckoning.rows)
        late += left_out
    assert late > 10


def test_windows_close_where_steps_need_spark(tmp_path: Path, spark: SparkSession) -> None:
    world, reckoning = World(tmp_path, random.Random(33)), Reckoning(3, 3)
    sql = (
        "SELECT window_start, window_end, REPEAT(UPPER(page), 1) AS p, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE views,"
        " DESCRIPTOR(ts), INTERVAL '3' MINUTES)) GROUP BY window_start, window_end, REPEAT(UPPER(page), 1)"
    )
    kept = Kept(world, planned(sql), runner=LocalRunner(lambda: prepared(spark)))
    assert any(stage.needs_spark for stage in kept.store.stages())
    for turn in (0, 9, 18):
        batch = _views(world, NOON + turn * MINUTE, 12)
        world.write("views", batch)
        changes = [(1, row["ts"], row["page"].upper() if row["page"] else None) for row in batch]
        left_out = reckoning.batch(changes, [(row[rows.PARTITION], row["ts"]) for row in batch])
        done = kept.advance()
        assert done is not None
        assert done.late == left_out
        assert same_rows(kept.result(), reckoning.rows)


def test_windows_stay_closed_when_the_setting_goes_and_comes_back(tmp_path: Path) -> None:
    """What was let go of cannot be added to: the same state serves, and no rebuild is asked for."""
    world = World(tmp_path, random.Random(34))
    columns = "window_start, window_end"
    window = "TUMBLE(TABLE views, DESCRIPTOR(ts), INTERVAL '3' MINUTES)"
    sql = f"SELECT {columns}, COUNT(*) AS n FROM TABLE({window}) GROUP BY {columns}"

    def advance(moment: datetime, lateness: timedelta | None) -> QueryBatch:
        world.write("views", [_view(world, moment, 0)])
        done = Kept(world, planned(sql, lateness=lateness)).advance()
        assert done is not None
        return done

    assert advance(NOON, LATENESS).late == 0
    assert advance(NOON + 60 * MINUTE, LATENESS).late == 0
    assert advance(NOON, LATENESS).late == 1
    assert advance(NOON + 50 * MINUTE, 60 * MINUTE).late == 1, "it was closed before, and stays so"
    assert advance(NOON + 58 * MINUTE, 60 * MINUTE).late == 0
    assert advance(NOON, None).late == 1, "its groups may have left the state"
    shown = Kept(world, planned(sql)).result()
    assert {(start, n) for start, _, n in shown} == {(NOON, 1), (NOON + 60 * MINUTE, 1), (NOON + 57 * MINUTE, 1)}
    anew = Kept(world, planned(sql, lateness=None))
    inputs = {"views": world.stores["views"]}
    rebuild(QueryStore(anew.store.uri, anew.query, any_plan=True), inputs, runner=LocalRunner(), run="test")
    assert advance(NOON, None).late == 0, "computed anew, nothing is closed"
    (there,) = [n for start, _, n in anew.result() if start == NOON]
    assert there == 4


def test_windows_close_by_the_time_of_one_table_alone() -> None:
    columns = "window_start, window_end"
    of_union = (
        f"WITH both AS (SELECT ts FROM orders UNION ALL SELECT ts FROM views) SELECT {columns}, COUNT(*) AS n FROM"
        f" TABLE(TUMBLE(TABLE both, DESCRIPTOR(ts), INTERVAL '3' MINUTES)) GROUP BY {columns}"
    )
    assert planned(of_union, lateness=None)
    with pytest.raises(Fault, match="windows close by the event time of one table"):
        planned(of_union)
    without = f"SELECT {columns}, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE views, DESCRIPTOR(ts), INTERVAL '3' MINUTES))"
    with pytest.raises(Fault, match="windows close behind a watermark: declare WATERMARK FOR ts"):
        plan_query(f"{without} GROUP BY {columns}", lateness=0)


MERGED = """
SET 'table.exec.emit.allow-lateness' = '{}';
INSERT INTO kept SELECT 'v', window_end, COUNT(*) FROM TABLE(TUMBLE(TABLE views, DESCRIPTOR(ts), INTERVAL '3' MINUTES))
  GROUP BY window_start, window_end;
{}
INSERT INTO kept SELECT 'o', window_end, COUNT(*) FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '3' MINUTES))
  GROUP BY window_start, window_end;
"""


def merged(first: str, then: str, *, table: str = "orders") -> Query:
    """The query of two statements into one keyed table, of which the second has a setting before it."""
    watermark = ", WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE"
    tables = DDL.replace("ts TIMESTAMP(3)", f"ts TIMESTAMP(3){watermark}")
    target = (
        "CREATE TABLE kept (t STRING, e TIMESTAMP(3), n BIGINT, PRIMARY KEY (t, e) NOT ENFORCED)"
        " WITH ('connector' = 'upsert-kafka');"
    )
    scripts, problems = read(tables + target + MERGED.format(first, then, table))
    assert errors(problems) == []
    (insert,) = scripts.inserts
    assert insert.query is not None
    return insert.query


def _order(world: World, moment: datetime) -> dict[str, Any]:
    world.offsets["orders"] += 1
    return {
        "oid": world.offsets["orders"], "uid": 1, "amount": 1, "kind": "a", "ts": moment, rows.PARTITION: 0,
        rows.TOPIC: "orders", rows.KIND: rows.KIND_UPDATE_AFTER, rows.ROW: 0, rows.TIMESTAMP: START,
        rows.OFFSET: world.offsets["orders"],
    }  # fmt: skip


def test_windows_of_several_statements_close_each_by_its_own_table(tmp_path: Path) -> None:
    """A table that is behind does not hold open the windows of the statement beside it."""
    world = World(tmp_path, random.Random(35))
    kept = Kept(world, merged("0 s", ""))
    late = []
    for ahead, behind in ((NOON, NOON), (NOON + 60 * MINUTE, NOON + MINUTE), (NOON, NOON)):
        world.write("views", [_view(world, ahead, 0)])
        world.write("orders", [_order(world, behind)])
        done = kept.advance()
        assert done is not None
        late.append(done.late)
    assert late == [0, 0, 1]
    first = NOON + 3 * MINUTE
    assert {(name, n) for name, end, n in kept.result() if end == first} == {("v", 1), ("o", 3)}


@pytest.mark.parametrize(("then", "views"), [("SET 'table.exec.emit.allow-lateness' = '2 h';", 2), ("", 1)])
def test_windows_of_several_statements_stay_open_as_long_as_each_says(then: str, views: int, tmp_path: Path) -> None:
    """Both read one table, whose time is the same for both; only how late a row may be differs."""
    world = World(tmp_path, random.Random(36))
    kept = Kept(world, merged("0 s", then, table="views"))
    for moment in (NOON, NOON + 60 * MINUTE, NOON):
        world.write("views", [_view(world, moment, 0)])
        assert kept.advance() is not None
    first = NOON + 3 * MINUTE
    assert {(name, n) for name, end, n in kept.result() if end == first} == {("v", 1), ("o", views)}


def test_windows_that_close_by_the_same_time_keep_the_names_of_their_state() -> None:
    """A query whose clock was right when it was shared goes on with its state; one whose was not has another name."""
    ends = [
        [node.names[1] for node in nodes(merged("0 s", then, table=table).plan) if isinstance(node, Window)]
        for then, table in (("", "views"), ("SET 'table.exec.emit.allow-lateness' = '1 s';", "views"), ("", "orders"))
    ]
    assert [len(set(names)) for names in ends] == [1, 2, 2]
