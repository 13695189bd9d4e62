"""Fetches the records of one offset range. Runs in Spark workers, where consumers outlive a task.

A worker process reads batch after batch, and connecting takes longer than reading a small one, so its thread keeps one
consumer per cluster and login, without partitions in between.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.core.errors import EndpointError, TopicError
from upsert_platform.kafka.endpoint import REQUEST_SECONDS, KafkaEndpoint
from upsert_platform.kafka.refusals import NO_LEADER, raise_if_refused, redact, remedy

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, TopicPartition

FETCH_RECORDS: Final = 2_000
"""Records handed over at once: few enough to stay in the processor's cache while they are reduced."""
Place = tuple[str, int]
"""Topic and partition."""
STALL_SECONDS: Final = 60.0
"""How long the brokers may send nothing before a task gives up."""
_ASK_SECONDS: Final = 5.0
"""How long a client may be asked where a topic is, before it looks by itself."""


class BorrowedConsumer:
    """A connected consumer, and what befell its connections since it was borrowed.

    Attributes:
        client: the consumer.
    """

    def __init__(self, endpoint: KafkaEndpoint) -> None:
        self._servers = endpoint.servers
        self._secrets = tuple(endpoint.properties.secrets())
        self._errors: list[KafkaError] = []
        self._topics: set[str] = set()
        self.client = endpoint.open_consumer(self._errors.append)

    def assign(self, places: Sequence[TopicPartition]) -> None:
        """Makes the client fetch from these places, and from nowhere else.

        It looks once a second for the leaders of topics that are new to it; those of its first ones, and of topics that
        it is asked about, it knows at once.
        """
        from confluent_kafka import KafkaException

        topics = {place.topic for place in places}
        for topic in topics - self._topics if self._topics else ():
            with suppress(KafkaException):  # then it looks by itself
                self.client.list_topics(topic, timeout=_ASK_SECONDS)
        self._topics |= topics
        self.client.assign(list(places))

    def forget_errors(self) -> None:
        """Begins anew for the next borrower."""
        self._errors.clear()

    def raise_if_refused(self) -> None:
        """Ends a wait that can only be in vain.

        Raises:
            EndpointError: the brokers refuse the login or the certificate.
        """
        raise_if_refused(self._errors, servers=self._servers, secrets=self._secrets, connected=True)


class _Kept(threading.local):
    """The consumer that a thread keeps, by cluster and login. In continuous mode each topic table has a thread."""

    def __init__(self) -> None:
        self.consumers: dict[bytes, BorrowedConsumer] = {}


_kept = _Kept()


@contextmanager
def borrow_consumer(endpoint: KafkaEndpoint) -> Iterator[BorrowedConsumer]:
    """A consumer of this thread: kept connected, without partitions, unless its user failed."""
    name = pickle.dumps(endpoint)
    kept = _kept.consumers
    consumer = kept.pop(name, None)
    if consumer is None:
        close_consumers()  # another login than before: a worker keeps one consumer, not one per table that passed by
        consumer = BorrowedConsumer(endpoint)
    consumer.forget_errors()
    try:
        yield consumer
        consumer.client.unassign()
    except BaseException:  # also when a generator is abandoned half-way
        consumer.client.close()
        raise
    if name in kept:
        consumer.client.close()
    else:
        kept[name] = consumer


def close_consumers() -> None:
    """Closes the consumers that this thread keeps."""
    while _kept.consumers:
        _kept.consumers.popitem()[1].client.close()


def fetch_range(
    endpoint: KafkaEndpoint, wanted: OffsetRange, *, skip_deleted: bool = False, stall_seconds: float = STALL_SECONDS
) -> Iterator[list[Message]]:
    """The records of a range, in offset order, in lists that are never empty.

    Offsets without a record (control records, aborted transactions, what compaction removed) are passed over; the range
    ends when a record or the end of the partition lies at or behind its end, so such offsets never block.

    Args:
        skip_deleted: begin at the first offset that still exists when earlier ones were deleted.

    Raises:
        TopicError: the range, or a part of it, is no longer there; or the topic is gone.
        EndpointError: nothing arrived for `stall_seconds`, or the brokers refuse the request.
    """
    if wanted.start >= wanted.end:
        return
    with borrow_consumer(endpoint) as borrowed:
        from confluent_kafka import TopicPartition

        consumer = borrowed.client
        place = TopicPartition(wanted.topic, wanted.partition, wanted.start)
        if skip_deleted:
            place.offset = max(wanted.start, first_offset(borrowed, wanted))
            if place.offset >= wanted.end:
                return
        borrowed.assign([place])
        position, since = place.offset, time.monotonic()
        while position < wanted.end:
            messages = consumer.consume(min(FETCH_RECORDS, wanted.end - position), timeout=0.05)
            if not messages:
                borrowed.raise_if_refused()
                if time.monotonic() - since > stall_seconds:
                    with suppress(EndpointError):  # a partition that is gone is a better reason
                        first_offset(borrowed, wanted, timeout=min(stall_seconds, REQUEST_SECONDS))
                    raise _stalled(endpoint, wanted, position, stall_seconds)
                continue
            since = time.monotonic()
            records, position = _sort_out(endpoint, wanted, messages, position)
            if records:
                yield records


def fetch_together(
    endpoint: KafkaEndpoint, ranges: Sequence[OffsetRange], *, most_bytes: int, stall_seconds: float = STALL_SECONDS
) -> dict[Place, list[Message]] | None:
    """The records of ranges of as many partitions, by topic and partition in offset order, held in memory.

    One after the other each partition would wait until the brokers have answered the fetch of the one before, which
    they hold back while nothing is new.

    Returns:
        None when they take more than `most_bytes`, or when two ranges are of one partition.

    Raises:
        TopicError, EndpointError: as `fetch_range`.
    """
    from confluent_kafka import TopicPartition

    left = {(item.topic, item.partition): item for item in ranges if item.offsets}
    found: dict[Place, list[Message]] = {(item.topic, item.partition): [] for item in ranges}
    if len(found) < len(ranges):
        return None
    positions = {place: item.start for place, item in left.items()}
    size = 0
    if not left:
        return found
    with borrow_consumer(endpoint) as borrowed:
        consumer = borrowed.client
        borrowed.assign([TopicPartition(*place, item.start) for place, item in left.items()])
        since = time.monotonic()
        while left:
            missing = sum(item.end - positions[place] for place, item in left.items())
            messages = consumer.consume(min(FETCH_RECORDS, missing), timeout=0.05)
            borrowed.raise_if_refused()
            if time.monotonic() - since > stall_seconds:
                stalled, wanted = next(iter(left.items()))
                raise _stalled(endpoint, wanted, positions[stalled], stall_seconds)
            for place, some in _by_place(messages, next(iter(left))).items():
                item = left.get(place)
                if item is None:  # behind the end of a range that is whole
                    continue
                before = positions[place]
                records, positions[place] = _sort_out(endpoint, item, some, before)
                since = time.monotonic() if positions[place] > before else since
                found[place] += records
                size += sum(map(len, records))
                if positions[place] >= item.end:
                    del left[place]
            if size > most_bytes:
                return None
    return found


def _by_place(messages: Sequence[Message], default: Place) -> dict[Place, list[Message]]:
    """Messages by their partition; events of the client itself by a default one."""
    found: dict[Place, list[Message]] = {}
    for message in messages:
        topic = message.topic()
        found.setdefault(default if topic is None else (topic, message.partition()), []).append(message)
    return found


def _stalled(endpoint: KafkaEndpoint, wanted: OffsetRange, position: int, seconds: float) -> EndpointError:
    return EndpointError(
        f"Kafka {endpoint.servers}: nothing came of {wanted.topic}-{wanted.partition} after offset {position} for"
        f" {seconds:.0f} s, though it was planned up to {wanted.end}"
    )


def first_offset(borrowed: BorrowedConsumer, wanted: OffsetRange, *, timeout: float = REQUEST_SECONDS) -> int:
    """The first offset that a partition still has.

    Raises:
        TopicError: the partition does not exist.
        EndpointError: the brokers do not answer.
    """
    from confluent_kafka import KafkaException, TopicPartition

    place = TopicPartition(wanted.topic, wanted.partition)
    where = f"{wanted.topic}-{wanted.partition}"
    deadline = time.monotonic() + timeout
    while True:
        try:
            return int(borrowed.client.get_watermark_offsets(place, timeout=min(0.5, timeout))[0])
        except KafkaException as error:
            reason = error.args[0]
        if reason.name() in ("_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"):
            raise TopicError(f"{where}: the partition does not exist (any more)")
        borrowed.client.poll(0)  # serves the events
        borrowed.raise_if_refused()
        if reason.name() not in {"_TIMED_OUT", "_TRANSPORT", *NO_LEADER} or time.monotonic() >= deadline:
            raise EndpointError(f"{where}: the brokers do not tell its offsets: {reason.str()}")
        time.sleep(0.05)


def _sort_out(
    endpoint: KafkaEndpoint, wanted: OffsetRange, messages: list[Message], position: int
) -> tuple[list[Message], int]:
    """Takes events and what lies behind the range out of what the client handed over.

    Returns:
        The records, and the position: the next offset to read.
    """
    kind = type(messages[0])
    if any(map(kind.error, messages)):
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.name() == "_PARTITION_EOF":
                position = max(position, message.offset())
            elif error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
                raise _deleted(wanted, error.str())
            elif error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"):
                raise TopicError(f"{wanted.topic}-{wanted.partition}: the topic is gone: {error.str()}")
            elif error.fatal() or (not error.retriable() and not _is_passing(error.name())):
                reason = redact(error.str(), tuple(endpoint.properties.secrets()))
                raise EndpointError(
                    f"Kafka {endpoint.servers}: reading {wanted.topic}-{wanted.partition} failed: {reason}"
                    + remedy(error.name())
                )
        messages = records
    if messages:
        position = max(position, messages[-1].offset() + 1)
        while messages and messages[-1].offset() >= wanted.end:
            messages.pop()
    return messages, position


def _is_passing(name: str) -> bool:
    """Events that the client mends by itself; when it cannot, the range stalls and says so.

    A user without rights on the group is one of them: the client asks for its coordinator, though a reader of assigned
    partitions that commits nothing has no use for it.
    """
    return name in (
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_TIMED_OUT",
        "_RESOLVE",
        "_MAX_POLL_EXCEEDED",
        "GROUP_AUTHORIZATION_FAILED",
    )


def _deleted(wanted: OffsetRange, reason: str) -> TopicError:
    return TopicError(
        f"{wanted.topic}-{wanted.partition}: offsets from {wanted.start} (up to {wanted.end}) were planned, but are"
        f" deleted: {reason}; plan again, with 'on-data-loss' = 'continue' to go on behind the gap"
    )
