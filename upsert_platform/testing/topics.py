"""Topics in the memory of the test, read and decoded as those of a broker."""

from __future__ import annotations

import re
import threading
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.core.source import Unread
from upsert_platform.kafka.source.offsets import PartitionOffsets, TopicOffsets
from upsert_platform.kafka.source.source import write_changes_in_task
from upsert_platform.kafka.source.topic_source import TopicSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from upsert_platform.changelog.data_files import DataFile
    from upsert_platform.changelog.store import Positions
    from upsert_platform.changelog.tables import TableLocation
    from upsert_platform.core.task_runner import TaskRunner

_CREATE_TIME: Final = 1
_FETCHED: Final = 10_000
Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A record with the methods of a record of Kafka's client."""

    place: tuple[str, int, int]
    stored: tuple[bytes | None, bytes | None]
    time: int
    own_headers: Headers = ()

    def topic(self) -> str:
        """Name of the topic."""
        return self.place[0]

    def partition(self) -> int:
        """Number of the partition."""
        return self.place[1]

    def offset(self) -> int:
        """Offset in the partition."""
        return self.place[2]

    def key(self) -> bytes | None:
        """Bytes of the key."""
        return self.stored[0]

    def value(self) -> bytes | None:
        """Bytes of the value; None of a tombstone."""
        return self.stored[1]

    def timestamp(self) -> tuple[int, int]:
        """Type of the time (the producer's), and milliseconds since 1970."""
        return _CREATE_TIME, self.time

    def headers(self) -> Headers:
        """Names and values, in order."""
        return self.own_headers

    def leader_epoch(self) -> int:
        """0: no leader was ever elected."""
        return 0

    def __len__(self) -> int:
        return len(self.stored[1] or b"")


@dataclass
class MemoryTopic:
    """A topic: a list of records per partition.

    Attributes:
        topic_id: as a broker gives one to each topic that is created.
    """

    name: str
    partitions: list[list[MemoryRecord]]
    topic_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def append(
        self, key: bytes | None, value: bytes | None, *, at: int | None = None, headers: Headers = ()
    ) -> MemoryRecord:
        """Appends a record to the partition of its key.

        Args:
            at: milliseconds since 1970; now if left out.
        """
        number = zlib.crc32(key or b"") % len(self.partitions)
        lane = self.partitions[number]
        found = MemoryRecord((self.name, number, len(lane)), (key, value), at or int(time.time() * 1000), headers)
        lane.append(found)
        return found

    def described(self) -> TopicOffsets:
        """The topic with its offsets, as `offsets.discover` returns it."""
        lanes = [PartitionOffsets(number, 0, len(lane)) for number, lane in enumerate(self.partitions)]
        return TopicOffsets(self.name, self.topic_id, tuple(lanes))


class MemoryTopics:
    """The topics of a project under test; each is created when it is first named.

    Args:
        partitions: of every topic.
    """

    def __init__(self, partitions: int = 1) -> None:
        self._partitions = partitions
        self._topics: dict[str, MemoryTopic] = {}
        self._lock = threading.Lock()

    def named(self, name: str) -> MemoryTopic:
        """The topic of a name."""
        with self._lock:
            return self._topics.setdefault(name, MemoryTopic(name, [[] for _ in range(self._partitions)]))

    def names(self) -> Iterable[str]:
        """Names of the topics so far."""
        with self._lock:
            return list(self._topics)

    def fetch(self, wanted: OffsetRange) -> Iterator[list[MemoryRecord]]:
        """The records of a range, some thousand at a time."""
        lane = self.named(wanted.topic).partitions[wanted.partition]
        for start in range(wanted.start, wanted.end, _FETCHED):
            yield lane[start : min(start + _FETCHED, wanted.end)]


@dataclass(frozen=True)
class MemoryTopicSource(TopicSource):
    """The topics of a declared table, held by the test instead of brokers: planned, decoded and reduced alike."""

    topics: MemoryTopics = field(default_factory=MemoryTopics)

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connects to nothing."""
        yield

    def discover(self) -> Sequence[TopicOffsets]:
        """The topics with the offsets that can be read."""
        settings = self.kafka.settings
        names: Iterable[str] = dict.fromkeys(settings.topic)
        if settings.topic_pattern is not None:
            names = [name for name in self.topics.names() if re.fullmatch(settings.topic_pattern, name)]
        return tuple(self.topics.named(name).described() for name in sorted(names))

    def first_times(self, backlog: Sequence[OffsetRange]) -> Sequence[datetime | None]:
        """The time of the first record of each range."""
        firsts = [next(self.topics.fetch(item))[0] for item in backlog if item.offsets]
        return [datetime.fromtimestamp(record.time / 1000, UTC) for record in firsts]

    def write(
        self, spark: SparkSession, ranges: Sequence[OffsetRange], *, batch: int, location: TableLocation
    ) -> list[DataFile]:
        """Reads ranges in this process: Spark's workers do not see the test's memory."""
        del spark
        return self._written(ranges, batch=batch, location=location)

    def write_by_one_task(
        self, runner: TaskRunner, ranges: Sequence[OffsetRange], *, batch: int, location: TableLocation
    ) -> list[DataFile]:
        """Reads ranges in this process."""
        del runner
        return self._written(ranges, batch=batch, location=location)

    def _written(self, ranges: Sequence[OffsetRange], *, batch: int, location: TableLocation) -> list[DataFile]:
        return write_changes_in_task(
            self.kafka, ranges, batch=batch, mode=self._reading, location=location, fetch=self.topics.fetch
        )

    def publish(self, positions: Positions) -> None:
        """Commits offsets nowhere: there is no consumer group."""

    def unread(self, positions: Positions, *, warn: timedelta | None, fail: timedelta | None) -> list[Unread]:
        """None: nothing is ever deleted from a topic in memory."""
        return []


def append_all(
    topic: MemoryTopic,
    pairs: Iterable[tuple[bytes | None, bytes | None]],
    *,
    timestamps: Sequence[int] | None = None,
    headers: Sequence[Headers] | None = None,
) -> None:
    """Appends records in order."""
    for place, (key, value) in enumerate(pairs):
        topic.append(
            key,
            value,
            at=None if timestamps is None else timestamps[place],
            headers=() if headers is None else headers[place],
        )
