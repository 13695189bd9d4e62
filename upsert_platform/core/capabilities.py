"""Capabilities that a destination may offer beside the base protocol; a destination declares one by inheriting from it,
never by the name of a method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from upsert_platform.core.destination import Lease


class ReadsRecent(ABC):
    """A destination that finds a row only by reading on from a position: a topic has no index."""

    @abstractmethod
    def recent_batches(self) -> Collection[int]:
        """Applied batches behind which it can start to read."""

    @abstractmethod
    def read_recent(self, spark: SparkSession, *, keys: DataFrame, since: int) -> DataFrame:
        """Return the rows that `Destination.read` returns for keys written by batches after `since`, at the cost of
        those batches.
        """


@dataclass(frozen=True, slots=True)
class RowsByKey:
    """A task's way to read the rows of given keys.

    Attributes:
        read: a function for ``mapInArrow``, which can be pickled: it gets the columns of the primary key, each key
            once, and gives the rows that are there, in declared columns and types.
    """

    read: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Shares:
    """Rows that tasks read in shares.

    Attributes:
        count: of the shares.
        read: a function for ``mapInArrow``, which can be pickled: it gets numbers of shares in its only column, and
            gives their rows in declared columns and types.
        rows: how many there are, where that is told beforehand; it may be wrong.
        alike: whether they are about as large as each other.
    """

    count: int
    read: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    rows: int | None = None
    alike: bool = True


@dataclass(frozen=True, slots=True)
class RowsByShare:
    """A task's way to read rows in shares.

    Attributes:
        open: called once by the process that asked, while tasks may be at other work: a service may take its time.
        others: whether rows of keys are among them that were not written since the batch that was asked for.
        tells_deletes: whether keys that were deleted since then are among them, each once: rows have `_op` then.
        held: gives change rows as the destination's formats hold them; None where they hold every value.
        replaced: whether a share may give rows that others of their keys in it, of a greater `_seq`, replaced.
    """

    open: Callable[[], Shares]
    others: bool
    tells_deletes: bool = False
    held: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None = None
    replaced: bool = False


class ReadsInTasks(ABC):
    """A destination whose rows Spark's tasks read as Arrow, so that comparing them needs neither the JVM nor a join."""

    @abstractmethod
    def reads_in_tasks(self, *, since: int, rows: int) -> RowsByKey | RowsByShare | None:
        """Return how tasks read the rows written by batches after `since`, or None if `Destination.read` has to be
        used.

        Values are those of change rows (no `StoresOtherValues` changes one), or of what formats hold of them.

        Rows may be given that `Destination.read` would not give (those that a later one replaced), never fewer: whoever
        compares takes unequal sides for a reason to look closer, and only equal ones for an answer.

        Args:
            rows: change rows of those batches, at most.
        """

    def all_in_tasks(self, *, at_once: int) -> RowsByShare | None:
        """Return how tasks read all rows, whoever wrote them, or None if `Destination.read` has to be used.

        As `reads_in_tasks` has it, but that keys which are told as deleted need not be all of them.

        Args:
            at_once: tasks that may run beside each other, and share memory.
        """
        return None


class ComparesSchema(ABC):
    """A destination that tells whether the table is as it is declared, without changing it."""

    @abstractmethod
    def schema_difference(self) -> str | None:
        """Every difference, with its remedy; None where there is none, or no table yet. No Spark.

        Raises:
            EndpointError: not reachable, or credentials refused.
        """


class KeepsOlderRows(ABC):
    """A destination that may hold several rows of a key: one per place, of which the last value names the current one.

    Its change frames have at most one put per key and place, and at most one delete per key, which comes before the
    puts of the key.

    Attributes:
        places: columns outside the primary key that identify the place of a row; empty where a key has one row.
    """

    places: tuple[str, ...]


class StoresOtherValues(ABC):
    """A destination that does not hold some values as rows have them: a partition has a value where a row has none."""

    @abstractmethod
    def folded_key(self) -> tuple[str, ...]:
        """Primary key columns of which several values are stored as one, so that several keys may be one row."""

    @abstractmethod
    def stored_value(self, name: str, value: SparkColumn) -> SparkColumn:
        """Return the value that `Destination.read` gives for a row with `value` in the named column."""


class TellsBefore:
    """A destination whose change frames also carry `destination.BEFORE`.

    It is written batch by batch, so that a span that is tried again has the same images before.
    """


class HoldsLess(ABC):
    """A destination whose format cannot hold every row as it is."""

    @abstractmethod
    def holding(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None:
        """Return a function for ``mapInArrow``, which can be pickled, or None where every value is held as it is.

        It gives change rows as `Destination.read` gives their rows; a row that it will not give at all is a delete.
        """

    def held(self, changes: DataFrame) -> DataFrame:
        """A change frame by `holding`."""
        holding = self.holding()
        return changes if holding is None else changes.mapInArrow(holding, changes.schema)


class WritesByMode(ABC):
    """A destination whose options say that it does less than make its table equal to its source.

    Attributes:
        skips_nulls: a null leaves in the column what the table has there.
        keeps_deleted: a deleted key may keep a row, of its key and of columns that are not declared.
    """

    skips_nulls: bool
    keeps_deleted: bool


class PacesCommits(ABC):
    """A destination whose commits should be some time apart.

    Attributes:
        least_interval: between two of them; zero where they may follow each other at once.
    """

    least_interval: timedelta


MOST_TOLD_KEYS: Final = 4_000_000
"""Keys of a batch that one process holds hashes of, where rows of other keys are read as well."""
EXPIRY_MARGIN: Final = timedelta(hours=1)
"""Rows that expire so soon may be gone by the time that they are read."""


class ExpiresRows(ABC):
    """A destination that may let go of rows by itself, some time after they were written."""

    @abstractmethod
    def time_to_live(self) -> int | None:
        """Seconds after which a row that was written, or a cell of it, may be gone; None when rows stay. No Spark."""


class PartitionLifetimes(NamedTuple):
    """The lifetimes of a table's partitions.

    Attributes:
        seconds: after which a partition that nobody has written may be gone.
        made: partition to when it was made, seconds since 1970; those that are there.
        since: when the table itself was made, seconds since 1970; 0 where that is not known.
    """

    seconds: int
    made: Mapping[str, float]
    since: float = 0.0


class ExpiresPartitions(ABC):
    """A destination that may let go of whole partitions by itself, some time after they were written last."""

    @abstractmethod
    def partition_lifetimes(self) -> PartitionLifetimes | None:
        """Return the lifetimes of partitions; None where they stay. No Spark."""

    @abstractmethod
    def with_partition(self, changes: DataFrame, name: str) -> DataFrame:
        """Return a change frame with a column of each row's partition, as text as in `PartitionLifetimes.made`."""


class Resets(ABC):
    """A destination that the platform makes forget what was applied to it, or drops, so that it is written anew."""

    @abstractmethod
    def forget_applied(self, lease: Lease) -> None:
        """Forget position and verdict, so that the next sync writes every batch again; rows stay. No Spark.

        Raises:
            LeaseHeldError: the lease was lost.
            EndpointError: no answer, or credentials refused.
        """

    @abstractmethod
    def drop_refusal(self) -> str | None:
        """Return why `drop_table` would do harm that nobody asked for, with the remedy; None where it does not."""

    @abstractmethod
    def drop_table(self) -> None:
        """Drop the table, or the topic, with its rows; no error where there is none. No Spark.

        Raises:
            EndpointError: no answer, or credentials refused.
            DestinationError: any other refusal.
        """


class AddsColumns(ABC):
    """A destination whose writes add declared columns that its table lacks, where its options say so."""

    @abstractmethod
    def show_added(self) -> None:
        """From here on, read the table as the next write makes it: columns that it adds are there, and null.

        Nothing is changed in the table. Such a destination is not written.
        """


class FindsDuplicates(ABC):
    """A destination that can hold several rows of a key, of which `Destination.read` gives one."""

    @abstractmethod
    def duplicates(self, spark: SparkSession) -> DataFrame:
        """Return the keys of which it holds several rows: the columns of the primary key, each key once."""


class ComparesRecords(ABC):
    """A destination whose rows follow from records by rules of its own, so that it compares itself with them."""

    @abstractmethod
    def differences(self, changes: DataFrame, *, refused: Collection[str], expired: int) -> DataFrame:
        """Compares the rows that changes touched with what is in the table.

        Args:
            changes: as `Destination.write` takes them.
            refused: keys of `RefusedRow` whose changes count as no difference.
            expired: the batch up to which what was written may be gone by itself (`ExpiresRows`); 0 if nothing may be.

        Returns:
            Few rows: `count` rows of the table have a `status`: null when they are right, else ``missing``, ``extra``,
            ``stale``, ``refused`` or ``expired``. Examples of rows that differ have a row of their own, with `key` and
            `difference`.
        """

    @abstractmethod
    def same_rows(self, changes: DataFrame, *, refused: Collection[str]) -> DataFrame:
        """The changes of refused keys and all others of the same rows: written in turn they give the rows anew.

        Args:
            changes: as `Destination.write` takes them.
            refused: keys of `RefusedRow`.
        """


class WritesInTask(ABC):
    """A destination that takes few rows as an Arrow table, and rows of a task (`RowsOfTask`): one task writes them.

    Then a row is stored as it is: no value of a declared column is another in the table (`StoresOtherValues`).
    """

    @abstractmethod
    def writes_in_task(self) -> bool:
        """Return whether it does so for the table as it is. After `Destination.prepare`."""

    def writes_in_tasks(self) -> bool:
        """Return whether it takes rows of several tasks (`RowsOfTasks`), too. After `Destination.prepare`."""
        return False

    @abstractmethod
    def key_reader(self, *, since: int, most: int) -> Callable[[pa.Table], pa.Table | None] | None:
        """Return what reads the rows of few keys in one task; None where more than `most` would have to be read.

        It gets columns named as the primary key, each key once, and gives what `Destination.read` gives for them, and
        perhaps rows of others too; None where it would have to read more than `most`. It can be pickled.

        Args:
            since: the keys were written by batches after it.
            most: rows, or records, that the task may read.
        """

    def holder(self) -> Callable[[pa.Table], pa.Table] | None:
        """Return what gives a table of change rows by `HoldsLess.holding`; None where every value is held as it is.

        It can be pickled.
        """
        holding = self.holding() if isinstance(self, HoldsLess) else None
        return None if holding is None else partial(_held, holding)


def _held(holding: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], changes: pa.Table) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_batches(holding(iter(changes.to_batches())), schema=changes.schema)
