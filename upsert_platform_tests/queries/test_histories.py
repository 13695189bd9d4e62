"""Random histories: after every batch a kept query equals what DuckDB computes over its inputs' snapshots in one go."""

from __future__ import annotations

import random
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from upsert_platform.queries import store
from upsert_platform_tests.queries.statements import STATEMENTS
from upsert_platform_tests.queries.world import Kept, World, plan_query, same_rows


@pytest.fixture(autouse=True)
def _few_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small histories fill few buckets; each costs a little."""
    monkeypatch.setattr(store, "BUCKETS", 2)


@pytest.mark.parametrize("name", STATEMENTS)
def test_result_equals_recomputation_after_every_batch(name: str, tmp_path: Path) -> None:
    sql = STATEMENTS[name]
    for seed in range(2):
        world = World(tmp_path / str(seed), random.Random(f"{name} {seed}"))
        kept = Kept(world, plan_query(sql))
        for _ in range(4):
            for table in kept.query.tables:
                if world.rng.random() < 0.8:
                    world.change(table, world.rng.randrange(0, 25))
            kept.advance()
            assert same_rows(kept.result(), world.judge(sql))


@pytest.mark.parametrize("name", STATEMENTS)
def test_all_batches_at_once_give_what_one_at_a_time_gives(name: str, tmp_path: Path) -> None:
    sql = STATEMENTS[name]
    world = World(tmp_path, random.Random(f"{name} at once"))
    query = plan_query(sql)
    often, once = Kept(world, query, "often"), Kept(world, query, "once")
    for _ in range(4):
        for table in query.tables:
            world.change(table, 12)
        often.advance()
    once.advance()
    assert same_rows(often.result(), once.result())
    assert same_rows(once.result(), world.judge(sql))


def test_sums_of_doubles_do_not_drift(tmp_path: Path) -> None:
    """Exactly rounded, whatever was added and taken back before."""
    world = World(tmp_path, random.Random(5))
    kept = Kept(world, plan_query("SELECT region, SUM(score) AS s, AVG(score) AS a FROM users GROUP BY region"))
    for _ in range(12):
        world.change("users", 15)
        kept.advance()
        expected = {}
        for row in world.rows["users"]:
            expected.setdefault(row["region"], []).append(row["score"])
        exact = {}
        for region, scores in expected.items():
            values = [Fraction(item) for item in scores if item is not None]
            total = sum(values, Fraction(0))
            exact[region] = (float(total), float(total / len(values))) if values else (None, None)
        assert {region: (total, mean) for region, total, mean in kept.result()} == exact


def test_averages_are_those_of_flink(tmp_path: Path) -> None:
    """Of whole numbers towards zero, of decimals with six digits or more."""
    world = World(tmp_path, random.Random(6))
    kept = Kept(world, plan_query("SELECT region, AVG(age) AS a, AVG(spent) AS d FROM users GROUP BY region"))
    for _ in range(6):
        world.change("users", 15)
        kept.advance()
        for region, age, spent in kept.result():
            rows = [row for row in world.rows["users"] if row["region"] == region]
            ages = [row["age"] for row in rows if row["age"] is not None]
            money = [row["spent"] for row in rows if row["spent"] is not None]
            assert age == (int(sum(ages) / len(ages)) if ages else None)
            mean = (sum(money) / len(money)).quantize(Decimal("0.000001"), ROUND_HALF_UP) if money else None
            assert spent == mean
