"""The common base of destinations in databases: a control record with position, lease and verdict beside the table."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from upsert_platform.core.capabilities import ReadsInTasks, Resets, RowsByKey, RowsByShare, Shares, WritesInTask
from upsert_platform.core.destination import (
    BatchSpan,
    Destination,
    DestinationState,
    KeepRefused,
    Lease,
    RefusedFile,
    Verdict,
    WriteReport,
    drop_nothing,
)
from upsert_platform.core.task_runner import RowsOfTask, RowsOfTasks
from upsert_platform.core.types import spark_type
from upsert_platform.writing.declared import WrittenTable
from upsert_platform.writing.judge import Judge
from upsert_platform.writing.lease import LeaseStore, RenewedLease, Tenure, Terms
from upsert_platform.writing.notices import warn_once
from upsert_platform.writing.options import WrittenSettings
from upsert_platform.writing.outcomes import TaskStats, Written, opener_of, run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    Batches = Iterator[pa.RecordBatch]

_LOGGER: Final = logging.getLogger(__name__)
_Table = TypeVar("_Table", bound="WrittenTable[Any]")


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A control record.

    Attributes:
        table_id: identity of the table that the batches were applied to; 0 if unknown.
        commit: identity of the changelog's commit of the applied batch; empty if unknown.
    """

    tenure: Tenure = field(default_factory=Tenure)
    applied_batch: int = 0
    changelog_id: str = ""
    commit: str = ""
    table_id: int = 0
    verdict: Verdict | None = None

    def state(
        self,
        found_id: int | None,
        what: str,
        *,
        gone: str = "is gone; every batch is written again",
        shown: Callable[[int], str] | None = None,
    ) -> DestinationState:
        """Return the state that the record stands for, the initial one where the table of the batches is not there.

        Args:
            found_id: identity of the table as it is, 0 if unknown; None where there is none.
            what: the table, for `DestinationState.lost`.
            gone: becomes of a table that is not there, as the end of that sentence.
            shown: what an identity tells users; None where it tells them nothing.
        """
        fate = gone if found_id is None else ""
        if self.table_id and found_id and found_id != self.table_id:
            told = f" (created {shown(self.table_id)}, now {shown(found_id)})" if shown else ""
            fate = f"was dropped and made anew{told}; every batch is written again"
        if self.applied_batch and fate:
            known = DestinationState(lost=f"{what}, which held the batches up to {self.applied_batch}, {fate}")
        elif found_id is None:
            known = DestinationState()
        else:
            known = DestinationState(
                self.applied_batch, self.changelog_id, self.verdict, commit=self.commit, table_id=str(found_id or "")
            )
        return self.tenure.shown_in(known)


class Control(LeaseStore):
    """A control record that also keeps the result of the last check."""

    @abstractmethod
    def record_verdict(self, verdict: Verdict) -> None:
        """Keeps a verdict, whoever holds the lease."""

    @abstractmethod
    def swap_verdict(self, old: Verdict | None, new: Verdict) -> bool:
        """Keeps a verdict in the place of another one, and returns whether that was still there."""


class ControlledTable(Destination, Resets):
    """A table with a control record.

    Attributes:
        system: its name, for messages.
    """

    system: ClassVar[str]
    _control: Control
    _settings: WrittenSettings
    _place: str
    """Name of the table in its system."""

    def lease(self, *, owner: str, duration: timedelta) -> AbstractContextManager[Lease]:
        """Takes the table for one writer, renews while open, gives it back at the end.

        Raises:
            LeaseHeldError: someone else has it.
        """
        return RenewedLease(self._control, f"table '{self._place}'", owner=owner, duration=duration)

    def drop_refusal(self) -> str | None:
        """Return why the table is not dropped: nothing would create it again."""
        if self._settings.auto_create:
            return None
        return (
            f"table '{self.name}': 'auto.create' is off, so that nothing would create {self.system} table"
            f" '{self._place}' again; declare 'auto.create' = 'true', or drop and create it with your own tools"
        )

    def record_verdict(self, verdict: Verdict) -> None:
        """Keeps the result of a check beside the applied batch."""
        self._control.record_verdict(verdict)

    def swap_verdict(self, old: Verdict | None, new: Verdict) -> bool:
        """Keeps the result of a check in the place of another one, and returns whether that was still there."""
        return self._control.swap_verdict(old, new)


class RowByRow(ControlledTable, WritesInTask, ReadsInTasks, Generic[_Table]):
    """A table whose rows are written one by one, and found by their keys from any task."""

    table: _Table

    def write(
        self,
        changes: DataFrame | RowsOfTask | RowsOfTasks,
        *,
        span: BatchSpan,
        lease: Lease,
        keep_refused: KeepRefused = drop_nothing,
    ) -> WriteReport:
        """Writes a change frame by tasks, NOT NULL rules applied, then records the span under the lease.

        Rows are put and deleted by key, so a replay after a failure converges.

        Raises:
            DestinationError: the write failed for good; nothing is recorded as applied.
            LeaseHeldError: the lease was lost, or ends before the write can.
            RecordError: the system does not take a row, and ``on-error`` is ``fail``.
        """
        assert isinstance(lease, RenewedLease)
        lease.check()
        started = time.monotonic()
        settings, mask = self.table.settings, self.table.mask
        judge = Judge.of(self.columns, self.primary_key, fails=settings.on_error == "fail", mask=mask)
        with self._writing(lease.terms, opener_of(keep_refused)) as (task, stats):
            written = run_tasks(
                self._dealt(changes),
                task,
                stats,
                what=f"table '{self.name}'",
                keep=keep_refused,
                judge=judge,
                most=settings.max_refused_rows,
                mask=mask,
            )
            seconds = time.monotonic() - started
            written = self._commit(written, span, lease)
        return self._report(written, started=started, seconds=seconds)

    def _dealt(self, changes: DataFrame | RowsOfTask | RowsOfTasks) -> DataFrame | RowsOfTask | RowsOfTasks:
        """A change frame in as many tasks as ``sink.parallelism`` says."""
        tasks = self.table.settings.parallelism
        if tasks is None:
            return changes
        if isinstance(changes, RowsOfTasks):
            return changes.in_shares(tasks)
        if not isinstance(changes, RowsOfTask):
            return changes.repartition(tasks)
        warn_once(
            _LOGGER,
            f"table '{self.name}': 'sink.parallelism' = '{tasks}' has no effect on batches of few rows, which one task"
            " writes; it is the number of Spark's tasks",
        )
        return changes

    @abstractmethod
    def _writing(
        self, terms: Terms, open_file: Callable[[], RefusedFile] | None
    ) -> AbstractContextManager[tuple[Callable[[Any], Any], type[TaskStats]]]:
        """Return, while rows are written, the function for ``mapInArrow`` that writes them, and the kind of its counts.

        Args:
            open_file: opens a file for refused rows; None where the task yields them.
        """

    @abstractmethod
    def _commit(self, written: Written[Any], span: BatchSpan, lease: RenewedLease) -> Written[Any]:
        """Keeps the refused rows of the tasks, and records the span as the holder of the lease.

        Returns:
            The results, with rows that were refused here.
        """

    @abstractmethod
    def _report(self, written: Written[Any], *, started: float, seconds: float) -> WriteReport:
        """Return the report of a write.

        Args:
            started: of the monotonic clock.
            seconds: that the tasks took.
        """

    @abstractmethod
    def _fetching(self) -> Callable[[Any], Any]:
        """Return a function for ``mapInArrow`` from keys to the rows that have them; it can be pickled."""

    @abstractmethod
    def _shares(self) -> Shares:
        """Return the shares in which tasks read all rows."""

    def read(self, spark: SparkSession, *, keys: DataFrame | None = None) -> DataFrame:
        """Rows of the table in declared types: all, a task per share, or those of some keys.

        Args:
            keys: columns named as the primary key. Duplicates are asked for once.
        """
        if keys is not None:
            wanted = keys.select(*[f"`{name}`" for name in self.primary_key]).distinct()
            return wanted.mapInArrow(self._fetching(), self._schema)
        shares = self._shares()
        return spark.range(0, shares.count, 1, shares.count).mapInArrow(shares.read, self._schema)

    @property
    def _schema(self) -> str:
        return ", ".join(f"`{name}` {spark_type(logical)}" for name, logical in self.table.types.items())

    def writes_in_task(self) -> bool:
        """Always."""
        return True

    def writes_in_tasks(self) -> bool:
        """Always."""
        return True

    def reads_in_tasks(self, *, since: int, rows: int) -> RowsByKey | RowsByShare | None:
        """Rows of keys; None where the system holds values in a form of its own."""
        return None if self.holder() else RowsByKey(self._fetching())

    def key_reader(self, *, since: int, most: int) -> Callable[[pa.Table], pa.Table | None]:
        """Rows of keys."""
        return FewRows(self._fetching(), self.table.schema, most)


@dataclass(frozen=True)
class FewRows:
    """Reads the rows of keys, in declared types; None of more keys than `most`."""

    fetch: Callable[[Any], Any]
    schema: pa.Schema
    most: int

    def __call__(self, keys: pa.Table) -> pa.Table | None:
        import pyarrow as pa

        if keys.num_rows > self.most:
            return None
        return pa.Table.from_batches(self.fetch(iter(keys.combine_chunks().to_batches())), schema=self.schema)
