"""A declared PostgreSQL table as a destination of the platform."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.capabilities import AddsColumns, ComparesSchema, HoldsLess, Shares
from upsert_platform.core.destination import BatchSpan, DestinationState, Lease, WriteReport
from upsert_platform.core.errors import DestinationError, UpsertPlatformError
from upsert_platform.postgres.client import Session, connected
from upsert_platform.postgres.control import ControlTable
from upsert_platform.postgres.schema import FoundTable, prepare_table
from upsert_platform.postgres.table import PostgresTable
from upsert_platform.writing.controlled import RowByRow
from upsert_platform.writing.lease import RenewedLease, Terms
from upsert_platform.writing.outcomes import Written

if TYPE_CHECKING:
    from upsert_platform.postgres.reader import HeldRows
    from upsert_platform.postgres.stage import StageStats, StagingTask
    from upsert_platform.writing.refused_output import OpenFile

_LOGGER: Final = logging.getLogger(__name__)
_AGAIN: Final = ("SQLSTATE 40001", "SQLSTATE 40P01")
"""A serialization failure, a deadlock."""


class PostgresDestination(RowByRow[PostgresTable], HoldsLess, ComparesSchema, AddsColumns):
    """Implements `upsert_platform.core.destination.Destination`, with the capabilities that it inherits."""

    kind = "postgres"
    system = "PostgreSQL"
    _control: ControlTable

    def __init__(self, table: PostgresTable) -> None:
        self.name = table.name
        self.columns = table.columns
        self.primary_key = table.primary_key
        self.uri = f"{table.settings.address}/{table.place}"
        self.table = table
        self._settings, self._place = table.settings, str(table.place)
        self._session = Session(table.settings)
        self._control = ControlTable(self._session, table)

    def close(self) -> None:
        """Ends the connection. Idempotent."""
        self._session.close()

    def prepare(self) -> None:
        """Creates the table, or columns that it lacks, where ``auto.create`` is on; compares it with the declaration.

        Raises:
            DestinationError: missing, or different; every difference is named.
            EndpointError: not reachable, or credentials refused.
        """
        self.__dict__["_found"] = prepare_table(self._session, self.table)

    def show_added(self) -> None:
        """From here on, read the table with the columns that the next write adds by ``auto.create``: they are null."""
        if self._settings.auto_create and self._found.columns:
            absent = frozenset(self.table.names) - self._found.columns.keys() - {*self.primary_key}
            self.table = replace(self.table, absent=absent)

    def schema_difference(self) -> str | None:
        """Return the difference between columns and keys and the declared ones; undeclared columns are allowed."""
        differences = FoundTable(self._session, self.table).differences()
        return f"PostgreSQL table {self.table.place}: {differences}" if differences else None

    def unprepared(self) -> str:
        """Return that the table does not exist, or its `schema_difference`."""
        found = FoundTable(self._session, self.table)
        told = found.differences() if found.columns else "it does not exist"
        return f"PostgreSQL table {self.table.place}: {told}" if told else ""

    @cached_property
    def _found(self) -> FoundTable:
        return FoundTable(self._session, self.table)

    def state(self) -> DestinationState:
        """Reads the control row; initial when it, or the control table, or the table of the row, is missing."""
        record, found_id = self._control.read()
        return record.state(found_id or None, f"PostgreSQL table {self.table.place}")

    def forget_applied(self, lease: Lease) -> None:
        """Drops position and verdict from the control row; raises LeaseHeldError when the lease was lost."""
        assert isinstance(lease, RenewedLease)
        lease.change(applied_batch=0, changelog_id="", commit_id="", table_id=0, verdict=None)

    def drop_table(self) -> None:
        """Drops the table; no error where there is none. Raises DestinationError where views hang on it."""
        self._session.rows(f"DROP TABLE IF EXISTS {self.table.place.sql}")
        self.__dict__.pop("_found", None)

    @contextmanager
    def _writing(self, terms: Terms, open_file: OpenFile | None) -> Iterator[tuple[StagingTask, type[StageStats]]]:
        """Stages rows in tables, which are dropped behind the transaction that merges them."""
        from upsert_platform.postgres.stage import StageStats, StagingTask, drop_stages

        write = uuid.uuid4().hex[:8]
        drop_stages(self._session, self.table)
        try:
            yield StagingTask(self.table, terms, open_file, write), StageStats
        finally:
            with suppress(UpsertPlatformError):  # the next holder drops what is left
                drop_stages(self._session, self.table, write=write)

    def _report(self, written: Written[StageStats], *, started: float, seconds: float) -> WriteReport:
        total, times = written.total, {"stage_seconds": seconds, "seconds": time.monotonic() - started}
        metrics = {"bytes": total.bytes, **{name: round(value, 3) for name, value in times.items()}}
        return written.report(upserts=total.upserts, deletes=total.deletes, metrics=metrics)

    def _commit(self, written: Written[StageStats], span: BatchSpan, lease: RenewedLease) -> Written[StageStats]:
        """Merges what tasks staged, with the position and under the lease, in one transaction, which is tried again
        where others were in the way; rows that the server refused are among the results.
        """
        for attempt in range(self.table.settings.max_retries):
            try:
                return self._merged(written, span, lease)
            except DestinationError as error:
                if not any(code in str(error) for code in _AGAIN):
                    raise
                _LOGGER.warning("table '%s': the transaction is tried again: %s", self.name, error)
            time.sleep(0.2 * 2**attempt)
        return self._merged(written, span, lease)

    def _merged(self, written: Written[StageStats], span: BatchSpan, lease: RenewedLease) -> Written[StageStats]:
        from upsert_platform.postgres.stage import Merge

        lease.check()
        with connected(self.table.settings) as connection, connection.transaction():
            # Of a stricter isolation, a renewal of the lease during the merge would make it fail at its end.
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            # A client that is frozen while its transaction is open holds the rows no longer than its lease.
            silence = str(round(lease.seconds * 1000))
            connection.execute("SELECT set_config('idle_in_transaction_session_timeout', %s, true)", (silence,))
            if span.replaces:
                connection.execute(f"DELETE FROM {self.table.place.sql}")
            merge = Merge(connection, self.table, self._found.columns)
            merge.take([part for part in written.parts if part.stage])
            written = written.with_refused(merge.refused, merge.stats)
            written.keep_refused()
            with self._session.within(connection):
                position = {"applied_batch": span.upto, "changelog_id": span.changelog_id, "commit_id": span.commit}
                _, table_id = self._control.read()
                lease.change(**position, run=span.run, table_id=table_id)
        return written

    def _fetching(self) -> Callable[[Any], Any]:
        """Rows of keys, by a join with them in the server."""
        from upsert_platform.postgres.reader import KeyRows

        return KeyRows(self.table, self._found.columns)

    def _shares(self) -> Shares:
        """Rows by ranges of pages."""
        from upsert_platform.postgres.reader import RangeRows, page_ranges

        ranges = page_ranges(self._session, self.table)
        return Shares(len(ranges), RangeRows(self.table, ranges))

    def holding(self) -> HeldRows | None:
        """Return the conversion of change rows to the table's types, or None if each value is held unchanged."""
        from upsert_platform.postgres.reader import HeldRows

        return HeldRows.of(self.table, self._found.columns)
