"""A table of PostgreSQL as a source: tasks read ranges of pages under one snapshot, which the server exports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.changelog.data_files import DataFile
from upsert_platform.changelog.snapshot_source import SnapshotPart, SnapshotSource, TableStream
from upsert_platform.core.capabilities import Shares
from upsert_platform.core.task_runner import TaskRunner
from upsert_platform.postgres.client import Session, connected
from upsert_platform.postgres.schema import prepare_table
from upsert_platform.postgres.table import PostgresTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class PostgresSource(SnapshotSource):
    """Reads a declared table with ``'connector' = 'postgres'``."""

    checked: PostgresTable

    def discover(self) -> Sequence[TableStream]:
        """The table. Raises DestinationError where it is missing, or differs from the declaration."""
        with closing(Session(self.checked.settings)) as session:
            prepare_table(session, self.checked, written=False)
            sql = "SELECT oid::text, greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = to_regclass(%s)"
            ((oid, rows),) = session.rows(sql, (self.checked.place.sql,))
        return (TableStream.of(self.stream, oid, rows),)

    def take(self, spark: Callable[[], SparkSession], part: SnapshotPart, runner: TaskRunner | None) -> list[DataFile]:
        """One range is read by one task; several by Spark's, in transactions that see the same snapshot."""
        from upsert_platform.postgres.reader import RangeRows, page_ranges

        with closing(Session(self.checked.settings)) as session:
            prepare_table(session, self.checked, written=False)
            ranges = page_ranges(session, self.checked)
        if len(ranges) == 1:
            return part.files_by_one_task(Shares(1, RangeRows(self.checked, ranges)), runner)
        with connected(self.checked.settings) as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            ((snapshot,),) = connection.execute("SELECT pg_export_snapshot()").fetchall()
            return part.files_by_tasks(spark(), Shares(len(ranges), RangeRows(self.checked, ranges, snapshot)))
