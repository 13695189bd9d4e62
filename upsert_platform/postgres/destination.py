"""A declared PostgreSQL table as a destination of the platform."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from upsert_platform.capabilities import ComparesSchema, HoldsLess, ReadsInTasks, Resets, RowsByKey, WritesInTask
from upsert_platform.destination import (
    BatchSpan,
    Destination,
    DestinationState,
    KeepRefused,
    KeepsFiles,
    Lease,
    Verdict,
    WriteReport,
    drop_nothing,
)
from upsert_platform.errors import DestinationError, UpsertPlatformError
from upsert_platform.postgres.client import Session, transaction
from upsert_platform.postgres.control import ControlTable
from upsert_platform.postgres.schema import FoundTable, prepare_table, schema_difference
from upsert_platform.postgres.table import PostgresTable
from upsert_platform.task_runner import RowsOfTask
from upsert_platform.types import spark_type
from upsert_platform.writing.judge import Judge
from upsert_platform.writing.lease import RenewedLease
from upsert_platform.writing.notices import warn_once
from upsert_platform.writing.outcomes import Written, opener_of, run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from upsert_platform.postgres.merge import Merge
    from upsert_platform.postgres.stage import StageStats
    from upsert_platform.postgres.types import Found

_LOGGER: Final = logging.getLogger(__name__)


class PostgresDestination(Destination, HoldsLess, WritesInTask, ReadsInTasks, ComparesSchema, Resets):
    """Implements `upsert_platform.destination.Destination`, with the capabilities that it inherits."""

    kind = "postgres"

    def __init__(self, table: PostgresTable) -> None:
        self.name = table.name
        self.columns = table.columns
        self.primary_key = table.primary_key
        self.uri = f"{table.settings.address}/{table.place}"
        self.table = table
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
        prepare_table(self._session, self.table)
        self.__dict__.pop("_found", None)

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
        record, table_id = self._control.read()
        known = DestinationState(record.applied_batch, record.changelog_id, record.verdict, commit=record.commit)
        if record.applied_batch and record.table_id != table_id:
            how = "was dropped and made anew" if table_id else "is gone"
            known = DestinationState(
                lost=f"PostgreSQL table {self.table.place}, which held the batches up to {record.applied_batch},"
                f" {how}; every batch is written again"
            )
        return record.tenure.shown_in(known if table_id else replace(known, applied_batch=0, verdict=None))

    def lease(self, *, owner: str, duration: timedelta) -> AbstractContextManager[Lease]:
        """Takes the table for one writer, renews while open, gives it back at the end.

        Raises:
            LeaseHeldError: someone else has it.
        """
        return RenewedLease(self._control, f"table '{self.table.place}'", owner=owner, duration=duration)

    def forget_applied(self, lease: Lease) -> None:
        """Drops position and verdict from the control row.

        Raises:
            LeaseHeldError: the lease was lost.
        """
        assert isinstance(lease, RenewedLease)
        lease.change(applied_batch=0, changelog_id="", commit_id="", table_id=0, verdict=None)

    def drop_refusal(self) -> str | None:
        """Return why the table is not dropped: nothing would create it again."""
        if self.table.settings.auto_create:
            return None
        return (
            f"table '{self.name}': 'auto.create' is off, so that nothing would create {self.table.place} again; declare"
            " 'auto.create' = 'true', or drop and create it by SQL"
        )

    def drop_table(self) -> None:
        """Drops the table; no error where there is none.

        Raises:
            EndpointError: not reachable, or credentials refused.
            DestinationError: views hang on it, or any other refusal.
        """
        self._session.rows(f"DROP TABLE IF EXISTS {self.table.place.sql}")
        self.__dict__.pop("_found", None)

    def record_verdict(self, verdict: Verdict) -> None:
        """Keeps the result of a check beside the applied batch."""
        self._control.record_verdict(verdict)

    def write(
        self,
        changes: DataFrame | pa.Table | RowsOfTask,
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
        import pyarrow as pa

        from upsert_platform.postgres.stage import StageStats, drop_stages, staging_task

        assert isinstance(lease, RenewedLease)
        started = time.monotonic()
        table, settings = self.table, self.table.settings
        lease.check()
        drop_stages(self._session, table)
        if settings.parallelism is not None and not isinstance(changes, (pa.Table, RowsOfTask)):
            changes = changes.repartition(settings.parallelism)
        elif settings.parallelism is not None:
            warn_once(
                _LOGGER,
                f"table '{self.name}': 'sink.parallelism' = '{settings.parallelism}' has no effect on batches of few"
                " rows, which one task writes; it is the number of Spark's tasks",
            )
        try:
            written = run_tasks(
                changes,
                staging_task(table, terms=lease.terms, open_file=opener_of(keep_refused)),
                StageStats,
                what=f"table '{self.name}'",
                keep=keep_refused,
                judge=Judge.of(self.columns, self.primary_key, fails=settings.on_error == "fail", mask=table.mask),
                most=settings.max_refused_rows,
                mask=table.mask,
            )
            staged = time.monotonic()
            written, merge = self._merged(written, span, lease)
        except BaseException:
            with suppress(UpsertPlatformError):  # the next holder drops what is left
                drop_stages(self._session, table)
            raise
        total = written.total
        metrics = {
            "bytes": total.bytes,
            "stage_seconds": round(staged - started, 3),
            "seconds": round(time.monotonic() - started, 3),
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

        lease.check()
        # A client that is frozen while its transaction is open holds the rows no longer than its lease.
        with transaction(self.table.settings, seconds=lease.seconds) as connection:
            merge = Merge(connection, self.table, self._found)
            if span.replaces:
                merge.empty()
            parts = [part for part in written.parts if part.stage]
            merge.take([part.stage for part in parts], deletes=any(part.deletes for part in parts))
            written = _with_refused(written, merge)
            written.keep_refused()
            with self._control.within(connection):
                _, table_id = self._control.read()
                lease.change(
                    applied_batch=span.upto,
                    changelog_id=span.changelog_id,
                    commit_id=span.commit,
                    run=span.run,
                    table_id=table_id,
                )
        return written, merge

    def read(self, spark: SparkSession, *, keys: DataFrame | None = None) -> DataFrame:
        """Rows of the table in declared types: all, by ranges of pages, or those of some keys.

        Args:
            keys: columns named as the primary key. Duplicates are asked for once.
        """
        from upsert_platform.postgres.reader import RANGES_DDL, KeyRows, RangeRows, page_ranges

        pairs = zip(self.table.names, self.table.types, strict=True)
        schema = ", ".join(f"`{name}` {spark_type(logical)}" for name, logical in pairs)
        if keys is not None:
            wanted = keys.select(*[f"`{name}`" for name in self.primary_key]).distinct()
            return wanted.mapInArrow(KeyRows(self.table, self._types), schema)
        ranges = page_ranges(self._session, self.table)
        frame = spark.createDataFrame(ranges, RANGES_DDL).repartition(len(ranges))
        return frame.mapInArrow(RangeRows(self.table), schema)

    def reads_in_tasks(self, *, since: int, rows: int) -> RowsByKey | None:
        """Rows of keys, by a join with them in the server; None where the server holds values in a form of its own."""
        from upsert_platform.postgres.reader import KeyRows

        return None if self.holder() else RowsByKey(KeyRows(self.table, self._types))

    def writes_in_task(self) -> bool:
        """Always: a row is written by itself."""
        return True

    def key_reader(self, *, since: int, most: int) -> Callable[[pa.Table], pa.Table | None]:
        """Rows of keys, by a join with them in the server."""
        from upsert_platform.postgres.reader import rows_of_keys

        return partial(rows_of_keys, self.table, self._types, most)

    def holder(self) -> Callable[[pa.Table], pa.Table] | None:
        """Return the conversion of change rows to the table's types, or None if each value is held unchanged."""
        from upsert_platform.postgres.held import HeldRows, changed_columns

        return HeldRows(self.table, self._types) if changed_columns(self.table, self._types) else None

    def held(self, changes: DataFrame) -> DataFrame:
        """A change frame with values as the table's types hold them."""
        from upsert_platform.postgres.held import HeldRows

        if self.holder() is None:
            return changes
        return changes.mapInArrow(HeldRows(self.table, self._types).in_batches, changes.schema)


def _with_refused(written: Written[StageStats], merge: Merge) -> Written[StageStats]:
    """Return the results of the tasks with the rows that were rejected at the end."""
    from upsert_platform.postgres.stage import StageStats

    if not merge.refused:
        return written
    parts = (*written.parts, StageStats(refused=len(merge.refused)))
    if not isinstance(written.keep, KeepsFiles):
        return replace(written, parts=parts, rows=(*written.rows, *merge.refused))
    file = written.keep.open_file()
    try:
        file.write(merge.refused)
        name = file.close()
    finally:
        file.discard()
    assert name is not None
    return replace(written, parts=parts, files=(*written.files, name))
