"""A MaxCompute table as a destination: plan, prepare, write and commit, read back. Driver side.

The tasks send rows into sessions that the driver opened (`sending`), the driver records what is to be committed
(`recovery`), commits it, and records that it is applied.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from upsert_platform.core.capabilities import (
    AddsColumns,
    ComparesSchema,
    ExpiresPartitions,
    KeepsOlderRows,
    PacesCommits,
    PartitionLifetimes,
    ReadsInTasks,
    Resets,
    RowsByShare,
    StoresOtherValues,
    WritesInTask,
)
from upsert_platform.core.destination import (
    BatchSpan,
    Destination,
    DestinationState,
    KeepRefused,
    Lease,
    Verdict,
    WriteReport,
    drop_nothing,
)
from upsert_platform.core.errors import DestinationError, LeaseHeldError
from upsert_platform.core.task_runner import RowsOfTask
from upsert_platform.maxcompute.choices import WriteApi
from upsert_platform.maxcompute.client import TableState
from upsert_platform.maxcompute.clients import Clients
from upsert_platform.maxcompute.committing import Committing
from upsert_platform.maxcompute.compaction import compact_partitions, compact_where_due
from upsert_platform.maxcompute.connection import ServiceError, explain
from upsert_platform.maxcompute.control import ControlRecord
from upsert_platform.maxcompute.ddl import (
    compare,
    prepare_table,
    schema_difference,
    truncate_statements,
    unprepared_table,
    with_added,
)
from upsert_platform.maxcompute.kept_version import kept_version
from upsert_platform.maxcompute.lease import ControlLease
from upsert_platform.maxcompute.options import SHORT_INTERVAL
from upsert_platform.maxcompute.recovery import commit_recorded, drop_opened
from upsert_platform.maxcompute.stored import folded_key, stored_value, stores_as_given
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.writing.judge import Judge
from upsert_platform.writing.notices import warn_once

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession


_LOGGER = logging.getLogger(__name__)
_RECOVERY_LEASE = timedelta(seconds=60)
_VERDICT_TRIES = 10
_DAY_SECONDS = 86_400


class MaxComputeDestination(
    Destination,
    KeepsOlderRows,
    StoresOtherValues,
    WritesInTask,
    ReadsInTasks,
    PacesCommits,
    ComparesSchema,
    ExpiresPartitions,
    AddsColumns,
    Resets,
):
    """Implements `upsert_platform.core.destination.Destination` for a declared MaxCompute table."""

    kind = "maxcompute"

    def __init__(self, table: MaxComputeTable) -> None:
        self.table = table
        self.name = table.name
        self.columns = table.columns
        self.primary_key = table.primary_key if table.upserts else ()
        self.least_interval = table.settings.least_interval
        self.places = table.places  # these two, as far as they are known before the table was looked at
        target = table.target
        place = "/".join(part for part in (target.project, target.schema, target.table) if part)
        static = f"?{table.partitions.static_text}" if table.partitions.static else ""
        self.uri = f"maxcompute://{place}{static}"
        self._what = f"table '{table.name}' ({self.uri})"
        self._clients = Clients(table)
        self._client = self._clients.project
        self._control = self._clients.control(label=self.uri)
        self._held: ControlLease | None = None
        self._state: TableState | None = None
        self._shows_added = False
        self._added: frozenset[str] = frozenset()

    def close(self) -> None:
        """Releases clients. Idempotent."""
        self._clients.close()

    def prepare(self) -> None:
        """Creates the table when it is missing and ``auto.create`` is on; compares it with the declaration otherwise.

        Raises:
            DestinationError: missing, or different; every difference is named.
            EndpointError: not reachable, or credentials refused.
        """
        self._know(prepare_table(self._client, self.table))

    def schema_difference(self) -> str | None:
        """Return the difference between the table's columns, keys and partitions and the declared ones."""
        return schema_difference(self._client, self.table)

    def unprepared(self) -> str:
        """Return that the table does not exist, or its `schema_difference`."""
        return unprepared_table(self._client, self.table)

    def partition_lifetimes(self) -> PartitionLifetimes | None:
        """Return those of the table as it is: its lifecycle, which a declared one set when it was created."""
        actual = self._actual()
        if actual.lifecycle is None or not self.table.partitions.columns or self.table.partitions.computed:
            return None
        made = self._client.partitions(self.table.target)
        return PartitionLifetimes(actual.lifecycle * _DAY_SECONDS, made, actual.made)

    def with_partition(self, changes: DataFrame, name: str) -> DataFrame:
        """Return a change frame with the spec of each row's partition."""
        from upsert_platform.maxcompute.partitions import with_spec

        return with_spec(changes, self.table, name)

    def state(self) -> DestinationState:
        """Return the state in the control record; a recorded commit of a dead run is completed first.

        A table that is missing, or was made anew since the last write, has no applied batch.

        Raises:
            EndpointError: no answer, or credentials refused.
            DestinationError: a recorded commit cannot be settled.
        """
        record = self._control.read() if self._held is None else self._held.record
        if self._held is None and record.pending and not record.tenure.held:
            try:
                with self.lease(owner="recovery of a recorded commit", duration=_RECOVERY_LEASE) as lease:
                    record = lease.record
            except LeaseHeldError:
                record = self._control.read()
        if not record.revision and self.table.undeclared_moves:
            _LOGGER.warning("%s is written for the first time: %s", self._what, self.table.undeclared_moves)
        table_id = ""
        if record.revision:
            actual = self._client.table(self.table.target)
            self._note_key(actual)
            if actual is None or not record.describes(actual.table_id):
                record = replace(record, applied_batch=0, changelog_id="", commit="")
            table_id = actual.table_id if actual is not None else ""
        known = DestinationState(
            record.applied_batch,
            record.changelog_id,
            record.last_verdict,
            commit=record.commit,
            table_id=table_id,
        )
        return record.tenure.shown_in(known)

    @contextmanager
    def lease(self, *, owner: str, duration: timedelta) -> Iterator[ControlLease]:
        """Takes the destination for one writer; a commit that a dead one had recorded is finished first.

        Raises:
            LeaseHeldError: someone else has it.
            EndpointError: no answer.
            DestinationError: a recorded commit cannot be settled.
        """
        with ControlLease(self._control, owner=owner, duration=duration, what=self._what) as lease:
            self._settle(lease)
            self._held = lease
            try:
                yield lease
            finally:
                self._held = None

    def _settle(self, lease: ControlLease) -> None:
        """Finishes a recorded commit, or drops it when the table that it was for is no longer there.

        Sessions of a run that died before it had something to commit are dropped.
        """
        pending = lease.record.pending_commit
        if pending is None:
            return
        actual = self._client.table(self.table.target)
        if actual is None or (pending.table_id and actual.table_id and pending.table_id != actual.table_id):
            lease.change(pending="")
            return
        if not pending.rows:
            drop_opened(lease, self.committing(WriteApi(pending.api)))
            return
        reason = commit_recorded(lease, self.committing(WriteApi(pending.api)), self.table)
        if reason is not None:
            _LOGGER.warning("%s: a recorded commit did not happen and is written again: %s", self._what, reason)

    def write(
        self,
        changes: DataFrame | RowsOfTask,
        *,
        span: BatchSpan,
        lease: Lease,
        keep_refused: KeepRefused = drop_nothing,
    ) -> WriteReport:
        """Applies a change frame and records `span.upto` as applied.

        Args:
            changes: the declared columns in order, then `_op` and `_seq`; at most one row per primary key.
            keep_refused: is given every row that the table will not take, before anything is recorded.

        Raises:
            DestinationError: the write failed for good, comes too soon (``commit.min-interval``), or the span does not
                follow what is applied.
            RecordError: a row is refused and ``on-error`` is ``fail``.
            EndpointError: no answer; a commit that was asked for is settled by the next run.
            LeaseHeldError: the lease was lost.
        """
        if not isinstance(lease, ControlLease):
            raise TypeError("the lease must come from this destination")
        if span.replaces and self.table.upserts:
            raise DestinationError(f"{self._what} holds the last value per key, which INSERT OVERWRITE cannot replace")
        if span.replaces and self.table.settings.api is WriteApi.TUNNEL:
            raise DestinationError(f"{self._what}: INSERT OVERWRITE goes through 'write.api' = 'maxstorage' alone")
        if span.replaces and self.table.session_per_task:
            raise DestinationError(
                f"{self._what}: INSERT OVERWRITE replaces rows in one commit; leave 'sink.coordinator.enable' out"
            )
        actual = self._actual()
        if self._is_applied(self._effective(lease.record, actual), span):
            return WriteReport(metrics={"already_applied": 1})
        from upsert_platform.maxcompute.apply import Batch, apply_batch

        if self.table.undeclared_moves:
            warn_once(_LOGGER, f"{self._what}: {self.table.undeclared_moves}")
        for notice in self.table.notices:
            warn_once(_LOGGER, notice)
        if self.table.settings.parallelism is not None and not hasattr(changes, "sparkSession"):
            warn_once(
                _LOGGER,
                f"{self._what}: 'sink.parallelism' = '{self.table.settings.parallelism}' has no effect on batches of"
                " few rows, which one task writes; it is the number of Spark's tasks",
            )
        since = self._since_last_commit(lease.record)
        batch = Batch(
            span=span,
            lease=lease,
            table=self.table,
            actual=actual,
            sending=self._clients.sending(actual, replaces=span.replaces),
            committing=self.committing(self.table.settings.api),
            present=self._present,
            keep_refused=keep_refused,
            truncate=self._truncate,
            judge=Judge.of(self.columns, self.primary_key, fails=self.table.fails, mask=self.table.mask),
        )
        report = apply_batch(changes, batch)
        compacted = compact_where_due(lease, self._client, self.table)
        more: dict[str, int | float | str] = {"compacted_partitions": compacted}
        if since:
            more["seconds_since_last_commit"] = since
        return replace(report, metrics={**report.metrics, **more, **kept_version(self._client, self.table, self._what)})

    def read(self, spark: SparkSession, *, keys: DataFrame | None = None) -> DataFrame:
        """Rows of the table as it is now, in declared types.

        Args:
            keys: only rows with these primary keys. Up to some thousand of them are named to the service, which then
                reads less; more are joined with the whole table.

        Raises:
            DestinationError: the table is missing or differs from the declaration.
            EndpointError: no answer.
        """
        from upsert_platform.maxcompute.read_back import read_table

        actual = self._actual()
        return read_table(spark, self._clients.reading(actual), keys=keys, absent=self._added)

    def show_added(self) -> None:
        """From here on, read the table with the columns that the next write adds, which are null."""
        self._shows_added, self._state = True, None

    def folded_key(self) -> tuple[str, ...]:
        """Primary key columns of which several values are stored as one: several keys may be one row."""
        return folded_key(self.table, self._actual()) if self.primary_key else ()

    def stored_value(self, name: str, value: SparkColumn) -> SparkColumn:
        """Return the value that the table holds for `value` in a declared column; partition columns have their own."""
        return stored_value(self.table, self._actual(), name, value)

    def writes_in_task(self) -> bool:
        """Tables that are kept equal to the last value per key, without partitions or CHAR columns."""
        return self.table.upserts and stores_as_given(self.table, self._actual()) and not self._added

    def key_reader(self, *, since: int, most: int) -> Callable[[pa.Table], pa.Table | None]:
        """Rows of keys that are named to the service."""
        return partial(_rows_of_keys, self.table, self._actual(), most)

    def reads_in_tasks(self, *, since: int, rows: int) -> RowsByShare | None:
        """All rows of a table that stores them as given, by the splits of a session; few keys are named instead."""
        from upsert_platform.maxcompute.read_back import rows_by_share

        reading = self._clients.reading(self._actual())
        return rows_by_share(reading, rows=rows) if self.writes_in_task() else None

    def all_in_tasks(self, *, at_once: int) -> RowsByShare | None:
        """All rows of a table that stores them as given, by the splits of a session."""
        from upsert_platform.maxcompute.read_back import every_row_by_share

        return every_row_by_share(self._clients.reading(self._actual())) if self.writes_in_task() else None

    def compact(self, *, owner: str) -> tuple[str, ...]:
        """Runs a major compaction of what was written since the last one, as the only writer.

        Returns:
            The partitions that were compacted; an empty text is the whole of a table without partitions.

        Raises:
            LeaseHeldError: a run writes the table.
            DestinationError: refused; partitions before are compacted.
            EndpointError: no answer.
        """
        with self.lease(owner=owner, duration=_RECOVERY_LEASE) as lease:
            return compact_partitions(lease, self._client, self.table)

    def forget_applied(self, lease: Lease) -> None:
        """Drops position and verdict from the control record.

        Raises:
            LeaseHeldError: the lease was lost.
        """
        assert isinstance(lease, ControlLease)
        lease.change(applied_batch=0, changelog_id="", commit="", verdict="", table_id="")

    def drop_refusal(self) -> str | None:
        """Return why the table is not dropped: nothing would create it again, or other writers fill its other
        partitions.
        """
        if self.table.partitions.static_text:
            return (
                f"table '{self.name}': 'partition' = '{self.table.partitions.static_text}' is a part of"
                f" {self.table.target}, whose other partitions would go too; drop that partition by SQL"
            )
        if self.table.settings.auto_create:
            return None
        return (
            f"table '{self.name}': 'auto.create' is off, so that nothing would create {self.table.target} again;"
            " declare 'auto.create' = 'true', or drop and create it by SQL"
        )

    def drop_table(self) -> None:
        """Drops the table; no error where there is none.

        Raises:
            EndpointError: no answer, or no right to drop it.
            DestinationError: any other refusal.
        """
        try:
            self._client.execute_sql(f"DROP TABLE IF EXISTS {self.table.target.sql}")
        except ServiceError as error:
            explain(error, self._client.connection, f"dropping {self.table.target}")
        self._state = None

    def record_verdict(self, verdict: Verdict) -> None:
        """Keeps the result of a check beside the applied batch.

        Raises:
            EndpointError: no answer.
            DestinationError: the control record changes too fast.
        """
        self._keep_verdict(verdict, lambda stored: True)

    def last_verdict(self) -> Verdict | None:
        """Return the verdict in the control record, which is read anew."""
        return self._control.read().last_verdict

    def swap_verdict(self, old: Verdict | None, new: Verdict) -> bool:
        """Keeps the result of a check in the place of another one, and returns whether that was still there.

        Raises:
            EndpointError: no answer.
            DestinationError: the control record changes too fast.
        """
        return self._keep_verdict(new, lambda stored: stored == old)

    def _keep_verdict(self, verdict: Verdict, may: Callable[[Verdict | None], bool]) -> bool:
        for _ in range(_VERDICT_TRIES):
            record = self._control.ensure()
            if not may(record.last_verdict):
                return False
            if self._control.swap(record, record.with_verdict(verdict)) is not None:
                return True
        raise DestinationError(
            f"{self._what}: the verdict could not be stored, others keep changing the control record"
        )

    def committing(self, api: WriteApi) -> Committing:
        """Finishes commits that were recorded for an interface.

        Raises:
            EndpointError: the project does not answer.
        """
        return self._clients.committing(api)

    def _truncate(self) -> None:
        """Empties the table, or its static partition: rows that replace it may be none.

        Raises:
            DestinationError: refused.
            EndpointError: no answer.
        """
        try:
            for statement in truncate_statements(self.table):
                self._client.run_sql(statement)
        except ServiceError as error:
            explain(error, self._client.connection, f"emptying {self._what}")

    def _present(self, keys: DataFrame) -> DataFrame:
        from upsert_platform.maxcompute.read_back import read_partitions

        return read_partitions(keys, self._clients.reading(self._actual()))

    def _actual(self) -> TableState:
        if self._state is None:
            try:
                actual = self._client.table(self.table.target)
            except ServiceError as error:
                explain(error, self._client.connection, f"reading {self._what}")
            if actual is None:
                raise DestinationError(f"{self._what} does not exist in MaxCompute")
            if self._shows_added:
                present, actual = actual, with_added(self.table, actual)
                self._added = frozenset(column.name for column in actual.columns[len(present.columns) :])
            differences = compare(self.table, actual)
            if differences:
                raise DestinationError(f"{self._what} does not fit its declaration: {'; '.join(differences)}")
            self._know(actual)
        assert self._state is not None
        return self._state

    def _know(self, actual: TableState) -> None:
        self._state = actual
        self._note_key(actual)

    def _note_key(self, actual: TableState | None) -> None:
        """Rows that are inserted into a table with a key are told apart by it."""
        if actual is not None and actual.primary_key and self.table.primary_key:
            self.primary_key = self.table.primary_key
            self.places = self.table.places_of(actual.primary_key)

    def _since_last_commit(self, record: ControlRecord) -> int:
        """Whole seconds since the last commit; 0 before the first. Waits for the interval that nobody declared.

        Raises:
            DestinationError: fewer than a declared ``commit.min-interval``.
        """
        if not record.committed_at:
            return 0
        settings = self.table.settings
        least = settings.least_interval.total_seconds()
        since = time.time() - record.committed_at / 1000
        if since < least and settings.commit_interval is None:
            _LOGGER.info("%s: waiting %.0f s, so that commits are %.0f s apart", self._what, least - since, least)
            time.sleep(least - max(0.0, since))
            since = least
        if since < least:
            raise DestinationError(
                f"{self._what}: the last commit is {since:.0f} s old, 'commit.min-interval' is {least:.0f} s. Nothing"
                " was written; a later run applies this batch with those that follow"
            )
        if settings.commit_interval is None and least and since < SHORT_INTERVAL.total_seconds():
            _LOGGER.warning(
                "%s: commits %.0f s apart make small files and slow queries; sync every %.0f minutes or less often, or"
                " set 'commit.min-interval'",
                self._what, since, SHORT_INTERVAL.total_seconds() / 60,
            )  # fmt: skip
        return max(1, int(since))

    def _effective(self, record: ControlRecord, actual: TableState) -> ControlRecord:
        if record.describes(actual.table_id):
            return record
        return replace(record, applied_batch=0, changelog_id="", commit="")

    def _is_applied(self, record: ControlRecord, span: BatchSpan) -> bool:
        """Return whether the table holds the span already.

        Raises:
            DestinationError: the span leaves batches out, or would append some twice.
        """
        if not record.changelog_id or record.changelog_id != span.changelog_id:
            return False
        if record.applied_batch >= span.upto and not (span.repeats and self.table.upserts):
            return True
        again = self.table.upserts or span.replaces
        if record.applied_batch < span.after or (record.applied_batch > span.after and not again):
            raise DestinationError(
                f"{self._what} has applied batch {record.applied_batch}, the changes come after batch {span.after}."
                " Nothing was written; run again"
            )
        return False


def _rows_of_keys(table: MaxComputeTable, actual: TableState, most: int, keys: pa.Table) -> pa.Table | None:
    """The rows of few keys; see `rows_of_keys`."""
    from upsert_platform.maxcompute.read_back import rows_of_keys

    with closing(Clients(table)) as clients:
        return rows_of_keys(clients.reading(actual), keys, most=most)
