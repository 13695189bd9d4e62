"""GROUP BY TUMBLE(...) and HOP(...): windows of the older syntax, judged by lists of the rows in each window."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from upsert_platform.engine import store
from upsert_platform.sql.reader import Fault
from upsert_platform.sql.variables import Variables
from upsert_platform_tests.engine.test_merge import query_of
from upsert_platform_tests.engine.world import DDL, Kept, World, plan_query, same_rows
from upsert_platform_tests.sql.reading import read_scripts

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
TUMBLE, HOP = "(ts, INTERVAL '10' MINUTE)", "(o.ts, INTERVAL '5' MINUTE, INTERVAL '15' MINUTE)"


@pytest.fixture(autouse=True)
def _few_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BUCKETS", 2)


def _windows(row: dict[str, Any], step: int, size: int) -> Iterator[tuple[datetime, datetime]]:
    if row["ts"] is None:
        return
    second = int((row["ts"] - EPOCH).total_seconds())
    for start in range(second // step * step, second - size, -step):
        yield EPOCH + timedelta(seconds=start), EPOCH + timedelta(seconds=start + size)


def _counted(rows: list[dict[str, Any]], step: int, size: int, least: int) -> list[tuple[Any, ...]]:
    """Per kind and window: how many rows, and the sum of their amounts."""
    found: dict[Any, list[Any]] = {}
    for row in rows:
        for start, end in _windows(row, step, size):
            found.setdefault((row["kind"], start, end), []).append(row["amount"])
    return [
        (*key, len(amounts), sum(known) if (known := [item for item in amounts if item is not None]) else None)
        for key, amounts in found.items()
        if len(amounts) >= least
    ]


@pytest.mark.parametrize(("kind", "arguments", "step", "size"), [("TUMBLE", TUMBLE, 600, 600), ("HOP", HOP, 300, 900)])
def test_rows_are_grouped_by_their_windows(kind: str, arguments: str, step: int, size: int, tmp_path: Path) -> None:
    """Updates, deletes, nulls and late rows; the key of the target follows from the edges."""
    start, end = f"{kind}_START{arguments}", f"{kind}_END{arguments}"
    sql = (
        f"SELECT kind, {start} AS s, {end}, COUNT(*) AS n, SUM(amount) AS a FROM orders AS o GROUP BY kind,"
        f" {kind}{arguments} HAVING COUNT(*) > 1 AND {start} < {end}"
    )
    world = World(tmp_path, random.Random(kind))
    kept = Kept(world, plan_query(sql))
    columns = "w STRING, s TIMESTAMP(3), e TIMESTAMP(3), n BIGINT, a BIGINT, PRIMARY KEY (w, s) NOT ENFORCED"
    target = f"CREATE TABLE t ({columns}) WITH ('connector' = 'tablestore', 'table.name' = 't');"
    keyed = Kept(world, query_of(f"INSERT INTO t {sql}", target=target), "keyed")
    for _ in range(4):
        world.change("orders", 20)
        for query in (kept, keyed):
            query.advance()
            assert same_rows(query.result(), _counted(world.rows["orders"], step, size, 2))


def test_the_time_of_a_window_is_its_last_millisecond(tmp_path: Path) -> None:
    sql = f"SELECT TUMBLE_ROWTIME{TUMBLE} AS t, COUNT(*) AS n FROM orders GROUP BY TUMBLE{TUMBLE}"
    world = World(tmp_path, random.Random(3))
    kept = Kept(world, plan_query(sql))
    world.change("orders", 20)
    kept.advance()
    assert all(time.microsecond == 999_000 and time.second == 59 for time, _ in kept.result())


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT SESSION_START(ts, INTERVAL '1' DAY) FROM orders GROUP BY kind", "belongs to a query with GROUP BY"),
        ("SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE), COUNT(*) FROM orders GROUP BY kind", "belongs to a query with"),
        (f"SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE), COUNT(*) FROM orders GROUP BY TUMBLE{TUMBLE}",
         "is of another window"),
        ("SELECT COUNT(*) FROM orders GROUP BY TUMBLE(amount, INTERVAL '1' MINUTE)", "not a TIMESTAMP"),
        ("SELECT COUNT(*) FROM orders GROUP BY TUMBLE(ts, INTERVAL '1' MONTH)", "in seconds to weeks"),
        ("SELECT COUNT(*) FROM orders GROUP BY HOP(ts, INTERVAL '10' MINUTE, INTERVAL '15' MINUTE)", "whole multiple"),
        ("SELECT COUNT(*) FROM orders GROUP BY TUMBLE(kind)", "not a TIMESTAMP"),
    ],
)  # fmt: skip
def test_other_windows_are_refused_by_name(query: str, reason: str) -> None:
    with pytest.raises(Fault, match=reason):
        plan_query(query)


def test_a_statement_is_refused_once(tmp_path: Path) -> None:
    target = "CREATE TABLE t (n BIGINT, PRIMARY KEY (n) NOT ENFORCED) WITH ('connector' = 'tablestore');"
    text = f"{DDL}{target}INSERT INTO t SELECT COUNT(*) FROM orders GROUP BY SESSION(ts, INTERVAL '10' MONTH);"
    _, problems = read_scripts({"test.sql": text}, Variables({}, {}, {}))
    (found,) = [item.message for item in problems]
    assert "in seconds to weeks" in found
