"""Change frames for tests, and what a table holds afterwards by an unmodified PyODPS."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from upsert_platform.core.destination import OPERATION, SEQUENCE, BatchSpan, WriteReport
from upsert_platform.core.types import spark_type
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform_tests.local.maxcompute.server import ServerHandle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Change = tuple[str, tuple[Any, ...]]


def frame(spark: SparkSession, table: MaxComputeTable, changes: Iterable[Change], *, tasks: int = 2) -> DataFrame:
    """A change frame: operation and values in declared order; a delete gives its key and None elsewhere."""
    columns = [f"`{column.name}` {spark_type(column.type)}" for column in table.columns if column.type is not None]
    schema = ", ".join([*columns, f"{OPERATION} STRING", f"{SEQUENCE} BIGINT"])
    rows = [(*values, operation, number) for number, (operation, values) in enumerate(changes)]
    return spark.createDataFrame(rows, schema).coalesce(tasks)


def span(upto: int, *, after: int | None = None, changelog: str = "changelog-1", replaces: bool = False) -> BatchSpan:
    """Batches after `after` (the one before `upto` if None) and up to `upto`; all of them if they replace the table."""
    after = 0 if replaces else upto - 1 if after is None else after
    return BatchSpan(after, upto, changelog, f"run-{upto}", replaces)


def write(
    spark: SparkSession,
    destination: MaxComputeDestination,
    upto: int,
    changes: Iterable[Change],
    *,
    after: int | None = None,
    tasks: int = 2,
    replaces: bool = False,
    repeats: bool = False,
) -> WriteReport:
    """Writes one batch under a lease; refused rows are only in the report."""
    with destination.lease(owner="test", duration=timedelta(minutes=5)) as lease:
        changed = frame(spark, destination.table, changes, tasks=tasks)
        written = replace(span(upto, after=after, replaces=replaces), repeats=repeats)
        return destination.write(changed, span=written, lease=lease, keep_refused=lambda _: None)


def stored(server: ServerHandle, table: MaxComputeTable, columns: str = "*") -> list[tuple[Any, ...]]:
    """The rows of a table, sorted, as PyODPS reads them."""
    odps = server.odps()
    with odps.execute_sql(f"SELECT {columns} FROM {table.target.table}").open_reader(tunnel=True) as reader:
        return sorted((tuple(record.values) for record in reader), key=repr)
