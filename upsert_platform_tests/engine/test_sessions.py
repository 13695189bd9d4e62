"""SESSION windows, of both syntaxes: a loop over the rows of each key, in the order of their times, is the model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from upsert_platform.engine import engine, reading, state, store, tasks
from upsert_platform.engine.explain import explain_plan
from upsert_platform.engine.runners import LocalRunner
from upsert_platform.engine.upkeep import compact
from upsert_platform.sql.reader import Fault
from upsert_platform_tests.engine.test_faults import DyingRunner, KilledError
from upsert_platform_tests.engine.test_merge import query_of
from upsert_platform_tests.engine.world import START, Kept, World, plan_query, same_rows

GAP = timedelta(minutes=5)
OF_KIND = "SESSION(TABLE orders PARTITION BY kind, DESCRIPTOR(ts), INTERVAL '5' MINUTES)"
NAMED = "SESSION(DATA => TABLE orders PARTITION BY (kind), TIMECOL => DESCRIPTOR(ts), GAP => INTERVAL '5' MINUTES)"
OF_ALL = "SESSION(TABLE orders, DESCRIPTOR(ts), INTERVAL '5' MINUTES)"
OF_BOTH = "SESSION(TABLE orders PARTITION BY (kind, uid), DESCRIPTOR(ts), INTERVAL '5' MINUTES)"
CALLS = "COUNT(*) AS n, SUM(amount) AS s, MAX(oid) AS hi"
EDGES = "window_start, window_end"
OLDER = "(ts, INTERVAL '5' MINUTE)"
CASES = {
    "of a column": (f"SELECT kind, {EDGES}, {CALLS} FROM TABLE({OF_KIND}) GROUP BY kind, {EDGES}", ["kind"]),
    "with named arguments": (f"SELECT kind, {EDGES}, {CALLS} FROM TABLE({NAMED}) GROUP BY kind, {EDGES}", ["kind"]),
    "of all rows": (f"SELECT {EDGES}, {CALLS} FROM TABLE({OF_ALL}) GROUP BY {EDGES}", []),
    "of two columns": (
        f"SELECT kind, uid, {EDGES}, {CALLS} FROM TABLE({OF_BOTH}) GROUP BY kind, uid, {EDGES}", ["kind", "uid"],
    ),
    "older syntax": (
        f"SELECT kind, SESSION_START{OLDER}, SESSION_END{OLDER}, {CALLS} FROM orders GROUP BY SESSION{OLDER}, kind",
        ["kind"],
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BUCKETS", 2)
    monkeypatch.setattr(state, "MOST_FILES", 3)
    monkeypatch.setattr(reading, "_CHUNK", 4)
    monkeypatch.setattr(tasks, "_WAITING", 7)
    monkeypatch.setattr(engine, "_FEW_ROWS", 1)


def sessions(rows: Sequence[dict[str, Any]], by: Sequence[str]) -> list[tuple[Any, ...]]:
    """Per key and session: its edges, how many rows, the sum of amounts and the greatest number."""
    found: list[list[dict[str, Any]]] = []
    for key in {tuple(row[name] for name in by) for row in rows}:
        mine = [row for row in rows if tuple(row[name] for name in by) == key and row["ts"] is not None]
        for row in sorted(mine, key=lambda item: item["ts"]):
            if found and found[-1][0].get("key") == key and row["ts"] - found[-1][-1]["ts"] <= GAP:
                found[-1].append(row)
            else:
                found.append([{**row, "key": key}])
    results = []
    for session in found:
        amounts = [row["amount"] for row in session if row["amount"] is not None]
        results.append(
            (*session[0]["key"], session[0]["ts"], session[-1]["ts"] + GAP, len(session),
             sum(amounts) if amounts else None, max(row["oid"] for row in session))
        )  # fmt: skip
    return results


@pytest.mark.parametrize("name", CASES)
def test_rows_within_the_gap_are_one_session(name: str, tmp_path: Path) -> None:
    """Late rows join sessions, deletes divide them; kills and compaction change nothing."""
    sql, by = CASES[name]
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
            assert same_rows(kept.result() if turn < 3 else kept.last_rows(), sessions(world.rows["orders"], by))
            if turn == 2:
                head = kept.store.head()
                assert head is not None
                compact(kept.store, applied_everywhere=head.batch)


def test_rows_that_are_the_gap_apart_belong_together(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(1))
    noon = START.replace(tzinfo=None)
    for at, moment in enumerate((noon, noon + GAP, noon + 2 * GAP + timedelta(milliseconds=1))):
        _append(world, at, moment)
    kept = Kept(world, plan_query(CASES["of a column"][0]))
    kept.advance()
    assert sorted(row[3] for row in kept.result()) == [1, 2]


def _append(world: World, at: int, moment: Any) -> None:
    from upsert_platform.changelog import rows

    row = {"oid": at, "uid": 1, "amount": 1, "kind": "a", "ts": moment}
    system = {rows.KIND: rows.KIND_UPDATE_AFTER, rows.TOPIC: "orders", rows.PARTITION: 0, rows.OFFSET: at, rows.ROW: 0}
    world.write("orders", [{**row, **system, rows.TIMESTAMP: START}])


def test_a_key_of_a_column_and_the_start_tells_sessions_apart() -> None:
    target = (
        "CREATE TABLE t (k STRING, s TIMESTAMP(3), n BIGINT, PRIMARY KEY (k, s) NOT ENFORCED) WITH ('connector' ="
        " 'tablestore', 'table.name' = 't');"
    )
    query = query_of(
        f"INSERT INTO t SELECT kind, window_start, COUNT(*) FROM TABLE({OF_KIND}) GROUP BY kind, {EDGES}", target=target
    )
    lines = [line.strip() for line in explain_plan(query.plan)]
    assert any(line.startswith("sessions of ts of each kind: gap 300 s") for line in lines)
    assert not any("upsert-materialize" in line for line in lines)


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        ("SESSION(TABLE orders PARTITION BY nothing, DESCRIPTOR(ts), INTERVAL '5' MINUTES)", "PARTITION BY names"),
        ("SESSION(TABLE orders, DESCRIPTOR(ts), INTERVAL '5' MONTH)", "in seconds to weeks"),
        ("SESSION(TABLE orders, DESCRIPTOR(amount), INTERVAL '5' MINUTES)", "not a TIMESTAMP"),
        ("SESSION(TABLE orders, DESCRIPTOR(ts))", "takes a table, DESCRIPTOR"),
    ],
)
def test_faults_name_what_is_wrong(window: str, reason: str) -> None:
    with pytest.raises(Fault, match=reason):
        plan_query(f"SELECT {EDGES}, COUNT(*) AS n FROM TABLE({window}) GROUP BY {EDGES}")


def test_sessions_do_not_close() -> None:
    with pytest.raises(Fault, match="SESSION windows do not close"):
        plan_query(CASES["of a column"][0], lateness=0)
