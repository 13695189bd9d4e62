"""A topic as a plain consumer gives it: every committed record of its partitions, up to given ends."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from upsert_platform.referee.errors import RefereeError

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_SILENCE_SECONDS = 60.0
_QUESTION_SECONDS = 30.0
_PROMPT = {"fetch.wait.max.ms": 50, "fetch.queue.backoff.ms": 50}
"""The end of a partition is told when the broker has waited in vain for more."""
_NO_LEADER = ("LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION")
_PARTITION_EOF = -191
"""librdkafka's code for the end of a partition."""


class Record(NamedTuple):
    """A record of a topic.

    Attributes:
        time: milliseconds since 1970, or -1 where it has none.
    """

    topic: str
    partition: int
    offset: int
    time: int
    key: bytes | None
    value: bytes | None


Ends = Mapping[tuple[str, int], int]
"""Topic and partition to the first offset that does not belong any more."""


def consume(
    config: Mapping[str, Any], topics: Sequence[str], ends: Ends | None = None, *, starts: Ends | None = None
) -> Iterator[Record]:
    """Every record of topics, partition after partition, as a reader of committed records meets them.

    Args:
        config: of `confluent_kafka.Consumer`: servers and login. Where to begin and end is not taken from it.
        ends: where to end; a partition that is not named is left out. Up to the last committed record if None.
        starts: where to begin; at the first record of partitions that are not named.

    Raises:
        RefereeError: a topic cannot be read, or a partition stays silent before its end.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    own = {"group.id": "referee", "enable.auto.commit": "false", "enable.partition.eof": "true", **_PROMPT}
    consumer = Consumer({"isolation.level": "read_committed", **config, **own, "auto.offset.reset": "error"})
    try:
        for topic in topics:
            for partition in _partitions(consumer, topic):
                low, high = _bounds(consumer, topic, partition)
                end = high if ends is None else min(high, ends.get((topic, partition), 0))
                low = max(low, (starts or {}).get((topic, partition), 0))
                if low < end:
                    consumer.assign([TopicPartition(topic, partition, low)])
                    yield from _read(consumer, topic, partition, end)
    except KafkaException as error:
        raise RefereeError(f"the topics {', '.join(topics)} cannot be read: {error}") from None
    finally:
        consumer.close()


def _bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first offset of a partition, and the one behind its last; asked again while it has no leader."""
    from confluent_kafka import KafkaException, TopicPartition

    deadline = time.monotonic() + _QUESTION_SECONDS
    while True:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), _QUESTION_SECONDS)
            return int(low), int(high)
        except KafkaException as error:
            if error.args[0].name() not in _NO_LEADER or time.monotonic() >= deadline:
                raise
        time.sleep(0.05)


def first_offsets(config: Mapping[str, Any], topics: Sequence[str]) -> dict[tuple[str, int], int]:
    """Return the first offset of each partition: above 0 if records were deleted by age or by size."""
    from confluent_kafka import Consumer

    consumer = Consumer({**config, "group.id": "referee"})
    try:
        return {
            (topic, number): _bounds(consumer, topic, number)[0]
            for topic in topics
            for number in _partitions(consumer, topic)
        }
    finally:
        consumer.close()


def _partitions(consumer: Any, topic: str) -> list[int]:
    described = consumer.list_topics(topic, timeout=_QUESTION_SECONDS).topics[topic]
    if described.error is not None:
        raise RefereeError(f"topic '{topic}' cannot be read: {described.error}")
    return sorted(described.partitions)


def _read(consumer: Any, topic: str, partition: int, end: int) -> Iterator[Record]:
    heard = time.monotonic()
    while True:
        for message in consumer.consume(5_000, timeout=0.05):
            heard = time.monotonic()
            if message.error() is not None:
                if message.error().code() == _PARTITION_EOF and message.offset() >= end:
                    return
                if message.error().code() != _PARTITION_EOF:
                    raise RefereeError(f"{topic}-{partition}: {message.error()}")
            elif message.offset() >= end:
                return
            else:
                kind, at = message.timestamp()
                yield Record(topic, partition, message.offset(), at if kind else -1, message.key(), message.value())
                if message.offset() == end - 1:
                    return
        if time.monotonic() - heard > _SILENCE_SECONDS:
            raise RefereeError(f"{topic}-{partition}: nothing came for {_SILENCE_SECONDS:.0f} s before offset {end}")
