"""Keys that do not tell rows apart: of each key the row that arrived last is shown, and then the one before it.

The model is a list of rows per key, as Flink's own: what is added goes to its end, what is taken back leaves it. Rows
that one batch adds have no order; the model takes the greatest, nulls first.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from upsert_platform.engine import engine, reading, state, tasks
from upsert_platform.engine.explain import explain_plan
from upsert_platform.engine.runners import LocalRunner
from upsert_platform.engine.upkeep import compact
from upsert_platform.sql.variables import Variables
from upsert_platform_tests.engine.test_faults import DyingRunner, KilledError
from upsert_platform_tests.engine.test_merge import query_of
from upsert_platform_tests.engine.world import DDL, Kept, World, same_rows
from upsert_platform_tests.sql.reading import read_scripts

Row = tuple[Any, ...]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MOST_FILES", 3)
    monkeypatch.setattr(reading, "_CHUNK", 4)
    monkeypatch.setattr(tasks, "_WAITING", 7)
    monkeypatch.setattr(engine, "_FEW_ROWS", 1)


def _amounts(world: World) -> Counter[Row]:
    return Counter((row["uid"], row["amount"], row["kind"]) for row in world.rows["orders"] if row["uid"] is not None)


def _joined(world: World) -> Counter[Row]:
    return Counter(
        (row["uid"], user["age"], row["kind"])
        for row in world.rows["orders"]
        for user in world.rows["users"]
        if row["uid"] == user["id"]
    )


def _grouped(world: World) -> Counter[Row]:
    groups = Counter((row["uid"], row["kind"]) for row in world.rows["orders"] if row["uid"] is not None)
    return Counter((uid, count, kind) for (uid, kind), count in groups.items())


def _united(world: World) -> Counter[Row]:
    users = Counter((row["id"], row["age"], row["region"]) for row in world.rows["users"])
    return users + _amounts(world)


def _whole(world: World) -> Counter[Row]:
    return Counter((7, row["amount"], row["kind"]) for row in world.rows["orders"])


CASES: dict[str, tuple[str, Callable[[World], Counter[Row]]]] = {
    "another column of one table": ("SELECT uid, amount, kind FROM orders WHERE uid IS NOT NULL", _amounts),
    "a join": ("SELECT o.uid, u.age, o.kind FROM orders o JOIN users u ON o.uid = u.id", _joined),
    "a part of a grouping": (
        "SELECT uid, COUNT(*), kind FROM orders WHERE uid IS NOT NULL GROUP BY uid, kind", _grouped,
    ),
    "a union": (
        "SELECT id, age, region FROM users UNION ALL SELECT uid, amount, kind FROM orders WHERE uid IS NOT NULL",
        _united,
    ),
    "a constant": ("SELECT 7, amount, kind FROM orders", _whole),
}  # fmt: skip


@dataclass
class Lists:
    """The rows of each key in the order in which they arrived."""

    there: Counter[Row] = field(default_factory=Counter)
    lists: dict[Any, list[Row]] = field(default_factory=dict)

    def follow(self, now: Counter[Row]) -> None:
        for row, count in (self.there - now).items():
            for _ in range(count):
                self.lists[row[0]].remove(row)
        for row, count in sorted((now - self.there).items(), key=lambda item: _sortable(item[0])):
            self.lists.setdefault(row[0], []).extend([row] * count)
        self.there = now

    @property
    def shown(self) -> list[Row]:
        return [rows[-1] for rows in self.lists.values() if rows]


def _sortable(row: Row) -> tuple[Any, ...]:
    return tuple((item is not None, item if item is not None else 0) for item in row)


@pytest.mark.parametrize("name", CASES)
def test_the_row_that_arrived_last_is_shown_and_then_the_one_before_it(name: str, tmp_path: Path) -> None:
    sql, rows = CASES[name]
    for seed in range(2):
        world, lists = World(tmp_path / str(seed), random.Random(f"{name} {seed}")), Lists()
        kept = Kept(world, query_of(f"INSERT INTO t {sql}"))
        for turn in range(5):
            for table in kept.query.tables:
                world.change(table, world.rng.randrange(0, 25))
            lists.follow(rows(world))
            if turn % 2:
                kept.runner = DyingRunner(turn // 2)
                with suppress(KilledError):  # a batch of few rows may end before
                    kept.advance()
            kept.runner = LocalRunner()
            kept.advance()
            assert same_rows(kept.last_rows(), lists.shown), (seed, turn)
            if turn == 3:
                head = kept.store.head()
                assert head is not None
                compact(kept.store, applied_everywhere=head.batch)


def test_validate_warns_with_the_reason_and_the_ways_out() -> None:
    target = "CREATE TABLE t (k INT, v BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'tablestore');"
    query = "INSERT INTO t SELECT uid, COUNT(*) FROM orders WHERE uid IS NOT NULL GROUP BY uid, kind;"
    scripts, problems = read_scripts({"test.sql": f"{DDL}{target}{query}"}, Variables({}, {}, {}))
    (warned,) = [item for item in problems if "upsert-materialize" in item.message]
    assert warned.severity == "warning"
    for part in ("rows that arrive in one batch have no order", "group by what fills it", "ROW_NUMBER() OVER"):
        assert part in warned.message
    (insert,) = scripts.inserts
    assert insert.query is not None
    lines = [line.strip() for line in explain_plan(insert.query.plan)]
    assert "upsert-materialize by k: the row that arrived last" in lines
    assert any(line.startswith("state: all rows of each key: grows with the rows") for line in lines)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, age, region FROM users WHERE id IN (SELECT uid FROM orders)",
        "SELECT x.id, y.age, y.region FROM users x LEFT JOIN users y ON x.age = y.id AND x.score > y.score",
        "SELECT y.id, x.age, x.region FROM users x RIGHT JOIN users y ON y.age = x.id AND x.score > y.score",
        "SELECT id, age, region FROM users u WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.amount > u.age)",
    ],
)
def test_a_key_that_follows_needs_none(sql: str) -> None:
    query = query_of(f"INSERT INTO t {sql}")
    plan = "\n".join(explain_plan(query.plan))
    assert "upsert-materialize" not in plan


def test_other_values_of_the_setting_are_refused() -> None:
    text = f"SET 'table.exec.sink.upsert-materialize' = 'SOMETIMES';{DDL}"
    _, problems = read_scripts({"test.sql": text}, Variables({}, {}, {}))
    assert "takes AUTO, FORCE, NONE, not 'SOMETIMES'" in problems[0].message
