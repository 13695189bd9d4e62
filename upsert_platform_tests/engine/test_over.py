"""OVER: DuckDB computes it over what the topics hold; processing time is judged by a list in the order of offsets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from upsert_platform.engine import engine, reading, state, tasks
from upsert_platform.engine.explain import explain_plan
from upsert_platform.engine.runners import LocalRunner
from upsert_platform.engine.upkeep import compact
from upsert_platform.sql.reader import Fault
from upsert_platform_tests.engine.test_faults import DyingRunner, KilledError
from upsert_platform_tests.engine.world import Kept, World, plan_query, same_rows

BACK = "BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
OF = "PARTITION BY uid ORDER BY"
BY = f"{OF} ts NULLS FIRST, oid"
OVERS = {
    "rows": f"COUNT(amount) OVER ({BY} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS n, CAST(SUM(amount) OVER ({BY} ROWS"
    f" BETWEEN 2 PRECEDING AND CURRENT ROW) AS BIGINT) AS s, MIN(amount) OVER ({BY} ROWS BETWEEN 2 PRECEDING AND"
    f" CURRENT ROW) AS lo, MAX(kind) OVER ({BY} ROWS BETWEEN 4 PRECEDING AND CURRENT ROW) AS hi",
    "all rows before": f"COUNT(*) OVER ({BY} ROWS {BACK}) AS n, CAST(SUM(amount) OVER ({BY} ROWS {BACK}) AS BIGINT) AS"
    f" s, MAX(amount) OVER ({BY} ROWS {BACK}) AS hi",
    "equals too": f"COUNT(*) OVER ({OF} amount NULLS FIRST) AS n, CAST(SUM(oid) OVER ({OF} amount NULLS FIRST RANGE"
    f" {BACK}) AS BIGINT) AS s, MIN(kind) OVER ({OF} amount NULLS FIRST RANGE {BACK}) AS lo",
    "an interval": f"COUNT(*) OVER ({OF} ts NULLS FIRST RANGE BETWEEN INTERVAL '10' MINUTE PRECEDING AND CURRENT ROW)"
    f" AS n, MAX(amount) OVER ({OF} ts NULLS FIRST RANGE BETWEEN INTERVAL '10' MINUTE PRECEDING AND CURRENT ROW) AS hi,"
    f" CAST(SUM(oid) OVER ({OF} ts NULLS FIRST RANGE BETWEEN INTERVAL '10' MINUTE PRECEDING AND CURRENT ROW) AS BIGINT)"
    " AS s",
    "an interval, rows without a time last": f"COUNT(*) OVER ({OF} ts NULLS LAST RANGE BETWEEN INTERVAL '10' MINUTE"
    f" PRECEDING AND CURRENT ROW) AS n, MIN(amount) OVER ({OF} ts NULLS LAST RANGE BETWEEN INTERVAL '10' MINUTE"
    " PRECEDING AND CURRENT ROW) AS lo",
    "different values": f"COUNT(DISTINCT kind) OVER ({BY} ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS n, CAST(SUM("
    f"DISTINCT amount) OVER ({BY} ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS BIGINT) AS s, COUNT(DISTINCT amount)"
    f" OVER ({BY} ROWS {BACK}) AS m, MAX(DISTINCT amount) OVER ({BY} ROWS {BACK}) AS hi",
    "different values of an interval": f"COUNT(DISTINCT kind) OVER ({OF} ts NULLS FIRST RANGE BETWEEN INTERVAL '10'"
    f" MINUTE PRECEDING AND CURRENT ROW) AS n, CAST(SUM(DISTINCT amount) OVER ({OF} ts NULLS LAST RANGE BETWEEN"
    " INTERVAL '10' MINUTE PRECEDING AND CURRENT ROW) AS BIGINT) AS s",
    "neighbours": f"LAG(amount) OVER ({BY}) AS a, LAG(kind, 2) OVER ({BY}) AS b, LEAD(amount, 1, 7) OVER ({BY}) AS c",
    "ranks": "RANK() OVER (PARTITION BY kind ORDER BY amount DESC NULLS LAST) AS r, DENSE_RANK() OVER (PARTITION BY"
    " kind ORDER BY amount DESC NULLS LAST) AS d",
    "of all rows": "COUNT(*) OVER (ORDER BY oid ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS n",
    "two windows": f"COUNT(*) OVER ({BY}) AS n, LAG(oid) OVER (ORDER BY oid DESC) AS l",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MOST_FILES", 3)
    monkeypatch.setattr(reading, "_CHUNK", 4)
    monkeypatch.setattr(tasks, "_WAITING", 7)
    monkeypatch.setattr(engine, "_FEW_ROWS", 1)


@pytest.mark.parametrize("name", OVERS)
def test_every_row_has_the_values_of_its_frame(name: str, tmp_path: Path) -> None:
    """After every batch, killed or not, of rows that are added, updated and deleted."""
    judged = f"SELECT oid, {OVERS[name]} FROM orders"
    sql = judged
    while "CAST(SUM" in sql:  # DuckDB adds in a wider type
        at = sql.index("CAST(SUM")
        end = sql.index(" AS BIGINT)", at)
        sql = f"{sql[:at]}{sql[at + 5 : end]}{sql[end + len(' AS BIGINT)') :]}"
    for seed in range(2):
        world = World(tmp_path / str(seed), random.Random(f"{name} {seed}"))
        kept = Kept(world, plan_query(sql))
        for turn in range(4):
            world.change("orders", world.rng.randrange(0, 25))
            if turn % 2:
                kept.runner = DyingRunner(turn)
                with suppress(KilledError):
                    kept.advance()
            kept.runner = LocalRunner()
            kept.advance()
            assert same_rows(kept.result() if turn < 3 else kept.last_rows(), world.judge(judged)), seed
            if turn == 2:
                head = kept.store.head()
                assert head is not None
                compact(kept.store, applied_everywhere=head.batch)


def test_ranks_are_limited_by_a_condition_and_grouped(tmp_path: Path) -> None:
    inner = "SELECT oid, kind, RANK() OVER (PARTITION BY kind ORDER BY amount DESC NULLS LAST) AS r FROM orders"
    sql = f"SELECT kind, r, COUNT(*) AS n FROM ({inner}) t WHERE r <= 2 GROUP BY kind, r"
    world = World(tmp_path, random.Random(2))
    kept = Kept(world, plan_query(sql))
    for _ in range(3):
        world.change("orders", 20)
        kept.advance()
        assert same_rows(kept.result(), world.judge(sql))


def test_averages_and_sums_of_doubles_and_decimals_are_exact(tmp_path: Path) -> None:
    frame = "OVER (PARTITION BY region ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
    sql = f"SELECT id, SUM(score) {frame} AS s, AVG(age) {frame} AS a, SUM(spent) {frame} AS d FROM users"
    world = World(tmp_path, random.Random(3))
    kept = Kept(world, plan_query(sql))
    for _ in range(3):
        world.change("users", 25)
        kept.advance()
        expected = []
        for row in world.rows["users"]:
            before = [
                item for item in world.rows["users"] if item["region"] == row["region"] and item["id"] <= row["id"]
            ]
            framed = sorted(before, key=lambda item: item["id"])[-3:]
            scores, ages, money = (
                [item[name] for item in framed if item[name] is not None] for name in ("score", "age", "spent")
            )
            total = sum((Fraction(item) for item in scores), Fraction(0))
            expected.append(
                (row["id"], float(total) if scores else None, sum(ages) // len(ages) if ages else None,
                 sum(money) if money else None)
            )  # fmt: skip
        assert kept.result() and sorted(kept.result()) == sorted(expected)


def test_processing_time_is_the_order_of_arrival(tmp_path: Path) -> None:
    """Of rows that are only added; what was written does not change, so a table without a key takes it."""
    over = "OVER (PARTITION BY uid ORDER BY p ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
    sql = (
        f"SELECT uid, secs, COUNT(*) {over} AS n, LAG(secs) OVER (PARTITION BY uid ORDER BY p) AS l FROM (SELECT *,"
        " PROCTIME() AS p FROM views) v"
    )
    world = World(tmp_path, random.Random(4))
    query = plan_query(sql)
    assert query.plan.appends
    kept = Kept(world, query)
    for _ in range(4):
        world.change("views", 12)
        kept.advance()
        assert not any(change["_kind"] == "-U" for change in kept.changes())
        assert same_rows(kept.result(), _by_arrival(world.rows["views"]))


def _by_arrival(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found, seen = [], {}
    for row in rows:
        before = seen.setdefault(row["uid"], [])
        found.append((row["uid"], row["secs"], min(2, len(before) + 1), before[-1] if before else None))
        before.append(row["secs"])
    return found


def test_first_and_last_values_leave_nulls_out(tmp_path: Path) -> None:
    calls = "FIRST_VALUE(amount) OVER w AS f, LAST_VALUE(amount) OVER w AS l"
    sql = f"SELECT oid, {calls} FROM orders WINDOW w AS (ORDER BY oid)"
    world = World(tmp_path, random.Random(5))
    kept = Kept(world, plan_query(sql))
    for _ in range(3):
        world.change("orders", 20)
        kept.advance()
        expected = []
        for row in world.rows["orders"]:
            before = [item for item in world.rows["orders"] if item["oid"] <= row["oid"] and item["amount"] is not None]
            values = [item["amount"] for item in sorted(before, key=lambda item: item["oid"])]
            expected.append((row["oid"], values[0] if values else None, values[-1] if values else None))
        assert same_rows(kept.result(), expected)


def test_calls_of_one_window_share_one_state() -> None:
    frame = "OVER (PARTITION BY uid ORDER BY ts)"
    plan = plan_query(f"SELECT oid, COUNT(*) {frame} AS n, SUM(amount) {frame} AS s FROM orders").plan
    assert sum(line.strip().startswith("over the rows") for line in explain_plan(plan)) == 1


@pytest.mark.parametrize(
    ("over", "reason"),
    [
        ("SUM(amount) OVER (PARTITION BY uid)", "needs an ORDER BY"),
        (
            "SUM(amount) OVER (ORDER BY ts ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
            "PRECEDING AND CURRENT ROW",
        ),
        ("SUM(amount) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)", "rows that follow"),
        (
            "SUM(amount) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '1' MONTH PRECEDING AND CURRENT ROW)",
            "seconds to weeks",
        ),
        ("SUM(amount) OVER (ORDER BY oid RANGE BETWEEN INTERVAL '1' DAY PRECEDING AND CURRENT ROW)", "column of time"),
        ("FIRST_VALUE(DISTINCT kind) OVER (ORDER BY ts)", "FIRST_VALUE OVER takes no DISTINCT"),
        ("COUNT(DISTINCT kind, uid) OVER (ORDER BY ts)", "COUNT takes one argument, not 2"),
        ("NTILE(4) OVER (ORDER BY ts)", "NTILE OVER is not supported"),
        ("LAG(kind, 1, 7) OVER (ORDER BY ts)", "the default of LAG is INT"),
        ("LAG(kind, amount) OVER (ORDER BY ts)", "is a number of rows"),
        ("SUM(kind) OVER (ORDER BY ts)", "SUM does not take a value of type STRING"),
        ("COUNT(*) OVER (ORDER BY p)", "rows that change have no order of processing time"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(over: str, reason: str) -> None:
    with pytest.raises(Fault, match=reason):
        plan_query(f"SELECT oid, {over} AS x FROM (SELECT *, PROCTIME() AS p FROM orders) o")
