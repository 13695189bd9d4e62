"""A declared PostgreSQL table as a destination of the platform."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from upsert_platform.core.capabilities import ComparesSchema, HoldsLess, ReadsInTasks, RowsByKey, WritesInTask
from upsert_platform.core.destination import (
    BatchSpan,
    DestinationState,
    KeepRefused,
    Lease,
    WriteReport,
    drop_nothing,
)
from upsert_platform.core.errors import DestinationError, UpsertPlatformError
from upsert_platform.core.task_runner import RowsOfTask
from upsert_platform.postgres.client import Session, transaction
from upsert_platform.postgres.control import ControlTable
from upsert_platform.postgres.schema import FoundTable, prepare_table, schema_difference
from upsert_platform.postgres.table import PostgresTable
from upsert_platform.writing.controlled import ControlledTable
from upsert_platform.writing.lease import RenewedLease
from upsert_platform.writing.outcomes import Written, opener_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from upsert_platform.postgres.merge import Merge
    from upsert_platform.postgres.stage import StageStats
    from upsert_platform.postgres.types import Found

_LOGGER: Final = logging.getLogger(__name__)


class PostgresDestination(ControlledTable, HoldsLess, WritesInTask, ReadsInTasks, ComparesSchema):
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

    def schema_difference(self) -> str | None:
        """Return the difference between columns and keys and the declared ones; undeclared columns are allowed."""
        return schema_difference(self._session, self.table)

    @cached_property
    def _found(self) -> FoundTable:
        return FoundTable(self._session, self.table)

    @property
    def _types(self) -> dict[str, Found]:
        return self._found.columns

    def state(self) -> DestinationState:
        """Reads the control row; initial when it, or the control table, or the table of the row, is missing."""
        record = self._control.read()
        known = DestinationState(record.applied_batch, record.changelog_id, record.verdict, commit=record.commit)
        if record.applied_batch and record.table_id != record.found_id:
            how = "was dropped and made anew" if record.found_id else "is gone"
            known = DestinationState(
                lost=f"PostgreSQL table {self.table.place}, which held the batches up to {record.applied_batch},"
                f" {how}; every batch is written again"
            )
        there = known if record.found_id else replace(known, applied_batch=0, verdict=None)
        return record.tenure.shown_in(there)

    def forget_applied(self, lease: Lease) -> None:
        """Drops position and verdict from the control row; raises LeaseHeldError when the lease was lost."""
        assert isinstance(lease, RenewedLease)
        lease.change(applied_batch=0, changelog_id="", commit_id="", table_id=0, verdict=None)

    def drop_table(self) -> None:
        """Drops the table; no error where there is none. Raises DestinationError where views hang on it."""
        self._session.rows(f"DROP TABLE IF EXISTS {self.table.place.sql}")
        self.__dict__.pop("_found", None)

    def write(
        self,
        changes: DataFrame | RowsOfTask,
        *,
        span: BatchSpan,
        lease: Lease,
        keep_refused: KeepRefused = drop_nothing,
    ) -> WriteReport:
        """Stages a change frame, then merges it, with the position and under the lease, in one transaction.

        Raises:
            DestinationError: the write failed for good; nothing is recorded as applied.
            LeaseHeldError: the lease was lost, or ends before the write can.
            RecordError: PostgreSQL does not take a row, and ``on-error`` is ``fail``.
        """
        from upsert_platform.postgres.stage import StageStats, drop_stages, staging_task

        assert isinstance(lease, RenewedLease)
        started = time.monotonic()
        lease.check()
        drop_stages(self._session, self.table)
        try:
            task = staging_task(self.table, terms=lease.terms, open_file=opener_of(keep_refused))
            written = self._write_by_tasks(changes, self.table, task, StageStats, keep=keep_refused)
            staged = time.monotonic()
            written, merge = self._merged(written, span, lease)
        finally:
            with suppress(UpsertPlatformError):  # the next holder drops what is left
                drop_stages(self._session, self.table)
        total, ended = written.total, time.monotonic()
        metrics = {
            "bytes": total.bytes,
            "stage_seconds": round(staged - started, 3),
            "seconds": round(ended - started, 3),
        }
        upserts, deletes = total.upserts - merge.upserts, total.deletes - merge.deletes
        return written.report(upserts=upserts, deletes=deletes, metrics=metrics)

    def _merged(
        self, written: Written[StageStats], span: BatchSpan, lease: RenewedLease
    ) -> tuple[Written[StageStats], Merge]:
        """Merges what tasks staged; tried again where others were in the way."""
        from upsert_platform.postgres.merge import AGAIN

        attempt = 0
        while True:
            try:
                return self._merged_once(written, span, lease)
            except DestinationError as error:
                passing = any(f"SQLSTATE {code}" in str(error) for code in AGAIN)
                if not passing or attempt >= self.table.settings.max_retries:
                    raise
                attempt += 1
                _LOGGER.warning("table '%s': the transaction is tried again: %s", self.name, error)
                time.sleep(0.1 * 2**attempt)

    def _merged_once(
        self, written: Written[StageStats], span: BatchSpan, lease: RenewedLease
    ) -> tuple[Written[StageStats], Merge]:
        from upsert_platform.postgres.merge import Merge
        from upsert_platform.postgres.stage import StageStats

        lease.check()
        # A client that is frozen while its transaction is open holds the rows no longer than its lease.
        with transaction(self.table.settings, seconds=lease.seconds) as connection:
            merge = Merge(connection, self.table, self._found)
            if span.replaces:
                merge.empty()
            parts = [part for part in written.parts if part.stage]
            merge.take([part.stage for part in parts], deletes=any(part.deletes for part in parts))
            written = written.with_refused(merge.refused, StageStats(refused=len(merge.refused)))
            written.keep_refused()
            with self._control.within(connection):
                position = {"applied_batch": span.upto, "changelog_id": span.changelog_id, "commit_id": span.commit}
                lease.change(**position, run=span.run, table_id=self._control.read().found_id)
        return written, merge

    def read(self, spark: SparkSession, *, keys: DataFrame | None = None) -> DataFrame:
        """Rows of the table in declared types: all, by ranges of pages, or those of some keys.

        Args:
            keys: columns named as the primary key. Duplicates are asked for once.
        """
        from upsert_platform.postgres.reader import RANGES_DDL, KeyRows, RangeRows, page_ranges

        if keys is not None:
            return self._rows_of_keys(keys, KeyRows(self.table, self._types))
        return self._rows_of_ranges(spark, page_ranges(self._session, self.table), RANGES_DDL, RangeRows(self.table))

    def reads_in_tasks(self, *, since: int, rows: int) -> RowsByKey | None:
        """Rows of keys, by a join with them in the server; None where the server holds values in a form of its own."""
        from upsert_platform.postgres.reader import KeyRows

        return None if self.holder() else RowsByKey(KeyRows(self.table, self._types))

    def writes_in_task(self) -> bool:
        """Always: a row is written by itself."""
        return True

    def key_reader(self, *, since: int, most: int) -> Callable[[pa.Table], pa.Table | None]:
        """Rows of keys, by a join with them in the server."""
        from upsert_platform.postgres.reader import KeyRows

        return self._key_reader(KeyRows(self.table, self._types), most)

    def holder(self) -> Callable[[pa.Table], pa.Table] | None:
        """Return the conversion of change rows to the table's types, or None if each value is held unchanged."""
        from upsert_platform.postgres.reader import HeldRows, changed_columns

        return HeldRows(self.table, self._types) if changed_columns(self.table, self._types) else None

    def held(self, changes: DataFrame) -> DataFrame:
        """A change frame with values as the table's types hold them."""
        from upsert_platform.postgres.reader import HeldRows

        return (
            changes.mapInArrow(HeldRows(self.table, self._types).in_batches, changes.schema)
            if self.holder()
            else changes
        )
