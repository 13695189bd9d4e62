"""One task by either runner: its result, its errors, and the worker that it begins in."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from typing import NoReturn

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from upsert_platform.core.errors import EndpointError, RecordError, TopicError
from upsert_platform.core.spark_failures import failure_of, job_failures
from upsert_platform.core.spark_gone import told_if_gone
from upsert_platform.core.task_runner import LocalTaskRunner, SparkTaskRunner, TaskRunner, answers_of
from upsert_platform.spark.spark_work import SparkWork, WorkCounter
from upsert_platform.spark.worker_daemon import MODULES


def failing(kind: type[Exception]) -> NoReturn:
    raise kind("topic 'a', partition 3,\n\noffset 7: é")


def described(table: pa.Table) -> tuple[int, int, pa.Table]:
    return os.getpid(), os.getppid(), table.append_column("n", pa.array(range(table.num_rows)))


def missing_modules() -> list[str]:
    return [name for name in MODULES if name not in sys.modules]


@pytest.fixture(params=["this process", "Spark"])
def runner(request: pytest.FixtureRequest) -> TaskRunner:
    if request.param == "this process":
        return LocalTaskRunner()
    session: SparkSession = request.getfixturevalue("spark")
    return SparkTaskRunner(lambda: session)


def test_a_task_returns_what_it_returns(runner: TaskRunner) -> None:
    process, _, table = runner.call(partial(described, pa.table({"a": ["x", None]})), what="describe")
    assert table.to_pylist() == [{"a": "x", "n": 0}, {"a": None, "n": 1}]
    assert (process == os.getpid()) == isinstance(runner, LocalTaskRunner)


@pytest.mark.parametrize("kind", [RecordError, TopicError])
def test_an_error_of_the_platform_keeps_its_kind_and_text(runner: TaskRunner, kind: type[Exception]) -> None:
    with pytest.raises(kind) as raised:
        runner.call(partial(failing, kind), what="fail")
    assert type(raised.value) is kind
    assert str(raised.value) == "topic 'a', partition 3,\n\noffset 7: é"


def test_another_error_ends_the_task(runner: TaskRunner) -> None:
    with pytest.raises(Exception, match="offset 7"):
        runner.call(partial(failing, ZeroDivisionError), what="fail")


def test_workers_begin_with_what_tasks_import_and_spark_counts_the_task(spark: SparkSession) -> None:
    counter = WorkCounter(spark)
    runner = SparkTaskRunner(lambda: spark)
    assert runner.call(missing_modules, what="look") == []
    assert counter.take() == SparkWork(jobs=1, stages=1, tasks=1)
    assert counter.take() == SparkWork()
    assert spark.range(0, 8, 1, 4).repartition(2).count() == 8
    done = counter.take()
    assert (done.jobs >= 1, done.stages >= 2, done.tasks >= 6) == (True, True, True)


def killing() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_was_killed_is_told_with_the_remedy(spark: SparkSession) -> None:
    with pytest.raises(EndpointError, match=r"a Python worker of Spark ended .*'batch.max-records'"):
        SparkTaskRunner(lambda: spark).call(killing, what="die")


def numbered(number: int) -> tuple[int, int]:
    if number < 0:
        raise TopicError(f"partition {number}: é")
    return number, os.getpid()


def test_several_tasks_answer_in_their_order(spark: SparkSession) -> None:
    counter = WorkCounter(spark)
    answers = answers_of(spark, [partial(numbered, number) for number in range(5)], what="count")
    assert [number for number, _ in answers] == [*range(5)]
    assert os.getpid() not in {process for _, process in answers}
    assert counter.take() == SparkWork(jobs=1, stages=1, tasks=5)
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


def test_of_several_tasks_one_that_fails_ends_the_job_with_its_error(spark: SparkSession) -> None:
    with pytest.raises(job_failures()) as raised:
        answers_of(spark, [partial(numbered, number) for number in (0, -3)], what="count")
    found = failure_of(raised.value)
    assert type(found) is TopicError
    assert str(found) == "partition -3: é"


def test_of_several_tasks_one_whose_worker_is_killed_is_told(spark: SparkSession) -> None:
    with pytest.raises(job_failures()) as raised:
        answers_of(spark, [killing], what="die")
    assert "a Python worker of Spark ended" in (told_if_gone(raised.value) or "")
