"""Runners of a stage's tasks: Spark's workers, or this process up to the local bound."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
from pyspark import AccumulatorParam
from pyspark.sql import functions

from upsert_platform.core.task_runner import answers_of
from upsert_platform.engine.closing import merged
from upsert_platform.engine.steps import FilterStep, ProjectStep, Step, Tally, take_steps
from upsert_platform.engine.tasks import (
    WEIGHT,
    Answer,
    Task,
    hand_on,
    names_after,
    rows_schema,
    run_task,
    schema_after,
    stage_rows,
)  # fmt: skip

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    from upsert_platform.engine.stages import Stage

LOCAL_STATE: Final = 512 << 20
"""Bytes of state that tasks in this process may read."""
_ANSWERS: Final = "answer BINARY"
_WHAT: Final = "a stage of a query"
"""On Spark's page."""


class Runner(Protocol):
    """Carries out the tasks of a stage."""

    def parallel(self, *, rows: int, state: int) -> int:
        """Into how many tasks work is best divided.

        Args:
            rows: that tasks read.
            state: bytes of state that tasks may read.
        """

    def run(self, tasks: Sequence[Task], *, rows: int, state: int) -> list[Answer]:
        """Runs tasks of one stage, all or none."""


class LocalRunner:
    """Runs tasks one after the other in this process.

    Args:
        spark: gives a session for steps that need one; without it they are refused.
    """

    def __init__(self, spark: Callable[[], SparkSession] | None = None) -> None:
        self._spark = spark

    def parallel(self, *, rows: int, state: int) -> int:
        """One task after the other: one."""
        del rows, state
        return 1

    def run(self, tasks: Sequence[Task], *, rows: int, state: int) -> list[Answer]:
        """Runs tasks here; those with steps that need Spark go there."""
        del rows, state
        if tasks and tasks[0].stage.needs_spark:
            assert self._spark is not None, "a step needs Spark"
            return _run_in_spark(self._spark(), tasks)
        return [run_task(task) for task in tasks]


class SparkRunner:
    """Runs tasks in Spark's Python workers, and those up to the local bound in this process.

    Args:
        spark: gives the session; called for work above the bound only.
        local_rows: up to so many rows, and LOCAL_STATE bytes of state, tasks run in this process.
    """

    def __init__(self, spark: Callable[[], SparkSession], *, local_rows: int = 0) -> None:
        self._spark = spark
        self._local_rows = local_rows
        self._local = LocalRunner(spark)

    def parallel(self, *, rows: int, state: int) -> int:
        """One in this process, else one per core."""
        if self._is_local(rows, state):
            return 1
        return max(1, int(self._spark().sparkContext.defaultParallelism))

    def run(self, tasks: Sequence[Task], *, rows: int, state: int) -> list[Answer]:
        """Runs tasks in Spark's workers, or in this process."""
        if not tasks or self._is_local(rows, state):
            return self._local.run(tasks, rows=rows, state=state)
        return _run_in_spark(self._spark(), tasks)

    def _is_local(self, rows: int, state: int) -> bool:
        return rows <= self._local_rows and state < LOCAL_STATE


def _run_in_spark(spark: SparkSession, tasks: Sequence[Task]) -> list[Answer]:
    """One Spark task per task: no rows pass through the JVM unless a step needs it."""
    stage = tasks[0].stage
    if not stage.needs_spark:
        return answers_of(spark, [partial(run_task, task) for task in tasks], what=_WHAT)
    read = spark.sparkContext.accumulator(0)
    tallies = spark.sparkContext.accumulator(Tally(), _Tallies())
    reading = partial(_read_placed, tasks=list(tasks), read=read, tallies=tallies)
    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(reading, rows_schema(stage))
    for at, step in enumerate(stage.steps):
        frame = _step_in_spark(frame, step, stage, at + 1, tallies)
    frame = frame.mapInArrow(partial(_hand_on_placed, tasks=list(tasks)), _ANSWERS)
    answers: list[Answer] = [pickle.loads(row[0]) for row in frame.collect()]
    if not answers:  # Spark reads no rows where it knows beforehand that none meets a condition
        return answers_of(spark, [partial(_read_for_nothing, task) for task in tasks], what=_WHAT)
    # What reads rows tells nothing by itself where Spark takes them on.
    return [replace(answers[0], read=read.value, tally=tallies.value), *answers[1:]]


class _Tallies(AccumulatorParam[Tally]):
    """Puts together what tasks count beside the rows that they give to Spark."""

    def zero(self, value: Tally) -> Tally:
        """Nothing counted."""
        return Tally()

    def addInPlace(self, value1: Tally, value2: Tally) -> Tally:  # noqa: N802 - Spark's name
        """Both."""
        return merged(value1, value2)


def _read_placed(
    batches: Iterator[pa.RecordBatch], tasks: Sequence[Task], read: Accumulator[int], tallies: Accumulator[Tally]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for place in batch.column(0).to_pylist():
            tally = Tally()
            for table in stage_rows(tasks[place], tally):
                read += table.num_rows if tasks[place].share is not None else 0
                yield from table.combine_chunks().to_batches()
            tallies += tally


def _read_for_nothing(task: Task) -> Answer:
    """The answer of a task of whose rows the steps leave none."""
    tally = Tally()
    count = sum(table.num_rows for table in stage_rows(task, tally))
    return replace(hand_on(task, ()), read=count if task.share is not None else 0, tally=tally)


def _hand_on_placed(batches: Iterator[pa.RecordBatch], tasks: Sequence[Task]) -> Iterator[pa.RecordBatch]:
    tables = (pa.Table.from_batches([batch]) for batch in batches if batch.num_rows)
    # What follows the steps is the same for every task of the stage.
    yield _told(hand_on(tasks[0], tables))


def _told(answer: Answer) -> pa.RecordBatch:
    return pa.record_batch({"answer": pa.array([pickle.dumps(answer)], pa.binary())})


def _step_in_spark(frame: DataFrame, step: Step, stage: Stage, count: int, tallies: Accumulator[Tally]) -> DataFrame:
    match step:
        case ProjectStep():
            kept = [name for name in (*step.kept, WEIGHT) if name in frame.columns]
            columns: list[Any] = [functions.expr(item.sql).alias(name) for name, item in step.columns]
            return frame.select(*columns, *(functions.col(f"`{name}`") for name in kept))
        case FilterStep():
            condition = functions.coalesce(functions.expr(step.condition.sql), functions.lit(False))
            if step.into is None:
                return frame.where(condition)
            return frame.withColumn(step.into, functions.col(step.into) & condition)
    names = names_after(stage, count)
    return frame.mapInArrow(partial(_in_arrow, step=step, names=names, tallies=tallies), schema_after(stage, count))


def _in_arrow(
    batches: Iterator[pa.RecordBatch], step: Step, names: Sequence[str], tallies: Accumulator[Tally]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        tally = Tally()
        table = take_steps(pa.Table.from_batches([batch]), [step], tally)
        tallies += tally
        yield from table.select(names).combine_chunks().to_batches()
