"""A table of PostgreSQL as a source: tasks read ranges of pages under one snapshot, which the server exports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from upsert_platform.changelog.data_files import MANIFEST, DataFile, collect_files
from upsert_platform.changelog.snapshot_source import SnapshotPart, SnapshotSource, TableStream
from upsert_platform.core.task_runner import TaskRunner
from upsert_platform.postgres.client import Session, connected
from upsert_platform.postgres.schema import prepare_table
from upsert_platform.postgres.table import PostgresTable
from upsert_platform.writing.outcomes import raised_by_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class PostgresSource(SnapshotSource):
    """Reads a declared table with ``'connector' = 'postgres'``."""

    checked: PostgresTable

    @property
    def stream(self) -> str:
        """Schema and name of the table."""
        return str(self.checked.place)

    @property
    def interval(self) -> timedelta | None:
        """``scan.snapshot.interval``."""
        return self.checked.settings.snapshot_interval

    def discover(self) -> Sequence[TableStream]:
        """The table. Raises DestinationError where it is missing, or differs from the declaration."""
        with closing(Session(self.checked.settings)) as session:
            prepare_table(session, self.checked, written=False)
            sql = "SELECT oid::text, greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = to_regclass(%s)"
            ((oid, rows),) = session.rows(sql, (self.checked.place.sql,))
        return (TableStream.of(self.stream, oid, rows),)

    def take(self, spark: Callable[[], SparkSession], part: SnapshotPart, runner: TaskRunner | None) -> list[DataFile]:
        """One range is read by one task; several by Spark's, in transactions that see the same snapshot."""
        import pyarrow as pa

        from upsert_platform.postgres.reader import RANGES_DDL, RangeRows, page_ranges

        with closing(Session(self.checked.settings)) as session:
            prepare_table(session, self.checked, written=False)
            ranges = page_ranges(session, self.checked)
        if len(ranges) == 1:
            ((first, last),) = ranges
            one = pa.RecordBatch.from_pydict({"first": [first], "last": [last]})
            task = partial(part.files, RangeRows(self.checked), one)
            return task() if runner is None else runner.call(task, what=f"read {self.stream}")
        with connected(self.checked.settings) as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            ((snapshot,),) = connection.execute("SELECT pg_export_snapshot()").fetchall()
            read = partial(part.manifests, RangeRows(self.checked, snapshot))
            frame = spark().createDataFrame(ranges, RANGES_DDL).repartition(len(ranges))
            with raised_by_tasks():
                return collect_files(frame.mapInArrow(read, MANIFEST))
