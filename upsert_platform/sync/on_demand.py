"""The bound up to which the driver's process does the work, and Spark's session, which opens for work above it.

Jobs run on Spark: their bound is 0 rows unless `local_rows` says otherwise. Up to the bound this process carries out
the work with Arrow and starts no JVM. What it holds is bounded in rows and bytes, so that it never follows the size
of a topic or of a table.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from upsert_platform.core.errors import EndpointError
from upsert_platform.core.task_runner import LocalTaskRunner, SparkTaskRunner, TaskRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_ROWS: Final = 0
"""The default bound of jobs: every row goes through Spark's workers."""
LOCAL_ROWS_VARIABLE: Final = "UPSERT_SPARK_LOCAL_ROWS"
STREAM_LOCAL_ROWS: Final = 250_000
"""The default bound of continuous mode, whose batches are those of a second."""
STREAM_LOCAL_ROWS_VARIABLE: Final = "UPSERT_STREAM_LOCAL_ROWS"
CORES_OF_A_BATCH: Final = 4
"""Cores for which the default bounds of a batch are some seconds of work."""
LOCAL_BYTES: Final = 32 << 20
"""Bytes of files, or of records, that this process holds at least, if it works on any rows."""
TASK_ROWS: Final = 100_000
"""Rows up to which a step is one task: to divide the work costs more than it gains."""
_BYTES_A_ROW: Final = 128
"""A bound of more rows is one of more bytes."""


def local_rows(given: int | None = None) -> int:
    """Return the bound of jobs: the given one, or UPSERT_SPARK_LOCAL_ROWS, or LOCAL_ROWS.

    Raises:
        EndpointError: the variable is not a number of rows.
    """
    return _bound(LOCAL_ROWS_VARIABLE, LOCAL_ROWS) if given is None else given


def stream_local_rows(given: int | None = None) -> int:
    """Return the bound of continuous mode: the given one, or UPSERT_STREAM_LOCAL_ROWS, or STREAM_LOCAL_ROWS.

    Raises:
        EndpointError: the variable is not a number of rows.
    """
    return _bound(STREAM_LOCAL_ROWS_VARIABLE, STREAM_LOCAL_ROWS) if given is None else given


def _bound(variable: str, default: int) -> int:
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    if not text.isdecimal():
        raise EndpointError(f"{variable} is '{text}': give a number of rows, 0 or more, such as {STREAM_LOCAL_ROWS}")
    return int(text)


@dataclass(frozen=True)
class OnDemand:
    """Opens Spark's session for work above the local bound, and for what only Spark computes.

    Attributes:
        open: gives the session, the same each time.
        rows: the local bound: up to so many rows this process works itself; that of jobs if left out.
        size: in bytes, above which Spark does it.
        on_cluster: whether its executors are processes of their own.
        task_rows: up to so many rows a step is one task.
    """

    open: Callable[[], SparkSession]
    rows: int = field(default_factory=local_rows)
    size: int | None = None
    on_cluster: bool = False
    task_rows: int = TASK_ROWS

    @classmethod
    def dividing(cls, session: SparkSession) -> Self:
        """Return what divides every step among the tasks of an open session."""
        on_cluster = not session.sparkContext.master.startswith("local")
        return cls(lambda: session, rows=0, size=-1, on_cluster=on_cluster, task_rows=-1)

    @property
    def local_bytes(self) -> int:
        """Bytes up to which this process does the work."""
        return max(LOCAL_BYTES, self.rows * _BYTES_A_ROW) if self.size is None else self.size

    def is_local(self, rows: int, size: float) -> bool:
        """Return whether this process does work of so many rows and bytes."""
        return rows <= self.rows and size <= self.local_bytes

    @property
    def most_rows(self) -> int:
        """Rows up to which one task does the work of a step, wherever it runs."""
        return max(self.task_rows, self.rows)

    def runner(self, rows: int, size: float) -> TaskRunner | None:
        """Return what runs the one task of a step; None where its work is divided among Spark's tasks."""
        if self.is_local(rows, size):
            return LocalTaskRunner()
        return SparkTaskRunner(self.open) if rows <= self.task_rows and size <= LOCAL_BYTES else None

    def times_a_batch(self, rows: int) -> int:
        """Return how many times as much as on one machine a batch may hold: a commit takes as long for few cores.

        Args:
            rows: what is left to read; a cluster is not asked for what is local.
        """
        if not self.on_cluster or self.is_local(rows, 0):
            return 1
        context = self.open().sparkContext
        return 1 if context.master.startswith("local") else max(1, int(context.defaultParallelism) // CORES_OF_A_BATCH)
