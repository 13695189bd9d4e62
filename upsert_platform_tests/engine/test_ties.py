"""ROW_NUMBER over rows that are only added: equal rows keep the order of their arrival, and PROCTIME is that order.

The model merges the partitions of equal records one by one: that whose next record is the earliest goes on, and what a
later batch brings comes later. Times go back within a partition.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from upsert_platform.changelog import rows
from upsert_platform.engine import engine, reading, tasks
from upsert_platform.engine.explain import explain_plan
from upsert_platform.engine.rebuild import rebuild
from upsert_platform.engine.runners import LocalRunner
from upsert_platform.engine.store import QueryStore
from upsert_platform.engine.upkeep import compact
from upsert_platform_tests.campaign import seeds
from upsert_platform_tests.engine.test_faults import DyingRunner, KilledError
from upsert_platform_tests.engine.world import START, Kept, World, declared, plan_query, random_row, same_rows

Record = dict[str, Any]
WATERMARKED = {"views": replace(declared()["views"], watermark="WATERMARK FOR ts AS ts - INTERVAL '5' SECOND")}
VIEWS = "(SELECT *, PROCTIME() AS proc FROM views)"


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_CHUNK", 4)
    monkeypatch.setattr(tasks, "_WAITING", 7)
    monkeypatch.setattr(engine, "_FEW_ROWS", 1)


class _Several(LocalRunner):
    """As on several cores."""

    def parallel(self, *, rows: int, state: int) -> int:
        return 3


@dataclass
class Topic:
    """The topic `views` in three partitions."""

    world: World
    batches: list[list[Record]] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)

    def grow(self, count: int) -> None:
        """A batch of records, in the order of their offsets; the times of records are their own."""
        rng = self.world.rng
        batch = []
        for _ in range(count):
            partition = rng.randrange(3)
            row = random_row("views", rng)
            row["ts"] = rng.choice([None, *(START.replace(tzinfo=None) + timedelta(hours=n) for n in range(2))])
            system = {
                rows.KIND: rows.KIND_INSERT, rows.TOPIC: "views", rows.PARTITION: partition,
                rows.OFFSET: self.ends.get(partition, 0), rows.ROW: 0,
                rows.TIMESTAMP: START + timedelta(seconds=rng.randrange(8)),
            }  # fmt: skip
            self.ends[partition] = self.ends.get(partition, 0) + 1
            batch.append({**row, **system})
        self.batches.append(batch)
        shuffled = list(batch)
        rng.shuffle(shuffled)
        self.world.write("views", shuffled)
        self.world.rows["views"] += batch

    def first(self, count: int, order: Callable[[Record], Any], *, latest: bool) -> list[tuple[Any, ...]]:
        """The first records of each uid, numbered; those that are equal as they arrived, or the last first."""
        return [
            (uid, item["page"], item["secs"], at + 1)
            for uid in self.uids()
            for at, item in enumerate(self.of(uid, order, latest=latest)[:count])
        ]

    def uids(self) -> set[int | None]:
        """Every uid that a record has."""
        return {item["uid"] for batch in self.batches for item in batch}

    def of(self, uid: int | None, order: Callable[[Record], Any], *, latest: bool) -> list[Record]:
        """The records of a uid in order; those that are equal as they arrived, or the last first."""
        mine: list[Record] = []
        for key in sorted({order(item) for batch in self.batches for item in batch if item["uid"] == uid}):
            for batch in reversed(self.batches) if latest else self.batches:
                equal = [item for item in batch if item["uid"] == uid and order(item) == key]
                mine += _merged(equal, forward=not latest)
        return mine


def _merged(batch: Sequence[Record], *, forward: bool) -> list[Record]:
    waiting: dict[int, list[Record]] = {}
    for item in batch:
        waiting.setdefault(item[rows.PARTITION], []).append(item)
    found = []
    while waiting:
        heads = [(part[0 if forward else -1][rows.TIMESTAMP], number) for number, part in waiting.items()]
        _, chosen = min(heads) if forward else max(heads)
        found.append(waiting[chosen].pop(0 if forward else -1))
        if not waiting[chosen]:
            del waiting[chosen]
    return found


def _nothing(_: Record) -> int:
    return 0


def _time(item: Record) -> tuple[bool, Any]:
    return (item["ts"] is not None, item["ts"] or 0)  # nulls first


def _time_back(item: Record) -> tuple[bool, float]:
    return (item["ts"] is None, -item["ts"].timestamp() if item["ts"] else 0)  # nulls last


def _rank(order: str, limit: int, *, source: str = VIEWS) -> str:
    return (
        f"SELECT uid, page, secs, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY uid ORDER BY {order}) AS rn FROM"
        f" {source} AS v) AS t WHERE rn <= {limit}"
    )


CASES: dict[str, tuple[str, Callable[[Topic], list[tuple[Any, ...]]]]] = {
    "keep first": (_rank("proc", 1), lambda topic: topic.first(1, _nothing, latest=False)),
    "keep last": (_rank("proc DESC", 1), lambda topic: topic.first(1, _nothing, latest=True)),
    "first three": (_rank("proc", 3), lambda topic: topic.first(3, _nothing, latest=False)),
    "last three": (_rank("proc DESC", 3), lambda topic: topic.first(3, _nothing, latest=True)),
    "event time, keep first": (_rank("ts", 1), lambda topic: topic.first(1, _time, latest=False)),
    "event time, keep last": (
        _rank("ts DESC", 1, source="views"), lambda topic: topic.first(1, _time_back, latest=True),
    ),
    "event time, two": (_rank("ts DESC", 2, source="views"), lambda topic: topic.first(2, _time_back, latest=False)),
    "a time behind": (
        _rank("ts, proc DESC", 2), lambda topic: topic.first(2, _time, latest=True),
    ),
}  # fmt: skip


def _views(name: str) -> Any:
    return WATERMARKED if name.startswith("event time, keep last") else {}


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize("name", CASES)
def test_equal_rows_keep_the_order_of_their_arrival(name: str, seed: int, tmp_path: Path) -> None:
    sql, model = CASES[name]
    topic = Topic(World(tmp_path / str(seed), random.Random(f"{name} {seed}")))
    query = plan_query(sql, more=_views(name))
    kept, once = Kept(topic.world, query, runner=_Several()), Kept(topic.world, query, "once", runner=_Several())
    for _ in range(4):
        topic.grow(topic.world.rng.randrange(1, 30))
        kept.advance()
        assert same_rows(kept.last_rows(), model(topic)), seed
    once.advance()
    assert same_rows(once.last_rows(), model(topic)), seed
    head = kept.store.head()
    assert head is not None
    compact(kept.store, applied_everywhere=head.batch)
    topic.grow(10)
    kept.advance()
    assert same_rows(kept.last_rows(), model(topic)), seed


def test_a_column_without_watermark_keeps_the_first_of_equal_rows(tmp_path: Path) -> None:
    """Only event time is deduplicated by the last row: elsewhere ROW_NUMBER counts equals as they came, as in Flink."""
    topic = Topic(World(tmp_path, random.Random(3)))
    kept = Kept(topic.world, plan_query(_rank("ts DESC", 1, source="views")))
    topic.grow(40)
    kept.advance()
    assert same_rows(kept.last_rows(), topic.first(1, _time_back, latest=False))


def test_limit_keeps_the_order_of_arrival(tmp_path: Path) -> None:
    topic = Topic(World(tmp_path, random.Random(4)))
    limited = plan_query("SELECT page, secs, ts FROM views ORDER BY ts LIMIT 5", key=())
    kept = Kept(topic.world, limited, runner=_Several())
    for _ in range(3):
        topic.grow(9)
        kept.advance()
        found = []
        for key in sorted({_time(item) for batch in topic.batches for item in batch}):
            for batch in topic.batches:
                found += _merged([item for item in batch if _time(item) == key], forward=True)
        assert same_rows(kept.result(), [(item["page"], item["secs"], item["ts"]) for item in found[:5]])


@pytest.mark.parametrize("seed", seeds(4))
def test_every_over_of_a_select_list_knows_the_order_of_arrival(seed: int, tmp_path: Path) -> None:
    """Results of an OVER change with rows that come late, and the rows themselves are only added."""
    by = "OVER (PARTITION BY uid ORDER BY ts"
    sql = (
        f"SELECT uid, page, secs, COUNT(*) {by}) AS n, LAG(page) {by}) AS l, COUNT(secs) {by} ROWS BETWEEN 2 PRECEDING"
        " AND CURRENT ROW) AS c, FIRST_VALUE(secs) OVER (PARTITION BY uid ORDER BY proc DESC ROWS BETWEEN 1 PRECEDING"
        f" AND CURRENT ROW) AS f, LEAD(page) {by}) AS r FROM {VIEWS} v"
    )
    topic = Topic(World(tmp_path / str(seed), random.Random(seed)))
    kept = Kept(topic.world, plan_query(sql), runner=_Several())
    once = Kept(topic.world, plan_query(sql), "once", runner=_Several())
    wanted: list[tuple[Any, ...]] = []
    for _ in range(3):
        topic.grow(topic.world.rng.randrange(1, 25))
        kept.advance()
        wanted = []
        for uid in topic.uids():
            rows_of, back = topic.of(uid, _time, latest=False), topic.of(uid, _nothing, latest=True)
            pages = [None, *(item["page"] for item in rows_of), None]
            for at, item in enumerate(rows_of):
                recent = [one["secs"] for one in rows_of[max(0, at - 2) : at + 1]]
                place = next(place for place, one in enumerate(back) if one is item)
                later = [one["secs"] for one in back[max(0, place - 1) : place + 1] if one["secs"] is not None]
                wanted.append(
                    (
                        uid,
                        item["page"],
                        item["secs"],
                        sum(_time(one) <= _time(item) for one in rows_of),
                        pages[at],
                        sum(secs is not None for secs in recent),
                        later[0] if later else None,
                        pages[at + 2],
                    )
                )
        assert same_rows(kept.result(), wanted)
    once.advance()
    assert same_rows(once.result(), wanted)


def test_explain_shows_where_arrival_decides() -> None:
    lines = [line.strip() for line in explain_plan(plan_query(_rank("ts, proc DESC", 2)).plan)]
    assert any(re.fullmatch(r"first 2 of each uid\w* by ts\w*, arrival DESC", line) for line in lines), lines
    assert not any("_p0_" in line for line in lines)
    changing = explain_plan(plan_query("SELECT oid, amount FROM orders ORDER BY amount LIMIT 2").plan)
    assert not any("arrival" in line for line in changing)


def test_batches_that_die_and_are_repeated_give_the_same(tmp_path: Path) -> None:
    topic = Topic(World(tmp_path, random.Random(8)))
    kept = Kept(topic.world, plan_query(_rank("proc DESC", 2)))
    for turn in range(4):
        topic.grow(15)
        kept.runner = DyingRunner(turn % 2)
        with pytest.raises(KilledError):
            kept.advance()
        kept.runner = LocalRunner()
        kept.advance()
        assert same_rows(kept.last_rows(), topic.first(2, _nothing, latest=True))


def test_a_rebuild_gives_what_was_there(tmp_path: Path) -> None:
    topic = Topic(World(tmp_path, random.Random(6)))
    kept = Kept(topic.world, plan_query(_rank("proc DESC", 2)))
    for _ in range(3):
        topic.grow(12)
        kept.advance()
    rebuild(
        QueryStore(kept.store.uri, kept.query, any_plan=True), {"views": topic.world.stores["views"]},
        runner=LocalRunner(), run="test",
    )  # fmt: skip
    assert same_rows(kept.last_rows(), topic.first(2, _nothing, latest=True))
    topic.grow(12)
    kept.advance()
    assert same_rows(kept.last_rows(), topic.first(2, _nothing, latest=True))


@pytest.mark.parametrize("seed", seeds(4))
def test_first_and_last_values_are_those_of_the_records_of_all_partitions(seed: int, tmp_path: Path) -> None:
    """No task that reads a part of the records decides between partitions."""
    sql = "SELECT uid, FIRST_VALUE(page) AS f, LAST_VALUE(page) AS l FROM views WHERE page IS NOT NULL GROUP BY uid"
    topic = Topic(World(tmp_path / str(seed), random.Random(seed)))
    kept = Kept(topic.world, plan_query(sql), runner=_Several())
    for _ in range(3):
        topic.grow(40)
        kept.advance()
        written = replace(topic, batches=[[row for row in batch if row["page"]] for batch in topic.batches])
        ends = (written.first(1, _nothing, latest=latest) for latest in (False, True))
        first, last = ({uid: page for uid, page, _, _ in found} for found in ends)
        assert {uid: (one, other) for uid, one, other in kept.result()} == {u: (first[u], last[u]) for u in first}


@pytest.mark.parametrize("seed", seeds(4))
def test_the_last_upsert_is_that_of_all_partitions(seed: int, tmp_path: Path) -> None:
    world = World(tmp_path / str(seed), rng := random.Random(seed))
    kept = Kept(world, plan_query("SELECT id, age FROM users WHERE age >= 0"), runner=_Several())
    counted = Kept(world, plan_query("SELECT age, COUNT(*) AS n FROM users GROUP BY age"), "n", runner=_Several())
    held: dict[int, int] = {}
    ends = [0, 0, 0]
    for _ in range(3):
        batch = []
        for _ in range(40):
            partition, key = rng.randrange(3), rng.randrange(6)
            system = {
                rows.KIND: rows.KIND_UPDATE_AFTER, rows.TOPIC: "users", rows.PARTITION: partition, rows.ROW: 0,
                rows.OFFSET: ends[partition], rows.TIMESTAMP: START + timedelta(seconds=rng.randrange(8)),
            }  # fmt: skip
            ends[partition] += 1
            batch.append({**random_row("users", rng), "id": key, "age": rng.randrange(90), **system})
        shuffled = list(batch)
        rng.shuffle(shuffled)
        world.write("users", shuffled)
        for key in {item["id"] for item in batch}:
            last = {item[rows.PARTITION]: item for item in batch if item["id"] == key}
            held[key] = max(last.values(), key=lambda item: (item[rows.TIMESTAMP], item[rows.PARTITION]))["age"]
        for query in (kept, counted):
            query.advance()
        assert dict(kept.last_rows()) == held
        assert dict(counted.result()) == Counter(held.values())
