"""Compaction after enough commits, and the guard against commits that follow too fast (sections 1.4, 2.5, 2.6)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from upsert_platform.core.errors import DestinationError, LeaseHeldError
from upsert_platform.maxcompute import options
from upsert_platform.maxcompute.compaction import compact_statement, count_commits
from upsert_platform.maxcompute.control import ControlRecord
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.frames import stored, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

Opened = Callable[..., MaxComputeDestination]
COMPACT = {"upsert_major-compact_enable": "true", "upsert_major-compact_min-commits": "2"}


def test_commits_are_counted_per_partition() -> None:
    counts = count_commits("", ["ds=1", "ds=2"])
    assert count_commits(counts, ["ds=1"]) == '{"ds=1":2,"ds=2":1}'
    assert count_commits(counts, []) == counts


def test_very_many_partitions_keep_the_busiest() -> None:
    counts = count_commits("", [f"ds={number}" for number in range(1500)])
    counts = count_commits(counts, ["ds=3"])
    assert counts.count(":") == 1000
    assert '"ds=3":2' in counts


def test_the_statement_names_table_or_partition(make_table: Callable[..., MaxComputeTable]) -> None:
    table = make_table(table_name="t")
    assert compact_statement(table, "") == "ALTER TABLE `t` compact major"
    assert compact_statement(table, "a=1,b=x") == "ALTER TABLE `t` PARTITION (`a`='1', `b`='x') compact major"


@pytest.mark.soak
def test_a_table_is_compacted_after_enough_commits(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = opened(**COMPACT)
    compacted = []
    for number in range(1, 4):
        report = write(spark, destination, number, [("U", (1, str(number)))])
        compacted.append(report.metrics["compacted_partitions"])
    assert compacted == [0, 1, 0]
    assert stored(maxcompute, destination.table) == [(1, "3")]
    history = destination._client.run_sql(f"SHOW HISTORY FOR TABLE {destination.table.target.sql}").splitlines()
    assert [line.split("\t")[-1] for line in history[2:]] == [
        "STORAGE_WRITE",
        "STORAGE_WRITE",
        "COMPACT",
        "STORAGE_WRITE",
    ]


def test_partitions_are_compacted_on_their_own(spark: SparkSession, maxcompute: ServerHandle, opened: Opened) -> None:
    columns = {"id": "BIGINT", "ds": "STRING"}
    destination = opened(columns, key=["id", "ds"], partitioned_by=["ds"], **COMPACT)
    compacted = []
    for number, day in enumerate(["a", "b", "a"], start=1):
        report = write(spark, destination, number, [("U", (number, day))])
        compacted.append(report.metrics["compacted_partitions"])
    assert compacted == [0, 0, 1]
    assert "COMPACT" in destination._client.run_sql(f"SHOW HISTORY FOR TABLE {destination.table.target.sql}")
    assert destination._control.read().commits == '{"ds=b":1}'


def test_a_commit_that_comes_too_soon_is_left_to_a_later_run(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = opened(**{"commit_min-interval": "1 h"})
    write(spark, destination, 1, [("U", (1, "a"))])
    with pytest.raises(DestinationError, match=r"commit\.min-interval"):
        write(spark, destination, 2, [("U", (1, "b"))])
    assert destination.state().applied_batch == 1
    assert stored(maxcompute, destination.table) == [(1, "a")]


def test_without_a_declared_interval_a_batch_waits_for_it(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    destination = opened()
    just_now = ControlRecord(committed_at=int(time.time() * 1000))
    assert destination._since_last_commit(just_now) == 1
    assert caplog.text == ""
    monkeypatch.setattr(options, "_THIS_MACHINE", ())
    monkeypatch.setattr(options, "_LEAST_INTERVAL", timedelta(seconds=2))
    started = time.monotonic()
    assert destination._since_last_commit(just_now) == 2
    assert time.monotonic() - started > 0.5
    assert "make small files and slow queries" in caplog.text


def test_a_job_compacts_what_was_written_as_the_only_writer(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    columns = {"id": "BIGINT", "ds": "STRING"}
    uncounted = opened(columns, key=["id", "ds"], partitioned_by=["ds"])
    write(spark, uncounted, 1, [("U", (1, "a")), ("U", (2, "b"))])
    assert uncounted.compact(owner="job") == ("ds=a", "ds=b")
    with uncounted.lease(owner="run-1", duration=timedelta(seconds=60)), pytest.raises(LeaseHeldError, match="run-1"):
        uncounted.compact(owner="job")
    counted = opened(columns, key=["id", "ds"], partitioned_by=["ds"], **COMPACT)
    assert counted.compact(owner="job") == ()
    write(spark, counted, 1, [("U", (1, "a"))])
    assert counted.compact(owner="job") == ("ds=a",)
    assert counted.compact(owner="job") == ()
    assert stored(maxcompute, uncounted.table) == [(1, "a"), (2, "b")]
