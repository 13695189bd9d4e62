"""The protocol of a source: discover, plan, bound, write, publish.

A source has streams (topics of Kafka), each with lanes (partitions) of numbered records (offsets). A changelog keeps,
in the commit of each batch, up to which number every lane was read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.model import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from upsert_platform.changelog.accounting import OffsetRange
    from upsert_platform.changelog.data_files import DataFile
    from upsert_platform.changelog.head import Head, Positions
    from upsert_platform.changelog.tables import TableLocation
    from upsert_platform.core.task_runner import TaskRunner

MODE_UPSERT: Final = "upsert"
"""A changelog keeps the last record per key and batch."""
MODE_APPEND: Final = "append"
"""A changelog keeps every record."""


@dataclass(frozen=True, slots=True)
class Landed:
    """Rows of one batch in data files that wait for their commit.

    Attributes:
        positions: where reading goes on once they are committed.
    """

    files: Sequence[DataFile]
    positions: Positions


@dataclass(frozen=True)
class Source(ABC):
    """A declared table that inserts read, its options checked. Opens connections only while a method runs.

    Attributes:
        table: as declared, completed by the options of its endpoint's resource.
    """

    table: Table

    @property
    @abstractmethod
    def mode(self) -> str:
        """``upsert`` keeps the last record per key and batch, ``append`` every record."""

    def keeping_every_record(self) -> Source:
        """This source, for a table that keeps older rows of a key: a batch then has every record that it can give.

        The mode stays: history is still reduced to the last record per key once tables have applied it.
        """
        return self

    @property
    def quarantine_limits(self) -> tuple[int | None, int | None]:
        """From how many records in quarantine, and from how many percent of all read, a table counts as bad."""
        return None, None

    def connected(self) -> AbstractContextManager[None]:
        """Within it, connections that methods open stay open from call to call, of the thread that entered it."""
        return nullcontext()

    @abstractmethod
    def discover(self) -> Sequence[Any]:
        """The streams as they are now, each with a `name`, a `topic_id` and the `partitions` with their offsets.

        Raises:
            TopicError: a stream does not exist.
            EndpointError: no answer, or a login that is refused.
        """

    @abstractmethod
    def backlog(self, streams: Sequence[Any], positions: Positions) -> Sequence[OffsetRange]:
        """Return the unread ranges up to the ends that `discover` found.

        Raises:
            TopicError: a stream was made anew, or lost records before they were read.
        """

    def first_times(self, backlog: Sequence[OffsetRange]) -> Sequence[datetime | None]:
        """Return the time (UTC) of the first record of each range of a backlog, for display only.

        Ranges without a record are left out. None where a record has no time, or the source does not tell it.

        Raises:
            EndpointError: no answer.
        """
        return [None for item in backlog if item.offsets]

    @abstractmethod
    def bound(
        self, ranges: Sequence[OffsetRange], *, record_bytes: float | None, widened: int = 1
    ) -> tuple[OffsetRange, ...]:
        """The part of a backlog that the next batch reads.

        Args:
            record_bytes: mean size of the records read so far, if any were.
            widened: how many times as much as by default, where a cluster has the cores for it.
        """

    def remaining(self, backlog: Sequence[OffsetRange], positions: Positions) -> Iterator[OffsetRange]:
        """Yield the rest of a planned backlog behind the positions of batches committed since."""
        for item in backlog:
            known = positions.offsets.get(item.topic, {}).get(item.partition)
            start = item.start if known is None else max(item.start, known)
            # An empty range that was never committed fixes where reading starts.
            if start < item.end or (known is None and start == item.end):
                yield replace(item, start=start)

    def version(self, stream: Any) -> str:
        """Return the end of a stream as text: the end of every split, unless there is a better name."""
        lanes = sorted(stream.partitions, key=lambda lane: lane.partition)
        return ",".join(f"{lane.partition}:{lane.end}" for lane in lanes)

    def details(self, positions: Positions) -> Mapping[str, str | int]:
        """Return additional details of positions for metadata: name to value."""
        del positions
        return {}

    def warnings(self, positions: Positions) -> Sequence[str]:
        """Return warnings about positions, repeated at each look."""
        del positions
        return ()

    def stream_warnings(self, streams: Sequence[Any]) -> Sequence[str]:
        """Return warnings about streams as they are now, repeated at each look."""
        del streams
        return ()

    @abstractmethod
    def land(
        self,
        spark: Callable[[], SparkSession],
        ranges: Sequence[OffsetRange],
        *,
        streams: Sequence[Any],
        head: Head,
        location: TableLocation,
        runner: TaskRunner | None = None,
    ) -> Landed:
        """Reads ranges and writes their rows into new data files of a changelog, which its caller commits.

        Args:
            spark: gives a session, where Spark is needed.
            streams: as `discover` gave them.
            head: of the changelog, which the batch will follow.
            runner: of the one task that reads the ranges, where they are few records.

        Raises:
            RecordError: a record cannot be decoded and ``on-error`` is ``fail``.
            TopicError: records vanished meanwhile.
            EndpointError: no answer.
        """

    @abstractmethod
    def publish(self, positions: Positions) -> None:
        """Publish the platform's position to the system's own tools; it is never read back."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Records of a lane that are not in a changelog, as far as their stream may delete them before they are.

    Attributes:
        lost: records that are gone already.
        failing: further ones that may go within the shorter time.
        warned: further ones that may go within the longer time.
        allowed: how long the stream keeps a record; None where it keeps them all.
    """

    topic: str
    partition: int
    lost: int = 0
    failing: int = 0
    warned: int = 0
    allowed: timedelta | None = None


class ForeseesLoss(Source):
    """A source that knows how long its streams keep records that were not read yet."""

    @abstractmethod
    def unread(self, positions: Positions, *, warn: timedelta | None, fail: timedelta | None) -> list[Unread]:
        """Every lane with records that are not read yet. No JVM.

        Args:
            positions: up to where a changelog has read.
            warn: the longer time; half of what the stream allows if None.
            fail: the shorter time; a tenth of it if None.

        Raises:
            TopicError: a stream does not exist.
            EndpointError: no answer.
        """


class TakesSnapshots(Source):
    """A source that can be read anew from what it holds now, whatever became of the changes since it was read last."""

    @abstractmethod
    def begin_anew(self, head: Head, *, location: TableLocation) -> Landed:
        """A batch that begins a new snapshot; rows that it does not meet are deleted when it is done. No JVM.

        Args:
            head: of the changelog, which the batch will follow.

        Raises:
            ReplicationError: the table cannot be followed.
            EndpointError: no answer.
        """


class ReadsRanges(Source):
    """A source whose ranges hold the same records whenever they are read: a batch ends where it was told to."""

    @abstractmethod
    def write(
        self, spark: SparkSession, ranges: Sequence[OffsetRange], *, batch: int, location: TableLocation
    ) -> list[DataFile]:
        """Reads ranges and writes their rows into new data files of a changelog. Raises what `land` does."""

    def write_by_one_task(
        self, runner: TaskRunner, ranges: Sequence[OffsetRange], *, batch: int, location: TableLocation
    ) -> list[DataFile] | None:
        """As `write`, by one task, which is meant for few records; None where the work is to be divided."""
        return None

    def land(
        self,
        spark: Callable[[], SparkSession],
        ranges: Sequence[OffsetRange],
        *,
        streams: Sequence[Any],
        head: Head,
        location: TableLocation,
        runner: TaskRunner | None = None,
    ) -> Landed:
        """Writes the ranges; reading goes on at their ends."""
        batch, files = head.batch + 1, None
        if runner is not None:
            files = self.write_by_one_task(runner, ranges, batch=batch, location=location)
        if files is None:
            files = self.write(spark(), ranges, batch=batch, location=location)
        ends = {(item.topic, item.partition): item.end for item in ranges}
        return Landed(files, head.positions.advanced(ends, {stream.name: stream.topic_id for stream in streams}))


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a replay; the first available record by default.

    Attributes:
        timestamp: milliseconds since 1970: at the first record of each lane that is not older.
        offsets: lane to number, in every stream; other lanes are read from their first record.
    """

    timestamp: int | None = None
    offsets: tuple[tuple[int, int], ...] = ()

    @property
    def label(self) -> str:
        """As part of a name: ``earliest``, ``timestamp-1700000000000``, ``offsets-0-42-1-7``."""
        if self.timestamp is not None:
            return f"timestamp-{self.timestamp}"
        return (
            "-".join(["offsets", *(f"{lane}-{number}" for lane, number in self.offsets)])
            if self.offsets
            else "earliest"
        )


class ReplaysFrom(ReadsRanges):
    """A source that can be read again from another place than where its changelog began."""

    @abstractmethod
    def starting(self, start: Start) -> ReplaysFrom:
        """The same source, whose first batch starts there, and which publishes no positions."""


class DecodesAgain(ReadsRanges):
    """A source whose quarantined records can be decoded once more, as the table is declared now."""

    @abstractmethod
    def decoder(self) -> Any:
        """Decodes blocks of raw records, as the reading tasks do."""
