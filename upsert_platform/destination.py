"""What every kind of destination table offers to the graph: plan, prepare, write and commit, read back.

Connectors implement `Destination`; the graph knows nothing else of them. Methods take or return Spark DataFrames only
where Spark does the work; everything else works without a JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from upsert_platform.errors import RecordError
from upsert_platform.model import Column

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

OPERATION: Final = "_op"
"""Column of a change frame: ``U`` puts the row, ``D`` deletes the row of its key (other columns are then null)."""
OPERATION_UPSERT: Final = "U"
OPERATION_DELETE: Final = "D"
SEQUENCE: Final = "_seq"
"""BIGINT column of a change frame that orders the versions of a key: a later batch has a greater one."""
FAILED: Final = "_failed"
"""Column that a change frame has on its way: why a row could not be computed, else null. Destinations do not see it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the last check of a destination, kept in the destination.

    Attributes:
        batch: the applied batch that was checked.
        complete: whether everything was compared (`verify`), not only a batch's keys and a sample.
    """

    batch: int
    passed: bool
    complete: bool
    at: datetime
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DestinationState:
    """What a destination remembers of the platform's writes.

    Attributes:
        applied_batch: number of the last changelog batch that is wholly in the table; 0 before the first.
        changelog_id: identity of the changelog that those numbers belong to; empty before the first write.
        holder: who holds the lease, when it has not expired; for messages.
        lost: why the table does not hold what was applied (it is gone, or was made anew), as a sentence; the applied
            batch is 0 then, so that all is written again. Empty when nothing is lost.
    """

    applied_batch: int = 0
    changelog_id: str = ""
    verdict: Verdict | None = None
    holder: str | None = None
    lease_expires: datetime | None = None
    lost: str = ""


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """Changelog batches after `after` and up to `upto`, written as one.

    Attributes:
        changelog_id: stored with the position, so that a rebuilt changelog is noticed.
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
    """What one write did.

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


@runtime_checkable
class KeepsFiles(Protocol):
    """A `KeepRefused` that also takes refused rows as files, so that nobody has to hold all of them at once."""

    @property
    def open_file(self) -> Callable[[], RefusedFile]:
        """Opens a file, in a task: picklable."""

    def rows_of(self, files: Sequence[str]) -> Iterator[list[RefusedRow]]:
        """The rows of files, a few megabytes at a time."""

    def keep_files(self, files: Sequence[str]) -> None:
        """As `KeepRefused`, of all rows of these files."""

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


class Destination(Protocol):
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

    def close(self) -> None:
        """Releases clients. Idempotent."""

    def prepare(self) -> None:
        """Creates the table when it is missing and ``auto.create`` is on; compares it with the declaration otherwise.

        Raises:
            DestinationError: missing, or different; every difference is named.
            EndpointError: not reachable, or credentials refused.
        """

    def state(self) -> DestinationState:
        """Reads the control record. Works before `prepare` (a missing table gives the initial state). No Spark."""

    def lease(self, *, owner: str, duration: timedelta) -> AbstractContextManager[Lease]:
        """Takes the destination for one writer, renews while open, gives it back at the end.

        Raises:
            LeaseHeldError: someone else has it.
        """

    def write(
        self, changes: DataFrame, *, span: BatchSpan, lease: Lease, keep_refused: KeepRefused = drop_nothing
    ) -> WriteReport:
        """Applies a change frame and records `span.upto` as applied, so that a replay of the span changes nothing.

        Args:
            changes: the declared columns in order, then `_op` and `_seq`; at most one row per primary key.
            keep_refused: is given every row that the destination will not take, before anything is recorded.

        Raises:
            DestinationError: the write failed for good. Nothing is recorded as applied then.
        """

    def read(self, spark: SparkSession, *, keys: DataFrame | None = None) -> DataFrame:
        """Rows of the table, in declared types (lossless inverse of what `write` stores).

        Args:
            keys: only rows with these primary keys (columns named as the primary key); all rows if None.
        """

    def record_verdict(self, verdict: Verdict) -> None:
        """Keeps the result of a check beside the applied batch."""


@runtime_checkable
class ReadsRecent(Protocol):
    """A destination that finds a row only by reading on from a position: a topic has no index."""

    def recent_batches(self) -> Collection[int]:
        """Applied batches behind which it can start to read."""

    def read_recent(self, spark: SparkSession, *, keys: DataFrame, since: int) -> DataFrame:
        """What `Destination.read` gives for keys that batches after `since` wrote, at the cost of those batches."""


@runtime_checkable
class KeepsOlderRows(Protocol):
    """A destination that may hold several rows of a key: one per place, of which the last value names the current one.

    Attributes:
        places: columns outside the primary key that tell the place of a row; empty where a key has one row.
    """

    places: tuple[str, ...]


@runtime_checkable
class StoresOtherValues(Protocol):
    """A destination that does not hold some values as rows have them: a partition has a value where a row has none."""

    def folded_key(self) -> tuple[str, ...]:
        """Primary key columns of which several values are stored as one, so that several keys may be one row."""

    def stored_value(self, name: str, value: SparkColumn) -> SparkColumn:
        """What `Destination.read` gives where rows have `value` in the column of that name."""


@runtime_checkable
class HoldsLess(Protocol):
    """A destination whose format cannot hold every row as it is."""

    def held(self, changes: DataFrame) -> DataFrame:
        """A change frame as `Destination.read` gives its rows; a row that it will not give at all is a delete."""


@runtime_checkable
class WritesByMode(Protocol):
    """A destination whose options say that it does less than make its table equal to its source.

    Attributes:
        skips_nulls: a null leaves in the column what the table has there.
        keeps_deleted: a deleted key may keep a row, of its key and of columns that are not declared.
    """

    skips_nulls: bool
    keeps_deleted: bool


@runtime_checkable
class ComparesRecords(Protocol):
    """A destination whose rows follow from records by rules of its own, so that it compares itself with them."""

    def differences(self, changes: DataFrame, *, refused: Collection[str]) -> DataFrame:
        """Compares the rows that changes touched with what is in the table.

        Args:
            changes: as `Destination.write` takes them.
            refused: keys of `RefusedRow` whose changes count as no difference.

        Returns:
            Few rows: `count` rows of the table have a `status`: null when they are right, else ``missing``, ``extra``,
            ``stale`` or ``refused``. Examples of rows that differ have a row of their own, with `key` and `difference`.
        """

    def same_rows(self, changes: DataFrame, *, refused: Collection[str]) -> DataFrame:
        """Of changes, those of refused keys and all others of the same rows: written in turn they give the rows anew.

        Args:
            changes: as `Destination.write` takes them.
            refused: keys of `RefusedRow`.
        """
