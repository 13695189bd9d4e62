"""The destination as a whole against the local server: batches, deletes, replays, reads (sections 2.3, 4.6, 6.2)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from upsert_platform.destination import Verdict
from upsert_platform.errors import DestinationError, RecordError
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.frames import frame, span, stored, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_are_put_replaced_and_deleted(
    spark: SparkSession, maxcompute: ServerHandle, opened: Callable[..., MaxComputeDestination]
) -> None:
    destination = opened()
    assert destination.state().applied_batch == 0
    report = write(spark, destination, 1, [("U", (1, "a")), ("U", (2, "b")), ("U", (3, None))])
    assert (report.upserts, report.deletes, report.refused_count) == (3, 0, 0)
    assert stored(maxcompute, destination.table) == [(1, "a"), (2, "b"), (3, None)]
    report = write(spark, destination, 2, [("U", (2, "B")), ("D", (3, None)), ("D", (9, None))])
    assert (report.upserts, report.deletes) == (1, 2)
    assert stored(maxcompute, destination.table) == [(1, "a"), (2, "B")]
    state = destination.state()
    assert (state.applied_batch, state.changelog_id, state.holder) == (2, "changelog-1", None)
    assert destination.read(spark).orderBy("id").collect() == [(1, "a"), (2, "B")]


def test_a_replayed_span_changes_nothing(
    spark: SparkSession, maxcompute: ServerHandle, opened: Callable[..., MaxComputeDestination]
) -> None:
    destination = opened()
    write(spark, destination, 1, [("U", (1, "a"))])
    write(spark, destination, 2, [("U", (1, "b"))])
    report = write(spark, destination, 1, [("U", (1, "a"))])
    assert report.metrics == {"already_applied": 1}
    assert stored(maxcompute, destination.table) == [(1, "b")]


def test_a_span_that_leaves_batches_out_is_refused(
    spark: SparkSession, opened: Callable[..., MaxComputeDestination]
) -> None:
    destination = opened()
    write(spark, destination, 1, [("U", (1, "a"))])
    with pytest.raises(DestinationError, match="has applied batch 1, the changes come after batch 2"):
        write(spark, destination, 3, [("U", (1, "b"))])


def test_117_an_empty_batch_commits_nothing_and_is_applied(
    spark: SparkSession, maxcompute: ServerHandle, opened: Callable[..., MaxComputeDestination]
) -> None:
    destination = opened()
    report = write(spark, destination, 1, [])
    assert (report.upserts, report.deletes) == (0, 0)
    assert destination.state().applied_batch == 1
    assert stored(maxcompute, destination.table) == []


def test_refused_rows_are_handed_back_and_the_others_are_written(
    spark: SparkSession, maxcompute: ServerHandle, opened: Callable[..., MaxComputeDestination]
) -> None:
    destination = opened({"id": "BIGINT", "name": "VARCHAR(3)"})
    report = write(spark, destination, 1, [("U", (1, "abc")), ("U", (2, "abcd")), ("U", (None, "x"))])
    assert (report.upserts, report.refused_count) == (1, 2)
    reasons = {row.key: row.reason for row in report.refused}
    assert "more than the 3 characters of VARCHAR(3)" in reasons['{"id": 2}']
    assert "is null" in reasons['{"id": null}']
    assert '"name": "abcd"' in next(row.row for row in report.refused if row.key == '{"id": 2}')
    assert stored(maxcompute, destination.table) == [(1, "abc")]


def test_on_error_fail_commits_nothing(
    spark: SparkSession, maxcompute: ServerHandle, opened: Callable[..., MaxComputeDestination]
) -> None:
    destination = opened({"id": "BIGINT", "name": "CHAR(2)"}, on__error="fail")
    with pytest.raises(RecordError, match="characters of CHAR"):
        write(spark, destination, 1, [("U", (1, "a")), ("U", (2, "abc"))])
    assert stored(maxcompute, destination.table) == []
    assert destination.state().applied_batch == 0


def test_key_columns_need_not_be_first(
    spark: SparkSession, maxcompute: ServerHandle, opened: Callable[..., MaxComputeDestination]
) -> None:
    destination = opened({"v": "STRING", "k1": "STRING", "k2": "STRING"}, key=["k1", "k2"])
    write(
        spark,
        destination,
        1,
        [("U", ("v2", "k1", "k2")), ("U", ("v3", "k3", "k4")), ("U", ("v4", "k5", "k6"))],
    )
    write(spark, destination, 2, [("D", (None, "k5", "k6"))])
    assert stored(maxcompute, destination.table) == [("v2", "k1", "k2"), ("v3", "k3", "k4")]


def test_a_verdict_is_kept_beside_the_batch(spark: SparkSession, opened: Callable[..., MaxComputeDestination]) -> None:
    destination = opened()
    write(spark, destination, 1, [("U", (1, "a"))])
    verdict = Verdict(1, False, True, datetime.now(UTC), "1 row differs")
    destination.record_verdict(verdict)
    assert destination.state().verdict == verdict
    assert destination.state().applied_batch == 1


def test_a_table_made_anew_has_no_applied_batch(
    spark: SparkSession, maxcompute: ServerHandle, opened: Callable[..., MaxComputeDestination]
) -> None:
    destination = opened()
    write(spark, destination, 1, [("U", (1, "a"))])
    maxcompute.odps().delete_table(destination.table.target.table)
    assert destination.state().applied_batch == 0
    destination.prepare()
    assert destination.state().applied_batch == 0
    write(spark, destination, 1, [("U", (1, "b"))])
    assert stored(maxcompute, destination.table) == [(1, "b")]


def test_read_by_keys_gives_those_rows_only(spark: SparkSession, opened: Callable[..., MaxComputeDestination]) -> None:
    destination = opened({"id": "BIGINT", "k": "STRING", "v": "INT"}, key=["id", "k"])
    write(spark, destination, 1, [("U", (n, f"it's {n}", n)) for n in range(50)])
    keys = spark.createDataFrame([(7, "it's 7"), (8, "it's 9"), (99, "no")], "id BIGINT, k STRING")
    assert destination.read(spark, keys=keys).collect() == [(7, "it's 7", 7)]


def test_the_lease_of_another_destination_is_no_lease(
    spark: SparkSession, opened: Callable[..., MaxComputeDestination]
) -> None:
    destination = opened()
    with pytest.raises(TypeError, match="lease"), closing(destination):
        destination.write(frame(spark, destination.table, []), span=span(1), lease=object())  # type: ignore[arg-type]
