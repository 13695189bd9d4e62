"""Counts of rows that a writing task tells while it runs. Of every system alike; in Spark workers,
or in the process that writes few rows by itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pyarrow as pa

from upsert_platform.core.destination import CountsRows

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def counted_task(task: Task, counter: Callable[[int], CountsRows]) -> Task:
    """A writing task whose count is told: the rows of the batches before the one that it works at.

    Args:
        task: the function for ``mapInArrow``.
        counter: opens what takes the count, given the task's place.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from task(_counted(batches, counter(_place())))

    return write


def _place() -> int:
    """Return the index of this task among Spark's; 0 in a process that writes by itself without Spark."""
    module = sys.modules.get("pyspark")
    context = None if module is None else module.TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def _counted(batches: Iterator[pa.RecordBatch], count: CountsRows) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        yield batch
        rows += batch.num_rows
        count(rows)
    if rows:
        count(rows, ended=True)
