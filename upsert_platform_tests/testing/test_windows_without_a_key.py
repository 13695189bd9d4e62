"""Windows into tables without a key, through a project: each row once, when the watermark has passed its window."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from upsert_platform import testing

BROKERS = "'properties.bootstrap.servers' = '${BROKERS}'"
SOURCE = f"""CREATE TABLE bids (k STRING, x BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
  WITH ('connector' = 'kafka', 'topic' = 'bids', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json', {BROKERS});
"""
COLUMNS = "window_start TIMESTAMP(3), window_end TIMESTAMP(3), k STRING, total BIGINT"
TARGET = f"""CREATE TABLE totals ({COLUMNS}) WITH ('connector' = 'maxcompute', 'sink.operation' = 'insert',
  'odps.end.point' = '${{ODPS}}', 'odps.project.name' = 'shop', 'table.name' = 'totals', 'odps.access.id' = '${{ID}}',
  'odps.access.key' = '${{SECRET}}');
"""
STATEMENT = """INSERT INTO totals SELECT window_start, window_end, k, SUM(x)
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, k;
"""
NOON = dt.datetime(2024, 5, 1, 12)  # noqa: DTZ001 - TIMESTAMP has no zone


def bid(second: int, k: str, x: int) -> dict[str, Any]:
    return {"k": k, "x": x, "ts": NOON + dt.timedelta(seconds=second)}


def total(second: int, k: str, total: int) -> tuple[Any, ...]:
    return NOON + dt.timedelta(seconds=second), NOON + dt.timedelta(seconds=second + 10), k, total


def test_each_group_is_written_once(tmp_path: Path) -> None:
    (tmp_path / "tables.sql").write_text(SOURCE + TARGET + STATEMENT, "utf-8")
    with testing.project(tmp_path) as shop:

        def synced(*rows: dict[str, Any]) -> list[tuple[Any, ...]]:
            shop.send("bids", rows)
            outcome = shop.sync()
            assert outcome.success
            assert all(outcome.checks.values())
            return sorted(tuple(row.values()) for row in shop.rows("totals"))

        assert synced(bid(1, "a", 1), bid(9, "a", 2), bid(12, "b", 5)) == []
        assert synced(bid(14, "a", 1), bid(3, "b", 7)) == [], "the watermark is a second short of the window's end"
        first = [total(0, "a", 3), total(0, "b", 7)]
        assert synced(bid(15, "c", 1)) == first, "in the run that read the row which closes the window"
        assert synced(bid(2, "a", 100), bid(19, "b", 1)) == first, "late for its window, which was written"
        assert synced(bid(60, "z", 1)) == [*first, total(10, "a", 1), total(10, "b", 6), total(10, "c", 1)]
        assert not shop.sync().materialized, "nothing is new"
