"""Rows that are only added, into a table with a key: the last one wins, whatever tasks and batches they came in."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from upsert_platform.engine import engine, reading, store, tasks
from upsert_platform.engine.explain import explain_plan
from upsert_platform.engine.runners import LocalRunner
from upsert_platform_tests.engine.test_merge import TARGET, query_of
from upsert_platform_tests.engine.world import Kept, World, plan_query, same_rows

pytestmark = pytest.mark.whole_runs

Records = Sequence[dict[str, Any]]
Rows = dict[Any, tuple[Any, ...]]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BUCKETS", 3)
    monkeypatch.setattr(reading, "_CHUNK", 4)
    monkeypatch.setattr(tasks, "_WAITING", 7)
    monkeypatch.setattr(engine, "_FEW_ROWS", 1)


class _Several(LocalRunner):
    """As on several cores."""

    def parallel(self, *, rows: int, state: int) -> int:
        return 3


def _distinct(records: Records, _: int) -> Rows:
    """A row is given when it is first met, as in Flink."""
    met: set[Any] = set()
    found: Rows = {}
    for item in records:
        row = (item["uid"], item["secs"], item["page"])
        if item["uid"] is not None and row not in met:
            met.add(row)
            found[item["uid"]] = row
    return found


def _joined(records: Records, _: int) -> Rows:
    """The last record of either side: no pair is given after theirs."""
    last = {item["uid"]: item for item in records if item["uid"] is not None}
    lasting = {item["uid"]: item for item in records if item["secs"] is not None}
    return {uid: (uid, last[uid]["secs"], lasting[uid]["page"]) for uid in last if uid in lasting}


def _united(records: Records, since: int) -> Rows:
    """Pages of records that share a key with a later one; the batch of the later record decides, then the first."""
    found: Rows = {}
    for start, end in ((0, since), (since, len(records))):
        new: dict[Any, tuple[int, int]] = {}
        for left, one in enumerate(records[:end]):
            for right, other in enumerate(records[:end]):
                if max(left, right) >= start and one["uid"] == other["uid"] and one["uid"] is not None:
                    key = one["page"]
                    new[key] = max(new.get(key, (-1, -1)), (left, right))
        found |= {page: (page, records[left]["secs"], records[right]["page"]) for page, (left, right) in new.items()}
    return found


def _windowed(records: Records, _: int) -> Rows:
    """Of the windows of the last record the one that is given last: that which ends first."""
    found: Rows = {}
    for item in records:
        if item["uid"] is not None:
            step = timedelta(minutes=5)
            found[item["uid"]] = (item["uid"], item["secs"], item["ts"] - (item["ts"] - EPOCH) % step + step)
    return found


EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
HOP = "HOP(TABLE views, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '15' MINUTES)"
STATEMENTS: dict[str, tuple[str, Callable[[Records, int], Rows]]] = {
    "distinct": ("SELECT DISTINCT uid, secs, page FROM views WHERE uid IS NOT NULL", _distinct),
    "distinct of distinct": (
        "SELECT DISTINCT uid, secs, page FROM (SELECT DISTINCT uid, page, secs FROM views) v WHERE uid IS NOT NULL",
        _distinct,
    ),
    "join": (
        "SELECT v.uid, v.secs, w.page FROM views v JOIN views w ON v.uid = w.uid AND w.secs IS NOT NULL", _joined,
    ),
    "join into another key": ("SELECT v.page, v.secs, w.page FROM views v JOIN views w ON v.uid = w.uid", _united),
    "window": (f"SELECT uid, secs, window_end FROM TABLE({HOP}) WHERE uid IS NOT NULL", _windowed),
}  # fmt: skip
TYPES = {"window": ("STRING", "TIMESTAMP(3)"), "join into another key": ("k INT", "k STRING")}


@pytest.mark.parametrize("name", STATEMENTS)
def test_last_record_of_a_key_wins(name: str, tmp_path: Path) -> None:
    select, model = STATEMENTS[name]
    target = TARGET.replace(*TYPES.get(name, ("", "")))
    for seed in range(3):
        world = World(tmp_path / str(seed), random.Random(f"{name} {seed}"))
        kept = Kept(world, query_of(f"INSERT INTO t {select}", target=target), runner=_Several())
        since = 0
        for _ in range(2):
            world.change("views", 30)
            kept.advance()
            expected = model(world.rows["views"], since)
            assert same_rows(kept.result(), list(expected.values())), seed
            since = len(world.rows["views"])


def test_distinct_rows_beside_another_insert_are_a_branch(tmp_path: Path) -> None:
    """Of a key that both have, the row that changed last is shown; a later statement within a batch."""
    world = World(tmp_path, random.Random(9))
    distinct = "INSERT INTO t SELECT DISTINCT uid, secs, page FROM views WHERE uid IS NOT NULL"
    kept = Kept(world, query_of("INSERT INTO t SELECT id, age, region FROM users", distinct), runner=_Several())
    world.change("views", 30)
    world.change("users", 20)
    kept.advance()
    users = {row["id"]: (row["id"], row["age"], row["region"]) for row in world.rows["users"]}
    assert same_rows(kept.result(), list((users | _distinct(world.rows["views"], 0)).values()))


def test_explain_tells_what_decides_and_what_is_kept() -> None:
    lines = list(explain_plan(query_of("INSERT INTO t SELECT DISTINCT uid, secs, page FROM views").plan))
    assert lines[0] == "last row of each k by its records"
    assert [line.strip() for line in lines if "state:" in line] == [
        "state: the rows per (k): grows with the keys",
        "state: the keys per (uid_2, secs_2, page_2): grows with the keys",
    ]
    assert lines[-1].strip() == "read views (uid, page, secs): rows that are only added"
    groupings = query_of("INSERT INTO t SELECT id, COUNT(*), CAST(NULL AS STRING) FROM users GROUP BY ROLLUP (id)")
    assert any("copy rows per grouping: (id_2_2); ()" in line for line in explain_plan(groupings.plan))


def test_first_and_last_values_are_those_of_the_first_and_last_records(tmp_path: Path) -> None:
    """Nulls left out; groups of null, and groups that have nothing but nulls, among them."""
    sql = (
        "SELECT uid, FIRST_VALUE(page) AS f, LAST_VALUE(page) AS l, COUNT(*) AS n, LAST_VALUE(secs) FILTER (WHERE page"
        " = 'p') AS s, APPROX_COUNT_DISTINCT(page) AS u, FIRST_VALUE(uid) AS own FROM views GROUP BY uid"
        " HAVING COUNT(*) > 1"
    )
    world = World(tmp_path, random.Random(41))
    kept, once = Kept(world, plan_query(sql), runner=_Several()), Kept(world, plan_query(sql), "once")
    for _ in range(5):
        world.change("views", world.rng.randrange(1, 20))
        kept.advance()
        expected = []
        for uid in {row["uid"] for row in world.rows["views"]}:
            mine = [row for row in world.rows["views"] if row["uid"] == uid]
            pages = [row["page"] for row in mine if row["page"] is not None]
            seconds = [row["secs"] for row in mine if row["page"] == "p" and row["secs"] is not None]
            ends = (pages[0], pages[-1]) if pages else (None, None)
            if len(mine) > 1:
                expected.append((uid, *ends, len(mine), seconds[-1] if seconds else None, len(set(pages)), uid))
        assert same_rows(kept.result(), expected)
    once.advance()
    assert same_rows(once.result(), kept.result())
