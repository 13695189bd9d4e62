"""Samples of topics: some records of the beginning and of the end of each partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from upsert_platform.kafka.endpoint import ClusterAdmin, KafkaEndpoint

MOST_RECORDS: Final = 1_000
"""Of a topic."""
_OWN: Final = ("__", "upsert-platform-control")
"""Beginnings of the names of topics that hold nobody's data."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a sample, and where it stands."""

    key: bytes | None
    value: bytes | None
    partition: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """Some records of a topic.

    Attributes:
        offsets: that its partitions span, records or not.
        compacted: whether the brokers keep the last record of a key.
    """

    topic: str
    records: tuple[Record, ...]
    partitions: int = 1
    offsets: int = 0
    compacted: bool = False

    @property
    def values(self) -> list[bytes]:
        """Values of the records that have one."""
        return [record.value for record in self.records if record.value is not None]

    @property
    def keys(self) -> list[bytes]:
        """Keys of the records that have one."""
        return [record.key for record in self.records if record.key is not None]

    @property
    def tombstones(self) -> int:
        """Return the number of records with a key and no value."""
        return sum(record.value is None and record.key is not None for record in self.records)


def topics_of(endpoint: KafkaEndpoint) -> list[str]:
    """Return the names of a cluster's topics, without those of Kafka and of the platform itself.

    Raises:
        EndpointError: the brokers cannot be reached, or refuse the login.
    """
    with endpoint.admin() as admin:
        return sorted(name for name in admin.topics().topics if not name.startswith(_OWN))


def sample_topic(endpoint: KafkaEndpoint, topic: str, *, most: int = MOST_RECORDS) -> Sample:
    """Read some records of a topic: of each partition as many of its beginning as of its end.

    Args:
        most: records, of all partitions together.

    Raises:
        TopicError: there is no such topic.
        EndpointError: the brokers cannot be reached, or refuse the login or the request.
    """
    from upsert_platform.changelog.accounting import OffsetRange
    from upsert_platform.core.errors import TopicError
    from upsert_platform.kafka.source.fetch import close_consumers
    from upsert_platform.kafka.topics import describe_topic

    found = describe_topic(endpoint, topic)
    if found is None:
        raise TopicError(
            f"topic '{topic}' does not exist on {endpoint.servers}; 'upsert-platform discover' lists topics"
        )
    with endpoint.admin() as admin:
        spans = _spans(admin, topic, found.partitions)
    share = max(2, most // max(1, sum(end > low for low, end in spans.values())))
    records: list[Record] = []
    try:
        for partition, (low, end) in sorted(spans.items()):
            left = most - len(records)
            for start, stop, wanted in _parts(low, end, min(share, left)):
                part = OffsetRange(topic, partition, start, stop)
                records += islice(_fetched(endpoint, part), wanted)
    finally:
        close_consumers()
    offsets = sum(end - low for low, end in spans.values())
    return Sample(topic, tuple(records[:most]), found.partitions, offsets, found.compacted)


def _spans(admin: ClusterAdmin, topic: str, partitions: int) -> dict[int, tuple[int, int]]:
    """First offset and end of each partition."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    places = [TopicPartition(topic, partition) for partition in range(partitions)]
    found: dict[int, list[int]] = {place.partition: [] for place in places}
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
        for place, future in admin.client.list_offsets(dict.fromkeys(places, spec)).items():
            found[place.partition].append(admin.result(future, f"asking for the offsets of topic '{topic}'").offset)
    return {partition: (low, end) for partition, (low, end) in found.items()}


def _parts(low: int, end: int, wanted: int) -> Sequence[tuple[int, int, int]]:
    """Ranges to read of a partition, each with how many records of it are wanted."""
    if end <= low or wanted <= 0:
        return ()
    if end - low <= wanted:
        return ((low, end, wanted),)
    half = wanted // 2
    newest = end - (wanted - half)
    return ((low, newest, half), (newest, end, wanted - half))


def _fetched(endpoint: KafkaEndpoint, part: object) -> Iterator[Record]:
    from upsert_platform.changelog.accounting import OffsetRange
    from upsert_platform.kafka.source.fetch import fetch_range

    assert isinstance(part, OffsetRange)
    for messages in fetch_range(endpoint, part, skip_deleted=True):
        for message in messages:
            yield Record(message.key(), message.value(), int(message.partition() or 0), int(message.offset() or 0))
