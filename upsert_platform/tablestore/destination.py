"""A declared Tablestore table as a destination of the platform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.capabilities import (
    MOST_TOLD_KEYS,
    ComparesSchema,
    ExpiresRows,
    RowsByKey,
    RowsByShare,
    Shares,
    WritesByMode,
)
from upsert_platform.core.destination import BatchSpan, WriteReport
from upsert_platform.tablestore.controlled import ControlledDestination, report_of
from upsert_platform.tablestore.options import InsertMode
from upsert_platform.tablestore.schema import created_at, describe, difference_of, prepare_table, schema_difference
from upsert_platform.tablestore.table import TablestoreTable
from upsert_platform.writing.controlled import RowByRow
from upsert_platform.writing.lease import RenewedLease, Terms
from upsert_platform.writing.outcomes import Written

if TYPE_CHECKING:
    from upsert_platform.writing.refused_output import OpenFile

_MANY_KEYS: Final = 10_000
"""Keys from which on it is asked how large the table is."""
_SCANNED_BYTES: Final = 512
"""Bytes of a table, per key that is wanted, up to which it is read as a whole: 5,000 rows per request and not 100. A
request for rows is charged with 4 KB for each, one for a range with what it reads."""


class TablestoreDestination(
    ControlledDestination, RowByRow[TablestoreTable], WritesByMode, ExpiresRows, ComparesSchema
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
        there = prepare_table(self._client, self.table, before_create=self._control.forget_position)
        self._prepared = self._created() if there is None else there.created

    def schema_difference(self) -> str | None:
        """Return the difference between the table's keys and predefined columns and the declared ones; other columns
        have no type.
        """
        return schema_difference(self._client, self.table)

    def unprepared(self) -> str:
        """Return that the table does not exist, or its `schema_difference`."""
        described = describe(self._client, self.table.table_name)
        if described is None:
            return f"Tablestore table '{self.table.table_name}' does not exist"
        return difference_of(described, self.table) or ""

    def _created(self) -> int | None:
        return created_at(self._client, self.table.table_name)

    def time_to_live(self) -> int | None:
        """That of the table as it is; the declared one counts where a table is created."""
        described = describe(self._client, self.table.table_name)
        seconds = -1 if described is None else int(described.table_options.time_to_live)
        return seconds if seconds > 0 else None

    def _writing(self, terms: Terms, open_file: OpenFile | None) -> AbstractContextManager[Any]:
        from upsert_platform.tablestore.task import TaskStats
        from upsert_platform.tablestore.writer import writing_task

        return nullcontext((writing_task(self.table, terms=terms, open_file=open_file), TaskStats))

    def _commit(self, written: Written[Any], span: BatchSpan, lease: RenewedLease) -> Written[Any]:
        """Records the span under the lease's epoch."""
        written.keep_refused()
        self._record_applied(span, lease)
        return written

    def _report(self, written: Written[Any], *, started: float, seconds: float) -> WriteReport:
        return report_of(written, started=started)

    def _fetching(self) -> Callable[[Any], Any]:
        from upsert_platform.tablestore.reader import fetching_task

        return fetching_task(self.table)

    def _shares(self, ranges: Sequence[str] | None = None) -> Shares:
        """Rows by ranges, the table's partitions unless others are given."""
        from upsert_platform.tablestore.ranges import read_ranges
        from upsert_platform.tablestore.reader import RangeRows

        found = tuple(ranges or read_ranges(self.table))
        return Shares(len(found), RangeRows(self.table, found))

    def reads_in_tasks(self, *, since: int, rows: int) -> RowsByKey | RowsByShare | None:
        """Rows of keys, 100 per request; all rows, by ranges, of a table that has few others."""
        from upsert_platform.tablestore.ranges import measured_ranges

        if _MANY_KEYS <= rows <= MOST_TOLD_KEYS:
            ranges, size = measured_ranges(self.table)
            if size <= rows * _SCANNED_BYTES:
                return RowsByShare(partial(self._shares, ranges), others=True)
        return super().reads_in_tasks(since=since, rows=rows)

    def all_in_tasks(self, *, at_once: int) -> RowsByShare | None:
        """All rows, by ranges."""
        return None if self.holder() else RowsByShare(self._shares, others=True)
