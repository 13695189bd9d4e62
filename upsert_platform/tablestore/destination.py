"""A declared Tablestore table as a destination of the platform."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from upsert_platform.core.capabilities import (
    MOST_TOLD_KEYS,
    ComparesSchema,
    ExpiresRows,
    ReadsInTasks,
    RowsByKey,
    RowsByShare,
    Shares,
    WritesByMode,
    WritesInTask,
)
from upsert_platform.core.destination import BatchSpan, KeepRefused, Lease, WriteReport, drop_nothing
from upsert_platform.core.task_runner import RowsOfTask
from upsert_platform.tablestore.controlled import ControlledDestination, report_of
from upsert_platform.tablestore.options import InsertMode
from upsert_platform.tablestore.schema import created_at, describe, prepare_table, schema_difference
from upsert_platform.tablestore.table import TablestoreTable
from upsert_platform.writing.lease import RenewedLease
from upsert_platform.writing.outcomes import opener_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_MANY_KEYS: Final = 10_000
"""Keys from which on it is asked how large the table is."""
_SCANNED_BYTES: Final = 512
"""Bytes of a table, per key that is wanted, up to which it is read as a whole: 5,000 rows per request and not 100. A
request for rows is charged with 4 KB for each, one for a range with what it reads."""


class TablestoreDestination(
    ControlledDestination, WritesByMode, ExpiresRows, WritesInTask, ReadsInTasks, ComparesSchema
):
    """Implements `upsert_platform.core.destination.Destination`, with the capabilities that it inherits."""

    def __init__(self, table: TablestoreTable) -> None:
        super().__init__(table.name, table.table_name, table.settings)
        self.table = table
        self.columns = table.columns
        self.primary_key = tuple(column.name for column in table.primary_key)
        deletes = table.settings.delete_mode
        self.skips_nulls = table.settings.insert_mode is InsertMode.UPDATE and not deletes.deletes_columns
        self.keeps_deleted = not deletes.deletes_rows

    def prepare(self) -> None:
        """Creates the table when it is missing and ``auto.create`` is on, compares it with the declaration otherwise.

        The position in the control table belongs to the rows: it is dropped when the table is created.

        Raises:
            DestinationError: missing, or different; every difference is named.
            EndpointError: not reachable, or credentials refused.
        """
        if self.table.settings.auto_create and self._created() is None:
            self._control.forget_position()
        prepare_table(self._client, self.table)
        self._prepared = self._created()

    def schema_difference(self) -> str | None:
        """Return the difference between the table's keys and predefined columns and the declared ones; other columns
        have no type.
        """
        return schema_difference(self._client, self.table)

    def _created(self) -> int | None:
        return created_at(self._client, self.table.table_name)

    def time_to_live(self) -> int | None:
        """That of the table as it is; the declared one counts where a table is created."""
        described = describe(self._client, self.table.table_name)
        seconds = -1 if described is None else int(described.table_options.time_to_live)
        return seconds if seconds > 0 else None

    def write(
        self,
        changes: DataFrame | RowsOfTask,
        *,
        span: BatchSpan,
        lease: Lease,
        keep_refused: KeepRefused = drop_nothing,
    ) -> WriteReport:
        """Applies a change frame, then records the span under the lease's epoch.

        Rows are put and deleted by key, so a replay after a failure converges.

        Raises:
            DestinationError: the write failed for good; nothing is recorded as applied.
            LeaseHeldError: the lease was lost, or ends before the write can.
            RecordError: Tablestore does not take a row, and ``on-error`` is ``fail``.
        """
        from upsert_platform.tablestore.task import TaskStats
        from upsert_platform.tablestore.writer import writing_task

        assert isinstance(lease, RenewedLease)
        lease.check()
        started = time.monotonic()
        task = writing_task(self.table, terms=lease.terms, open_file=opener_of(keep_refused))
        written = self._write_by_tasks(changes, self.table, task, TaskStats, keep=keep_refused)
        written.keep_refused()
        self._record_applied(span, lease)
        return report_of(written, started=started)

    def read(self, spark: SparkSession, *, keys: DataFrame | None = None) -> DataFrame:
        """Rows of the table in declared types: all, by the table's partitions, or those of some keys, 100 at a time.

        Args:
            keys: columns named as the primary key. Duplicates are asked for once.
        """
        from upsert_platform.tablestore.ranges import read_ranges
        from upsert_platform.tablestore.reader import RANGES_DDL, fetching_task, scanning_task

        if keys is not None:
            return self._rows_of_keys(keys, fetching_task(self.table))
        ranges = [(bounds,) for bounds in read_ranges(self.table)]
        return self._rows_of_ranges(spark, ranges, RANGES_DDL, scanning_task(self.table))

    def reads_in_tasks(self, *, since: int, rows: int) -> RowsByKey | RowsByShare:
        """Rows of keys, 100 per request; all rows, by ranges, of a table that has few others."""
        from upsert_platform.tablestore.ranges import measured_ranges
        from upsert_platform.tablestore.reader import RangeRows, fetching_task

        if _MANY_KEYS <= rows <= MOST_TOLD_KEYS:
            ranges, size = measured_ranges(self.table)
            if size <= rows * _SCANNED_BYTES:
                shares = Shares(len(ranges), RangeRows(self.table, tuple(ranges)))
                return RowsByShare(lambda: shares, others=True)
        return RowsByKey(fetching_task(self.table))

    def writes_in_task(self) -> bool:
        """Always: a row is written by itself."""
        return True

    def key_reader(self, *, since: int, most: int) -> Callable[[pa.Table], pa.Table | None]:
        """Rows of keys, 100 per request."""
        from upsert_platform.tablestore.reader import fetching_task

        return self._key_reader(fetching_task(self.table), most)
