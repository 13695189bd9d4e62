"""Counts of rows that a writing task tells while it runs. Of every system alike; runs in Spark workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import TaskContext

from upsert_platform.destination import CountsRows

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def counted_task(task: Task, counter: Callable[[int], CountsRows]) -> Task:
    """A writing task whose count is told: the rows of the batches before the one that it works at.

    Args:
        task: the function for ``mapInArrow``.
        counter: opens what takes the count, given the task's place.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield from task(_counted(batches, counter(context.partitionId())))

    return write


def _counted(batches: Iterator[pa.RecordBatch], count: CountsRows) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        yield batch
        rows += batch.num_rows
        count(rows)
    if rows:
        count(rows, ended=True)
