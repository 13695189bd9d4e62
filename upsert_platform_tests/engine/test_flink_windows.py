"""Windows of event time to the millisecond: which rows are late and what is given, as Flink's own runs have it.

`flink_windows.json` holds what Flink 2.2.1 gave, by `flink_windows.py`: there the watermark follows every record, as
the event time here moves with a batch of one record.
"""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from upsert_platform.changelog import rows
from upsert_platform_tests.engine.flink_windows import FAR, KINDS
from upsert_platform_tests.engine.world import DDL, START, Kept, World
from upsert_platform_tests.sql.reading import errors, read

NOON = datetime(2024, 5, 1, 12)  # noqa: DTZ001 - TIMESTAMP has no zone
MILLISECOND = timedelta(milliseconds=1)
RUNS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("flink_windows.json").read_text(encoding="utf-8"))


def _kept(world: World, kind: str) -> Kept:
    tables = DDL.replace("ts TIMESTAMP(3)", "ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND")
    scripts, problems = read(
        f"{tables} CREATE TABLE log (s TIMESTAMP(3), e TIMESTAMP(3), n BIGINT) WITH ('connector' = 'kafka', 'topic' ="
        " 'log', 'format' = 'json'); INSERT INTO log SELECT window_start, window_end, COUNT(*) FROM"
        f" TABLE({KINDS[kind].format('views')}) GROUP BY window_start, window_end;"
    )
    assert errors(problems) == []
    (insert,) = scripts.inserts
    assert insert.query is not None
    return Kept(world, insert.query)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run['kind']}: {run['case']}")
def test_windows_hold_what_those_of_flink_hold(run: dict[str, Any], tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(1))
    kept = _kept(world, run["kind"])
    for offset, moment in enumerate(run["records"]):
        row = {"uid": 1, "page": "p", "secs": 1, "ts": NOON + moment * MILLISECOND, rows.KIND: rows.KIND_INSERT}
        place = {rows.TOPIC: "views", rows.PARTITION: 0, rows.OFFSET: offset, rows.ROW: 0, rows.TIMESTAMP: START}
        world.write("views", [row | place])
        kept.advance()
    # At the end of its input Flink closes every window; here those stay open that hold the last record.
    last = str(NOON + FAR * MILLISECOND)
    expected = [tuple(window) for window in run["windows"] if window[1] <= last]
    given = [(*(moment.isoformat(" ", "milliseconds") for moment in row[:2]), row[2]) for row in kept.result()]
    assert sorted(given) == expected


def test_some_rows_were_late_in_flink() -> None:
    """Otherwise the runs would tell nothing of when windows close."""
    tumbling = [run for run in RUNS if run["kind"] == "tumble"]
    late = {run["case"]: len(run["records"]) - sum(count for *_, count in run["windows"]) for run in tumbling}
    assert [late[f"the record of {after:+} ms"] for after in (-1, 0, 1, 2)] == [0, 1, 1, 1]
    assert all(late[f"random {seed}"] > 0 for seed in range(4))
