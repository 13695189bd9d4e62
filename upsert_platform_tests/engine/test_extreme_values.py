"""Sums that no DECIMAL holds, and NaN among doubles: results that are right, or none."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.plan import Aggregate, Call, Field, Scan
from upsert_platform.core.types import arrow_type, parse_type
from upsert_platform.engine.accumulators import Accumulators, add_rows, merge_groups, plan_accumulators, results_of
from upsert_platform.engine.steps import WEIGHT
from upsert_platform_tests.engine import world as worlds
from upsert_platform_tests.engine.world import Kept, World, plan_query, same_rows

NAN = float("nan")


def grouped(kind: str, *functions: str) -> Accumulators:
    """Aggregates of `v` by `k`, of rows that are only added."""
    columns = (Field("k", parse_type("STRING")), Field("v", parse_type(kind)))
    result = "DECIMAL(38, 1)" if kind.startswith("DECIMAL") else kind
    calls = tuple(Call(name, name, parse_type(result), "v") for name in functions)
    return plan_accumulators(Aggregate(Scan("t", columns, (), appended=True), ("k",), calls))


def partial(plan: Accumulators, kind: str, values: list[Any]) -> pa.Table:
    count = len(values)
    rows = {"k": ["a"] * count, "v": pa.array(values, arrow_type(parse_type(kind))), WEIGHT: pa.array([1] * count)}
    return add_rows(pa.table(rows), plan)


def result(plan: Accumulators, kind: str, *batches: list[Any]) -> list[dict[str, Any]]:
    """What batch after batch is merged into."""
    merged = merge_groups(pa.concat_tables([partial(plan, kind, values) for values in batches]), plan)
    found: list[dict[str, Any]] = results_of(merged, plan).to_pylist()
    return found


LARGE = Decimal(9) * 10**35


def test_a_sum_of_more_digits_than_decimals_have_is_no_number_at_all() -> None:
    plan = grouped("DECIMAL(38, 1)", "sum")
    assert result(plan, "DECIMAL(38, 1)", [LARGE] * 5, [LARGE] * 6) == [{"k": "a", "sum": 11 * LARGE}]
    for batches in ([[LARGE] * 12], [[LARGE] * 25], [[LARGE] * 11, [LARGE]], [[-LARGE] * 6, [-LARGE] * 6]):
        with pytest.raises(ChangelogError, match="more than 38 digits"):
            result(plan, "DECIMAL(38, 1)", *batches)


def test_a_mean_that_its_type_does_not_hold_is_null() -> None:
    """As of DECIMAL(38, 2), whose AVG has six digits behind the point."""
    columns = (Field("k", parse_type("STRING")), Field("v", parse_type("DECIMAL(38, 2)")))
    call = Call("m", "avg", parse_type("DECIMAL(38, 6)"), "v")
    plan = plan_accumulators(Aggregate(Scan("t", columns, (), appended=True), ("k",), (call,)))
    held, beyond = Decimal(10**32 - 1), Decimal(10**32)
    for values, mean in (([held], held), ([beyond], None), ([-beyond], None), ([beyond, -beyond], Decimal(0))):
        assert result(plan, "DECIMAL(38, 2)", values) == [{"k": "a", "m": mean}]


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_nan_is_the_greatest_of_doubles_that_are_only_added(kind: str) -> None:
    plan = grouped(kind, "min", "max")
    found = result(plan, kind, [1.0, None], [NAN], [3.0])
    assert [(row["min"], str(row["max"])) for row in found] == [(1.0, "nan")]
    assert [str(row["min"]) for row in result(plan, kind, [NAN], [NAN, None])] == ["nan"]
    assert result(plan, kind, [None], [2.0, float("-inf")]) == [{"k": "a", "min": float("-inf"), "max": 2.0}]
    assert result(plan, kind, [None]) == [{"k": "a", "min": None, "max": None}]


def test_nan_is_the_greatest_of_doubles_that_are_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def row(name: str, rng: random.Random) -> dict[str, Any]:
        assert name == "users"
        return {"region": rng.choice(["eu", None]), "score": rng.choice([NAN, 1.5, -2.0, float("inf"), None])}

    monkeypatch.setattr(worlds, "random_row", row)
    sql = "SELECT region, MAX(score) AS most, MIN(score) AS least, COUNT(*) AS n FROM users GROUP BY region"
    world = World(tmp_path, random.Random(5))
    kept = Kept(world, plan_query(sql))
    for _ in range(12):
        world.change("users", 3)
        kept.advance()
        assert same_rows(kept.result(), world.judge(sql))
