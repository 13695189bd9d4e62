"""Runners of a task that is the whole work of a step: a Python worker of Spark, or this process.

A step of few rows is one task: a function that reads, computes and writes by itself, and returns a small result. It is
the same function wherever it runs. Steps of more rows are divided among tasks by Spark.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from upsert_platform.core.errors import EndpointError, UpsertPlatformError
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.spark_gone import told_if_gone

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
_NUMBER: Final = internal("number")


class TaskRunner(Protocol):
    """Runs one task."""

    def call(self, task: Callable[[], _T], *, what: str) -> _T:
        """Return what a task returns.

        Args:
            task: can be pickled, and so can its result.
            what: the task does, for Spark's page.

        Raises:
            UpsertPlatformError: what the task raised.
            Exception: of Spark, where the task ended otherwise.
        """


class LocalTaskRunner:
    """Runs a task in this process."""

    def call(self, task: Callable[[], _T], *, what: str) -> _T:
        """Return what a task returns."""
        del what
        return task()


@dataclass(frozen=True)
class SparkTaskRunner:
    """Runs a task in a Python worker of Spark, as a job of one task.

    Attributes:
        open: gives the session.
    """

    open: Callable[[], SparkSession]

    def call(self, task: Callable[[], _T], *, what: str) -> _T:
        """Return what a task returns; its result reaches the driver as bytes, past Spark SQL.

        Raises:
            EndpointError: the JVM or the Python worker has ended.
        """
        try:
            result, raised = answers_of(self.open(), [partial(_outcome, task)], what=what)[0]
        except Exception as error:
            told = told_if_gone(error)
            if told is None:
                raise
            raise EndpointError(told) from error
        if raised is not None:
            raise raised
        return cast("_T", result)


def answers_of(spark: SparkSession, tasks: Sequence[Callable[[], _T]], *, what: str) -> list[_T]:
    """Run several tasks, each as one of a job of Spark, and return what they return; nothing passes Spark SQL.

    Args:
        tasks: can be pickled, and so can their results, which are small.
        what: they do, for Spark's page.

    Raises:
        Exception: of Spark; `failure_of` finds in it what a task raised. Of the other tasks nothing is returned.
    """
    context = spark.sparkContext
    places = context.parallelize(range(len(tasks)), max(1, len(tasks)))
    context.setJobDescription(what)
    try:
        answers: list[bytes] = places.mapPartitions(partial(_answers, tasks=list(tasks))).collect()
    finally:
        context.setJobDescription(None)
    return [pickle.loads(answer) for answer in answers]


def numbers_of(places: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """The input of a function for ``mapInArrow`` that makes rows of numbers: one batch of them."""
    import pyarrow as pa

    yield pa.record_batch([pa.array(places, pa.int64())], names=[_NUMBER])


def _answers(places: Iterator[int], *, tasks: Sequence[Callable[[], Any]]) -> Iterator[bytes]:
    for place in places:
        yield pickle.dumps(tasks[place]())


def _outcome(task: Callable[[], _T]) -> tuple[_T | None, UpsertPlatformError | None]:
    """Return a task's result, or the platform's error that it raised, which keeps its kind and text so."""
    try:
        return task(), None
    except UpsertPlatformError as error:
        return None, error


@dataclass(frozen=True)
class RowsOfTask:
    """Change rows that the task makes which writes them: neither the driver nor the JVM holds them.

    Attributes:
        make: gives the rows, one per key, and numbers that were counted on the way. Can be pickled.
        runner: of the task.
        failed_key: names of the key columns of rows that may be among them with a reason why they cannot be computed
            (`destination.FAILED`), which are refused; None if there are no such rows.
        counted: those numbers, once the rows were written.
    """

    make: Callable[[], tuple[pa.Table, dict[str, int]]]
    runner: TaskRunner
    failed_key: tuple[str, ...] | None = None
    counted: dict[str, int] = field(default_factory=dict)

    def then(self, change: Callable[[pa.Table], pa.Table]) -> RowsOfTask:
        """Return the rows as a function changes them, in the task. It can be pickled."""
        return replace(self, make=partial(_changed, self.make, change))


@dataclass(frozen=True)
class RowsOfTasks:
    """Change rows that several tasks make, each those of its share of the keys, and write.

    Attributes:
        share: gives the rows of a share part by part, each key in one of them, with numbers that were counted on the
            way: of a number from 0, and how many shares there are. Can be pickled.
        spark: whose workers run the tasks.
        shares: how many there are, and tasks.
        column: INT column that gets the number of a row's share; None for no such column.
        failed_key: as of `RowsOfTask`.
        counted: the sums of those numbers, once the rows were written.
    """

    share: Callable[[int, int], Iterator[tuple[pa.Table, dict[str, int]]]]
    spark: SparkSession
    shares: int
    column: str | None = None
    failed_key: tuple[str, ...] | None = None
    counted: Counter[str] = field(default_factory=Counter)

    def in_shares(self, shares: int, *, column: str | None = None) -> RowsOfTasks:
        """Return the rows in so many shares, and with a column that tells them apart."""
        return replace(self, shares=shares, column=column)

    def makers(self) -> list[Callable[[], Iterator[tuple[pa.Table, dict[str, int]]]]]:
        """Return what gives the rows of each share, in the place of that share."""
        return [partial(_numbered, self.share, number, self.shares, self.column) for number in range(self.shares)]


def _numbered(
    share: Callable[[int, int], Iterator[tuple[pa.Table, dict[str, int]]]], number: int, shares: int, column: str | None
) -> Iterator[tuple[pa.Table, dict[str, int]]]:
    import pyarrow as pa

    for table, counted in share(number, shares):
        numbers = pa.repeat(pa.scalar(number, pa.int32()), table.num_rows)
        yield (table if column is None else table.append_column(column, numbers)), counted


def _changed(
    make: Callable[[], tuple[pa.Table, dict[str, int]]], change: Callable[[pa.Table], pa.Table]
) -> tuple[pa.Table, dict[str, int]]:
    table, counted = make()
    return change(table), counted
