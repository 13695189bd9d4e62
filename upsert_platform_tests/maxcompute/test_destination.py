"""The destination as a whole against the local server: batches, deletes, replays, reads (sections 2.3, 4.6, 6.2)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from upsert_platform.core.destination import Verdict
from upsert_platform.core.errors import DestinationError, EndpointError, RecordError
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.fault_proxy import Fault, fault_proxy
from upsert_platform_tests.maxcompute.frames import frame, span, stored, write
from upsert_platform_tests.soak.partition_kills import open_sessions
from upsert_platform_tests.task_rows import task_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs


def test_rows_are_put_replaced_and_deleted(
    spark: SparkSession, maxcompute: ServerHandle, opened: Callable[..., MaxComputeDestination]
) -> None:
    destination = opened()
    assert destination.state().applied_batch == 0
    report = write(spark, destination, 1, [("U", (1, "a")), ("U", (2, "b")), ("U", (3, None))])
    assert (report.upserts, report.deletes, report.refused_count) == (3, 0, 0)
    assert stored(maxcompute, destination.table) == [(1, "a"), (2, "b"), (3, None)]
    maxcompute.journal(clear=True)
    report = write(spark, destination, 2, [("U", (2, "B")), ("D", (3, None)), ("D", (9, None))])
    # The lease, the open session, the commit, and what was applied with its end: seconds each in the cloud.
    assert len(maxcompute.journal("instance.create")) == 4
    assert [report.metrics[name] for name in ("table_version", "history_hours")] == [3, 24]
    with maxcompute.odps().execute_sql(str(report.metrics["time_travel"])).open_reader(tunnel=False) as reader:
        assert sorted(int(record["id"]) for record in reader) == [1, 2]
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
    assert write(spark, destination, 2, [("U", (2, "c"))], after=2, repeats=True).upserts == 1
    assert stored(maxcompute, destination.table) == [(1, "b"), (2, "c")]
    assert destination.state().applied_batch == 2


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


def test_89_refused_rows_are_handed_back_and_the_others_are_written(
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


def test_89_on_error_fail_commits_nothing(
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


@pytest.mark.parametrize(
    ("api", "request_name", "status"),
    [("maxstorage", "TableWrite", 503), ("tunnel", "PUT upserts", 308), ("tunnel", "POST upserts", 0)],
    ids=["bodies-refused", "slots-that-never-settle", "connections-cut"],
)
def test_a_batch_that_cannot_be_sent_leaves_nothing_behind(
    spark: SparkSession,
    maxcompute: ServerHandle,
    opened: Callable[..., MaxComputeDestination],
    api: str,
    request_name: str,
    status: int,
) -> None:
    open_before = open_sessions(maxcompute)
    with fault_proxy(maxcompute) as proxy:
        options = {"odps_tunnel_end_point": proxy.endpoint, "upsert_writer_max__retries": "0", "write_api": api}
        destination = opened(**options)
        fault = Fault(request_name, times=99, status=status)
        proxy.faults.append(fault)
        with pytest.raises((DestinationError, EndpointError)) as raised:
            write(spark, destination, 1, [("U", (n, "a")) for n in range(50)])
        assert "test_key" not in str(raised.value)
        assert stored(maxcompute, destination.table) == []
        assert (destination.state().applied_batch, open_sessions(maxcompute)) == (0, open_before)
        fault.times = 0
        write(spark, destination, 1, [("U", (n, "a")) for n in range(50)])
        assert len(stored(maxcompute, destination.table)) == 50


def test_116_a_frame_made_of_arrow_is_written_to_a_table_with_a_key(
    spark: SparkSession, maxcompute: ServerHandle, opened: Callable[..., MaxComputeDestination]
) -> None:
    destination = opened()
    rows = pa.table({"id": [1, 2], "name": ["a", None], "_op": ["U", "U"], "_seq": [0, 1]})
    with destination.lease(owner="test", duration=timedelta(seconds=60)) as lease:
        destination.write(spark.createDataFrame(rows), span=span(1), lease=lease)
    assert stored(maxcompute, destination.table) == [(1, "a"), (2, None)]


def judged(destination: MaxComputeDestination) -> Verdict:
    """Records that a check failed."""
    state = destination.state()
    verdict = Verdict(1, False, True, datetime.now(UTC), "1 row differs", state.changelog_id, state.table_id)
    destination.record_verdict(verdict)
    return verdict


def test_a_verdict_is_kept_beside_the_batch(spark: SparkSession, opened: Callable[..., MaxComputeDestination]) -> None:
    destination = opened()
    write(spark, destination, 1, [("U", (1, "a"))])
    verdict = judged(destination)
    assert destination.state().verdict == verdict
    assert destination.state().applied_batch == 1


def test_a_table_made_anew_has_no_applied_batch(
    spark: SparkSession, maxcompute: ServerHandle, opened: Callable[..., MaxComputeDestination]
) -> None:
    destination = opened()
    write(spark, destination, 1, [("U", (1, "a"))])
    judged(destination)
    maxcompute.odps().delete_table(destination.table.target.table)
    assert destination.state().applied_batch == 0
    for _ in range(2):  # looking creates none
        assert destination.unprepared().endswith("does not exist")
    destination.prepare()
    assert destination.unprepared() == ""
    assert destination.state().applied_batch == 0
    write(spark, destination, 1, [("U", (1, "b"))])
    assert destination.state().verdict is None
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


def test_options_without_effect_are_warned_of_once_by_the_process_that_writes(
    maxcompute: ServerHandle,
    opened: Callable[..., MaxComputeDestination],
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {"sink_file-cached_enable": "true", "upsert_flush_concurrent": "3", "sink_parallelism": "4"}
    destination = opened(**options)
    rows = pa.table({"id": [1], "name": ["a"], "_op": ["U"], "_seq": [0]})
    for upto in (1, 2):
        with destination.lease(owner="test", duration=timedelta(seconds=60)) as lease:
            destination.write(task_rows(rows), span=span(upto), lease=lease)
    assert stored(maxcompute, destination.table) == [(1, "a")]
    spill = "option 'sink.file-cached.enable' changes nothing here: writing tasks send rows as they arrive"
    slots = "option 'upsert.flush.concurrent' changes nothing here"
    local = "'sink.parallelism' = '4' has no effect on batches of few rows, which one task writes"
    assert [caplog.text.count(text) for text in (spill, slots, local)] == [1, 1, 1]
