"""The protocol of a destination table: plan, prepare, write and commit, read back.

Connectors implement `Destination`; the graph knows nothing else of them. Methods take or return Spark DataFrames only
where Spark does the work; everything else works without a JVM.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol, Self

from upsert_platform.core.errors import RecordError
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.model import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from upsert_platform.core.task_runner import RowsOfTask

OPERATION: Final = "_op"
"""Column of a change frame: ``U`` puts the row, ``D`` deletes the row of its key (other columns are then null)."""
OPERATION_UPSERT: Final = "U"
OPERATION_DELETE: Final = "D"
SEQUENCE: Final = "_seq"
"""BIGINT column of a change frame that orders the versions of a key: a later batch has a greater one."""
BEFORE: Final = internal("before")
"""Column of a change frame for destinations that tell what rows were (`capabilities.TellsBefore`): the declared columns
before the change, as a struct; null of a row that was not there."""
FAILED: Final = internal("failed")
"""Column that a change frame has on its way: why a row could not be computed, else null. Destinations do not see it."""
STATUS: Final = internal("status")
"""Column of compared rows: how they differ (`changelog/compared_rows.py`), null where they do not."""
WANTED: Final = internal("wanted")
"""Whether a destination has to have an expected row; null of a row that is found and not expected."""
GONE: Final = internal("gone")
"""Whether a destination may have let go of an expected row's partition since the row was written."""
FOUND: Final = internal("found")
"""Whether a destination has a row of a compared key."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the last check of a destination, kept in the destination.

    Attributes:
        batch: the applied batch that was checked.
        complete: whether everything was compared (`verify`), not only a batch's keys and a sample.
        changelog_id: identity of the changelog that the batch belongs to; empty in verdicts of earlier versions.
        table_id: of the table that was checked, as `DestinationState` has it.
    """

    batch: int
    passed: bool
    complete: bool
    at: datetime
    detail: str = ""
    changelog_id: str = ""
    table_id: str = ""

    def to_json(self) -> str:
        """The form that a control record keeps."""
        return json.dumps({**asdict(self), "at": self.at.astimezone(UTC).isoformat()}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | None) -> Self | None:
        """The inverse of to_json; None of no text."""
        data = json.loads(text) if text else None
        return cls(**{**data, "at": datetime.fromisoformat(data["at"])}) if data else None


@dataclass(frozen=True, slots=True)
class DestinationState:
    """The state of the platform's writes that a destination stores.

    Attributes:
        applied_batch: number of the last changelog batch that is wholly in the table; 0 before the first.
        changelog_id: identity of the changelog that those numbers belong to; empty before the first write.
        last_verdict: of the last check of a table of this name; see `verdict`.
        holder: who holds the lease, when it has not expired; for messages.
        lost: why the table does not hold what was applied (it is gone, or was made anew), as a sentence; the applied
            batch is 0 then, so that all is written again. Empty when nothing is lost.
        commit: identity of the changelog's commit of `applied_batch` (`Head.run`): another commit has that number in a
            changelog that was restored from an older copy. Empty where an earlier version of the platform wrote last.
        begun: changelog, last batch and its commit of a write that broke off when a part of its rows may be committed.
        table_id: identity of the table that is there: one that was made anew has another. Empty where its system tells
            none.
    """

    applied_batch: int = 0
    changelog_id: str = ""
    last_verdict: Verdict | None = None
    holder: str | None = None
    lease_expires: datetime | None = None
    lost: str = ""
    commit: str = ""
    begun: tuple[str, int, str] | None = None
    table_id: str = ""

    @property
    def verdict(self) -> Verdict | None:
        """The last verdict, if it is of this table and of batches that it holds; None where nobody has looked at them.

        One that names no changelog may be of any table, so it does not pass this one; that rows differ stays until all
        of them are compared.
        """
        last = self.last_verdict
        if last is None or last.batch > self.applied_batch:
            return None
        if not last.changelog_id:
            return None if last.passed else last
        same = (last.changelog_id, last.table_id) == (self.changelog_id, self.table_id)
        return last if same else None


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """Changelog batches after `after` and up to `upto`, written as one.

    Attributes:
        changelog_id: stored with the position, so that a rebuilt changelog is noticed.
        commit: identity of the changelog's commit of `upto`, stored with the position as well, so that a changelog that
            was restored from an older copy is noticed; empty where there is no changelog.
        run: name of the run that writes, for messages and recovery.
        replaces: the rows take the place of all that the destination holds (``INSERT OVERWRITE``); `after` is 0 then.
        repeats: rows of batches that are applied are written once more, as they are by now; `after` equals `upto` then,
            and the position stays.
    """

    after: int
    upto: int
    changelog_id: str
    run: str
    replaces: bool = False
    repeats: bool = False
    commit: str = ""


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that the destination refuses for good (a limit, a bad name); it goes to quarantine, never lost.

    Attributes:
        key: primary key columns, as text.
        row: the row as JSON text.
    """

    key: str
    row: str
    reason: str


@dataclass(frozen=True, slots=True)
class WriteReport:
    """The result of one write.

    Attributes:
        upserts: rows put.
        deletes: delete operations sent.
        refused: rows that the destination will not take, with the reason (bounded by the writer; see refused_count).
        metrics: further numbers for asset metadata (requests, retries, throttled, bytes, seconds).
    """

    upserts: int = 0
    deletes: int = 0
    refused_count: int = 0
    refused: tuple[RefusedRow, ...] = ()
    metrics: Mapping[str, int | float | str] = field(default_factory=dict)


KeepRefused = Callable[[Sequence[RefusedRow]], None]
"""Puts refused rows where they are not lost; called before a write is recorded as applied."""


class RefusedFile(Protocol):
    """A file of refused rows, which a task writes."""

    def write(self, rows: Sequence[RefusedRow]) -> None:
        """Adds rows; holds few of them in memory."""

    def close(self) -> str | None:
        """Ends the file and names it, for `KeepsFiles`; None when it has no rows."""

    def discard(self) -> None:
        """Gives the file up. Idempotent, and harmless after `close`."""


class CountsRows(Protocol):
    """Takes the count of a writing task."""

    def __call__(self, rows: int, *, ended: bool = False) -> None:
        """Takes the rows that are done by now; may be called for every block of rows."""


class Progress(Protocol):
    """Progress of the tasks of a write, reported while they run."""

    @property
    def counter(self) -> Callable[[int], CountsRows]:
        """Opens what takes the count of a task, given its place among the tasks; picklable."""

    def watched(self) -> AbstractContextManager[None]:
        """Report the counts, in the driver, until the context ends."""


class KeepsFiles(ABC):
    """A `KeepRefused` that also takes refused rows as files, so that nobody has to hold all of them at once.

    Attributes:
        progress: takes the counts of the tasks, where somebody wants to know them.
    """

    progress: Progress | None = None

    @property
    @abstractmethod
    def open_file(self) -> Callable[[], RefusedFile]:
        """Opens a file, in a task: picklable."""

    @abstractmethod
    def rows_of(self, files: Sequence[str]) -> Iterator[list[RefusedRow]]:
        """The rows of files, a few megabytes at a time."""

    @abstractmethod
    def keep_files(self, files: Sequence[str]) -> None:
        """As `KeepRefused`, of all rows of these files."""

    @abstractmethod
    def discard_files(self, files: Sequence[str]) -> None:
        """Removes files that are not to be kept."""


def drop_nothing(refused: Sequence[RefusedRow]) -> None:
    """A KeepRefused for callers that have no place for refused rows: it refuses to lose them.

    Raises:
        RecordError: there are refused rows.
    """
    if refused:
        raise RecordError(f"{len(refused)} rows were refused, the first {refused[0].key}: {refused[0].reason}")


class Lease(Protocol):
    """The right to write a destination, bounded in time; renewed by its owner in the background."""

    @property
    def epoch(self) -> int:
        """Grows by one with every new holder."""

    @property
    def deadline(self) -> datetime:
        """UTC; a writing task stops before it."""

    def check(self) -> None:
        """Raises LeaseHeldError when the lease was lost."""


class Destination(ABC):
    """A declared destination table.

    Attributes:
        name: of the declared table.
        columns: declared physical columns, in the order in which change frames carry them.
        primary_key: names; empty only for destinations that append.
        uri: shown as metadata, without credentials.
        kind: ``tablestore``, ``maxcompute`` or ``kafka``.
    """

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    uri: str
    kind: str

    @property
    def commits_in_parts(self) -> bool:
        """Return whether a write that breaks off may have committed a part of its rows, and is told as
        `DestinationState.begun`.
        """
        return False

    @abstractmethod
    def close(self) -> None:
        """Releases clients. Idempotent."""

    @abstractmethod
    def prepare(self) -> None:
        """Creates the table when it is missing and ``auto.create`` is on; compares it with the declaration otherwise.

        Raises:
            DestinationError: missing, or different; every difference is named.
            EndpointError: not reachable, or credentials refused.
        """

    def unprepared(self) -> str:
        """Return how the table is not what a write needs: missing, or different. Changes nothing, needs no Spark.

        `prepare` mends that, or refuses it. Empty where it would do neither, and of a table that cannot tell.

        Raises:
            EndpointError: not reachable, or credentials refused.
        """
        return ""

    @abstractmethod
    def state(self) -> DestinationState:
        """Reads the control record. Works before `prepare` (a missing table gives the initial state). No Spark."""

    @abstractmethod
    def lease(self, *, owner: str, duration: timedelta) -> AbstractContextManager[Lease]:
        """Takes the destination for one writer, renews while open, gives it back at the end.

        Raises:
            LeaseHeldError: someone else has it.
        """

    @abstractmethod
    def write(
        self,
        changes: DataFrame | RowsOfTask,
        *,
        span: BatchSpan,
        lease: Lease,
        keep_refused: KeepRefused = drop_nothing,
    ) -> WriteReport:
        """Applies a change frame and records `span.upto` as applied, so that a replay of the span changes nothing.

        Args:
            changes: the declared columns in order, then `_op` and `_seq`; at most one row per primary key. Rows
                that the writing task makes are taken by destinations that write them by one task
                (`capabilities.WritesInTask`), those of several tasks where it says so.
            keep_refused: is given every row that the destination will not take, before anything is recorded.

        Raises:
            DestinationError: the write failed for good. Nothing is recorded as applied then.
        """

    @abstractmethod
    def read(self, spark: SparkSession, *, keys: DataFrame | None = None) -> DataFrame:
        """Rows of the table, in declared types (lossless inverse of what `write` stores).

        Args:
            keys: only rows with these primary keys (columns named as the primary key); all rows if None.
        """

    @abstractmethod
    def record_verdict(self, verdict: Verdict) -> None:
        """Keeps the result of a check beside the applied batch; `state` gives it back, whatever it is of."""

    def last_verdict(self) -> Verdict | None:
        """The stored verdict, whatever it is of, as it is now: `state` may give a record as a held lease knows it."""
        return self.state().last_verdict

    def swap_verdict(self, old: Verdict | None, new: Verdict) -> bool:
        """Keeps the result of a check in the place of another one.

        A system that cannot write under a condition compares first, as here: then two writers that come within that
        moment can still lose one.

        Args:
            old: as `last_verdict` gave it.

        Returns:
            Whether it was kept: it is not where `old` is not the stored one any more.
        """
        if self.last_verdict() != old:
            return False
        self.record_verdict(new)
        return True
