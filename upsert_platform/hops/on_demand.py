"""Spark on demand: what is little is done by this process, and what is more by Spark, whose session opens for it then.

A JVM takes seconds to start and to warm up, and its way to its workers some tenths of a second for each step; a few
thousand rows are read, computed and written by Arrow in less. What this process holds at once is bounded, so that it
never follows the size of a topic or of a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LITTLE_ROWS: Final = 250_000
"""Rows, or offsets, from which on Spark's workers are worth their way."""
CORES_OF_A_BATCH: Final = 4
"""Cores for which the default bounds of a batch are some seconds of work."""
LITTLE_BYTES: Final = 32 << 20
"""Bytes of files, or of records, from which on they are."""


@dataclass(frozen=True)
class OnDemand:
    """Opens Spark's session when there is more than little to do, or what only Spark computes.

    Attributes:
        open: gives the session, the same each time.
        rows: above which Spark does it.
        size: in bytes, above which Spark does it.
        on_cluster: whether its executors are processes of their own.
    """

    open: Callable[[], SparkSession]
    rows: int = LITTLE_ROWS
    size: int = LITTLE_BYTES
    on_cluster: bool = False

    def is_little(self, rows: int, size: float) -> bool:
        """Whether this process does it."""
        return rows <= self.rows and size <= self.size


def opened(spark: SparkSession | OnDemand) -> SparkSession:
    """The session."""
    return spark.open() if isinstance(spark, OnDemand) else spark


def times_a_batch(spark: SparkSession | OnDemand, rows: int) -> int:
    """How many times as much as on one machine a batch may hold: a commit takes as long for the work of few cores.

    Args:
        rows: what is left to read; a cluster is not asked for what is little.
    """
    if isinstance(spark, OnDemand) and (not spark.on_cluster or spark.is_little(rows, 0)):
        return 1
    context = opened(spark).sparkContext
    return 1 if context.master.startswith("local") else max(1, int(context.defaultParallelism) // CORES_OF_A_BATCH)
