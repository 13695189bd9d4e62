"""What every destination promises: spans that may be written again, one holder, a position that tells the truth.

Those of a server that has to be installed are tests of systems.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.core.capabilities import Resets, WritesInTask
from upsert_platform.core.destination import BatchSpan, Destination, RefusedRow, Verdict, WriteReport
from upsert_platform.core.errors import DestinationError, LeaseHeldError, RecordError
from upsert_platform.core.task_runner import LocalTaskRunner, RowsOfTask, SparkTaskRunner
from upsert_platform_tests.writing.conftest import DESTINATIONS, STRICT, Open, marked
from upsert_platform_tests.writing.leases import die

pytestmark = pytest.mark.whole_runs

MINUTE = timedelta(seconds=60)
NULLABLE = {"id": "BIGINT NOT NULL", "name": "STRING"}
DDL = "id BIGINT, name STRING, _op STRING, _seq BIGINT"


class KilledError(BaseException):
    """Ends a run as a signal would: nobody catches it on the way."""


def frame(spark: SparkSession, rows: Sequence[tuple[int | None, str | None, str, int]]) -> DataFrame:
    return spark.createDataFrame(list(rows), DDL)


def write(
    destination: Destination, changes: DataFrame | RowsOfTask, upto: int, after: int = 0, **options: Any
) -> WriteReport:
    destination.prepare()
    with destination.lease(owner=f"run-{upto}", duration=MINUTE) as lease:
        span = BatchSpan(after, upto, "changelog-1", "run", commit=f"run/attempt-{upto}")
        return destination.write(changes, span=span, lease=lease, **options)


def contents(spark: SparkSession, destination: Destination) -> dict[int, str]:
    return {row["id"]: row["name"] for row in destination.read(spark).collect()}


def test_a_span_may_be_written_again_and_a_run_killed_before_its_position(spark: SparkSession, opened: Open) -> None:
    first = frame(spark, [(1, "a", "U", 1), (2, "b", "U", 1), (3, None, "D", 1)])
    destination = opened()
    assert destination.state().applied_batch == 0
    destination.prepare()

    def killed(refused: object) -> None:
        raise KilledError

    with pytest.raises(KilledError):
        write(destination, first, 1, keep_refused=killed)
    assert opened().state().applied_batch == 0
    write(opened(), first, 1)
    state = opened().state()
    assert (state.applied_batch, state.changelog_id, state.holder) == (1, "changelog-1", None)
    assert (state.commit, state.begun) == ("run/attempt-1", None)
    write(opened(), first, 1)
    assert contents(spark, opened()) == {1: "a", 2: "b"}
    write(opened(), frame(spark, [(2, None, "D", 2), (4, "d", "U", 2)]), 2, 1)
    assert contents(spark, opened()) == {1: "a", 4: "d"}
    assert (opened().state().applied_batch, opened().state().commit) == (2, "run/attempt-2")
    keys = spark.createDataFrame([(4,), (9,)], "id BIGINT")
    assert [row["name"] for row in opened().read(spark, keys=keys).collect()] == ["d"]


WITH_SPARK = {"upsert-kafka-exactly-once", "memory"}
"""Whose rows Spark writes, however few they are."""


def test_who_needs_spark_for_few_rows(request: pytest.FixtureRequest, opened: Open) -> None:
    destination = opened()
    destination.prepare()
    here = isinstance(destination, WritesInTask) and destination.writes_in_task()
    assert here != (request.node.callspec.params["declared"] in WITH_SPARK)


@pytest.mark.parametrize("declared", marked([name for name in DESTINATIONS if name not in WITH_SPARK]), indirect=True)
@pytest.mark.parametrize("where", ["this process", "Spark"])
def test_few_rows_are_written_and_read_by_one_task(
    where: str, spark: SparkSession, declared: Callable[..., Open], tmp_path: Path
) -> None:
    """Wherever it runs: with deletes, with rows that are refused, and once more after a kill."""
    runner = LocalTaskRunner() if where == "this process" else SparkTaskRunner(lambda: spark)
    opened = declared(STRICT)
    destination = opened()
    destination.prepare()
    names = ["id", "name", "_op", "_seq"]
    store = RefusedStore(str(tmp_path / "refused"))

    def few(*rows: tuple[int, str | None, str, int]) -> RowsOfTask:
        table = pa.table([pa.array(values) for values in zip(*rows, strict=True)], names=names)
        return RowsOfTask(partial(_made, table), runner)

    first = few((1, "a", "U", 1), (2, "b", "U", 1), (3, None, "D", 1), (4, None, "U", 1))
    for _ in range(2):
        keep = store.of(BatchSpan(0, 1, "changelog-1", "run"))
        write(opened(), first, 1, keep_refused=keep)
    assert [json.loads(row["key"])["id"] for row in store.read().to_pylist()] == [4]
    assert contents(spark, opened()) == {1: "a", 2: "b"}
    second = few((2, None, "D", 2), (5, "é", "U", 2))
    report = write(opened(), second, 2, 1)
    assert second.counted == {"rows": 2}
    assert (report.upserts, report.deletes, opened().state().applied_batch) == (1, 1, 2)
    assert contents(spark, opened()) == {1: "a", 5: "é"}
    reader = opened()
    assert isinstance(reader, WritesInTask)
    keys = pa.table({"id": [1, 2, 5, 9]})
    read = reader.key_reader(since=0, most=100)
    assert read is not None
    found = runner.call(partial(read, keys), what="read")
    assert found is not None
    assert sorted(row["name"] for row in found.to_pylist() if row["id"] in (1, 2, 5, 9)) == ["a", "é"]
    assert found.schema.types == [pa.int64(), pa.string()]
    read = reader.key_reader(since=0, most=1)
    assert read is None or read(keys) is None


def _made(table: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    return table, {"rows": table.num_rows}


def test_nulls_of_not_null_columns_are_refused_before_the_write_and_kept_by_tasks(
    spark: SparkSession, declared: Callable[..., Open], tmp_path: Path
) -> None:
    rows = [(1, "a", "U", 1), (2, None, "U", 1), (3, None, "D", 1), *((n, None, "U", 1) for n in range(10, 40))]
    strict = declared(STRICT)
    store = RefusedStore(str(tmp_path / "refused"))
    keep = store.of(BatchSpan(0, 1, "changelog-1", "run"))
    report = write(strict(), frame(spark, rows), 1, keep_refused=keep)
    assert (report.upserts, report.deletes, report.refused_count) == (1, 1, 31)
    assert contents(spark, strict()) == {1: "a"}
    kept = store.read().to_pylist()
    assert sorted(json.loads(row["key"])["id"] for row in kept) == [2, *range(10, 40)]
    assert {row["reason"] for row in kept} == {"column 'name' is null, or a field within it, though declared NOT NULL"}
    one = next(row for row in kept if json.loads(row["key"])["id"] == 2)
    assert json.loads(one["row"]) == {"id": 2, "name": None, "_op": "U"}
    as_rows: list[RefusedRow] = []  # of who takes no files
    assert write(strict(), frame(spark, rows[1:2]), 2, 1, keep_refused=as_rows.extend).refused_count == 1
    assert [json.loads(row.key) for row in as_rows] == [{"id": 2}]
    stopping = declared(STRICT, **{"on-error": "fail"})
    with pytest.raises(RecordError, match="declared NOT NULL"):
        write(stopping(), frame(spark, rows), 1)
    assert stopping().state().applied_batch == 0


def test_a_null_key_is_refused_and_found_by_no_read(
    spark: SparkSession, declared: Callable[..., Open], tmp_path: Path
) -> None:
    """A put of it is set aside; a delete of it, such as of a group whose key is null, has nothing to delete."""
    opened = declared(NULLABLE)
    store = RefusedStore(str(tmp_path / "refused"))
    rows = [(1, "a", "U", 1), (None, "nobody", "U", 1)]
    report = write(opened(), frame(spark, rows), 1, keep_refused=store.of(BatchSpan(0, 1, "changelog-1", "run")))
    assert (report.upserts, report.refused_count) == (1, 1)
    (kept,) = store.read().to_pylist()
    assert json.loads(kept["key"]) == {"id": None}
    assert "null" in kept["reason"]
    write(opened(), frame(spark, [(2, "b", "U", 2), (None, None, "D", 2)]), 2, 1, keep_refused=store.again(2))
    assert (contents(spark, opened()), opened().state().applied_batch) == ({1: "a", 2: "b"}, 2)
    keys = spark.createDataFrame([(1,), (None,)], "id BIGINT")
    assert [row["name"] for row in opened().read(spark, keys=keys).collect()] == ["a"]


def checked(destination: Destination) -> Verdict:
    """Records that a check passed, as checks do, and returns its verdict."""
    state = destination.state()
    verdict = Verdict(
        state.applied_batch,
        passed=True,
        complete=True,
        at=datetime(2026, 1, 2, tzinfo=UTC),
        changelog_id=state.changelog_id,
        table_id=state.table_id,
    )
    destination.record_verdict(verdict)
    return verdict


def test_a_verdict_is_of_its_changelog_its_table_and_a_batch_that_is_applied(spark: SparkSession, opened: Open) -> None:
    write(opened(), frame(spark, [(1, "a", "U", 1)]), 1)
    assert opened().state().verdict is None
    own = checked(opened())
    assert opened().state().verdict == own
    write(opened(), frame(spark, [(2, "b", "U", 2)]), 2, 1)
    assert opened().state().verdict == own
    unnamed = replace(own, changelog_id="", table_id="")
    others = replace(own, changelog_id="changelog-2"), replace(own, table_id="another"), replace(own, batch=3)
    for verdict in (*others, unnamed):
        opened().record_verdict(verdict)
        state = opened().state()
        assert (state.last_verdict, state.verdict) == (verdict, None)
    failed = replace(unnamed, passed=False)
    opened().record_verdict(failed)
    assert opened().state().verdict == failed


def test_a_verdict_takes_the_place_of_the_one_that_was_read_alone(spark: SparkSession, opened: Open) -> None:
    """Of several checks that end at once, one keeps its verdict; the others see it, and none is lost unseen."""
    write(opened(), frame(spark, [(1, "a", "U", 1)]), 1)
    assert opened().last_verdict() is None
    at = datetime(2026, 1, 2, tzinfo=UTC)
    first, *others = (Verdict(1, True, False, at, str(number)) for number in range(4))
    assert opened().swap_verdict(None, first)
    assert not opened().swap_verdict(None, others[0])
    assert opened().last_verdict() == first
    destination = opened()
    swap = partial(destination.swap_verdict, first)
    if type(destination).swap_verdict is Destination.swap_verdict:  # it says that it compares and writes in two steps
        assert [swap(verdict) for verdict in others] == [True, False, False]
        return
    with ThreadPoolExecutor(3) as pool:
        kept = [verdict for verdict, done in zip(others, pool.map(swap, others), strict=True) if done]
    assert kept == [opened().last_verdict()]


@pytest.mark.parametrize("declared", marked([name for name in DESTINATIONS if name != "memory"]), indirect=True)
@pytest.mark.parametrize("how", ["its position is forgotten", "it is dropped"])
def test_no_verdict_stands_for_a_table_that_is_written_anew(how: str, spark: SparkSession, opened: Open) -> None:
    """Of the same changelog, and up to the batch that was checked."""
    changes = frame(spark, [(1, "a", "U", 1)])
    write(opened(), changes, 5)
    checked(opened())
    destination = opened()
    assert isinstance(destination, Resets)
    if how == "it is dropped":
        destination.drop_table()
    else:
        with destination.lease(owner="reset", duration=MINUTE) as lease:
            destination.forget_applied(lease)
    assert opened().state().verdict is None
    write(opened(), changes, 5)
    state = opened().state()
    assert (state.applied_batch, state.changelog_id, state.verdict) == (5, "changelog-1", None)


def test_one_holder_and_a_dead_ones_lease_is_taken_over(spark: SparkSession, opened: Open) -> None:
    changes = frame(spark, [(1, "late", "U", 1)])
    dead, other = opened(), opened()
    dead.prepare()
    with dead.lease(owner="first", duration=MINUTE) as lease:
        assert other.state().holder == "first"
        with pytest.raises(LeaseHeldError, match="'first'"), other.lease(owner="second", duration=MINUTE):
            pass
        die(lease, left=1)
        assert other.state().holder == "first"
        time.sleep(1.1)
        with other.lease(owner="second", duration=MINUTE) as taken:
            assert taken.epoch > lease.epoch
            with pytest.raises(LeaseHeldError):
                dead.write(changes, span=BatchSpan(0, 1, "changelog-1", "first"), lease=lease)
            assert opened().state().holder == "second"
            taken.check()
    assert opened().state().applied_batch == 0
    assert opened().state().holder is None


def test_a_lease_that_ends_while_rows_are_sent_records_nothing(spark: SparkSession, opened: Open) -> None:
    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(max(0.0, until - time.time()))
        yield from batches

    destination = opened()
    destination.prepare()
    with destination.lease(owner="slow", duration=MINUTE) as lease:
        rows = frame(spark, [(1, "a", "U", 1)])
        die(lease, left=3)
        # Rows come when nothing may be sent any more: what a write notes before its rows prolongs the lease once.
        until = lease.deadline.timestamp() + 3.1
        slow = rows.mapInArrow(slowly, DDL)
        with pytest.raises(DestinationError, match="lease"):
            destination.write(slow, span=BatchSpan(0, 1, "changelog-1", "slow"), lease=lease)
    assert opened().state().applied_batch == 0
