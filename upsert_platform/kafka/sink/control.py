"""What the platform remembers of a topic that it writes: a few records in a compacted control topic beside it.

One partition, keys that name the written topic and the kind of record. Group offsets would do for a position, but the
broker forgets them after a week without readers. Records are written in transactions, so that a writer which lost its
lease is fenced by the broker.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.destination import Verdict
from upsert_platform.errors import EndpointError
from upsert_platform.kafka.apsara import ApsaraInstance
from upsert_platform.kafka.endpoint import REQUEST_SECONDS, KafkaEndpoint
from upsert_platform.kafka.refusals import remedy

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer

STATE: Final = "state"
VERDICT: Final = "verdict"
LEASE: Final = "lease"
_SHARE: Final = "share/"
MAX_MARKS: Final = 24
"""More than the batches from which a check draws its sample of earlier keys."""
MIN_MARKS: Final = 2
MAX_MARKED_OFFSETS: Final = 40_000
"""A control record stays below half of the megabyte that a broker takes by default."""
_TOPIC_CONFIG: Final = {"cleanup.policy": "compact", "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}


@dataclass(frozen=True, slots=True)
class Applied:
    """Position of a written topic.

    Attributes:
        topic_id: of the topic that holds the batch; another one means that it was recreated.
        shares: how many writing tasks the topic has had at most; each has a transactional id to fence.
        partitions: of the topic when it was written.
        marks: batches that were applied, oldest first, each with the end of every partition then: what later batches
            wrote lies behind.
    """

    batch: int = 0
    changelog_id: str = ""
    topic_id: str = ""
    shares: int = 0
    partitions: int = 0
    marks: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def marked(self, batch: int, ends: Sequence[int]) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """The marks with one more, and without the oldest ones beyond what a control record should hold."""
        kept = max(MIN_MARKS, min(MAX_MARKS, MAX_MARKED_OFFSETS // max(1, len(ends))))
        return (*(mark for mark in self.marks if mark[0] < batch), (batch, tuple(ends)))[-kept:]


@dataclass(frozen=True, slots=True)
class Tenure:
    """Who holds the lease.

    Attributes:
        token: unique per holder, so that a holder knows its own record.
        expires: seconds since 1970.
    """

    holder: str = ""
    token: str = ""
    epoch: int = 0
    expires: float = 0.0


@dataclass(frozen=True, slots=True)
class Share:
    """What one writing task committed, in the transaction that holds its rows.

    Attributes:
        topic_id: of the topic that holds the rows.
        upto: last batch of the span.
        shares: number of tasks of that write, which decides what rows a share has.
    """

    changelog_id: str
    topic_id: str
    upto: int
    shares: int


@dataclass(frozen=True, slots=True)
class Control:
    """All control records of a written topic."""

    applied: Applied = field(default_factory=Applied)
    tenure: Tenure = field(default_factory=Tenure)
    verdict: Verdict | None = None
    shares: Mapping[int, Share] = field(default_factory=dict)

    def unfinished(self, *, changelog_id: str, topic_id: str) -> Share | None:
        """A share of a write that was never recorded as applied: one that broke off between its tasks' commits."""
        same = (self.applied.changelog_id, self.applied.topic_id) == (changelog_id, topic_id)
        for share in self.shares.values():
            of_this_write = (share.changelog_id, share.topic_id) == (changelog_id, topic_id)
            if of_this_write and not (same and share.upto <= self.applied.batch):
                return share
        return None


class ControlTopic:
    """Reads and writes the control records of one written topic.

    Args:
        name: of the control topic.
        topic: the one that is written.
        apsara: the instance that creates topics, where the Kafka protocol does not.
    """

    def __init__(self, endpoint: KafkaEndpoint, name: str, *, topic: str, apsara: ApsaraInstance | None = None) -> None:
        self.endpoint = endpoint
        self._apsara = apsara
        self.name = name
        self.topic = topic

    def exists(self) -> bool:
        """Whether the control topic is there.

        Raises:
            EndpointError: the brokers cannot be reached.
        """
        with self.endpoint.admin() as admin:
            return admin.has_topic(self.name)

    def create(self) -> None:
        """Creates the control topic if it is missing."""
        from upsert_platform.kafka.topics import create_topic

        if not self.exists():
            create_topic(
                self.endpoint, self.name, partitions=1, replication=None, config=_TOPIC_CONFIG, apsara=self._apsara
            )

    def read(self) -> Control:
        """The last record of each kind; initial values where there is none, or no control topic.

        Raises:
            EndpointError: the brokers cannot be reached.
        """
        if not self.exists():
            return Control()
        found: dict[str, Any] = {}
        for key, value in self._records():
            name = json.loads(key)
            if name["topic"] == self.topic:
                found[name["record"]] = None if value is None else json.loads(value)
        return Control(
            _applied(found.get(STATE) or {}),
            Tenure(**(found.get(LEASE) or {})),
            _verdict(found.get(VERDICT)),
            {
                int(name.removeprefix(_SHARE)): Share(**value)
                for name, value in found.items()
                if name.startswith(_SHARE) and value is not None
            },
        )

    def _records(self) -> list[tuple[bytes, bytes | None]]:
        from confluent_kafka import TopicPartition

        consumer = self.endpoint.open_consumer(**{"isolation.level": "read_committed"})
        try:
            low, end = self._bounds(consumer)
            records: list[tuple[bytes, bytes | None]] = []
            if low >= end:
                return records
            consumer.assign([TopicPartition(self.name, 0, low)])
            position, deadline = low, time.monotonic() + REQUEST_SECONDS
            while position < end:
                messages = consumer.consume(2_000, timeout=0.02)
                if not messages and time.monotonic() > deadline:
                    raise EndpointError(f"Kafka {self.endpoint.servers}: control topic '{self.name}' cannot be read")
                for message in messages:
                    error = message.error()
                    if error is None:
                        position = message.offset() + 1
                        key = message.key()
                        if key is not None:
                            records.append((key, message.value()))
                    elif error.name() == "_PARTITION_EOF":
                        position = max(position, message.offset())
                    elif error.name() == "TOPIC_AUTHORIZATION_FAILED":
                        raise EndpointError(
                            f"Kafka {self.endpoint.servers}: control topic '{self.name}' cannot be read:"
                            f" {error.str()}{remedy(error.name())}"
                        )
            return records
        finally:
            consumer.close()

    def _bounds(self, consumer: Consumer) -> tuple[int, int]:
        from confluent_kafka import KafkaException, TopicPartition

        try:
            low, end = consumer.get_watermark_offsets(TopicPartition(self.name, 0), timeout=REQUEST_SECONDS)
        except KafkaException as error:
            raise EndpointError(
                f"Kafka {self.endpoint.servers}: control topic '{self.name}' cannot be read: {error.args[0].str()}"
            ) from None
        return int(low), int(end)

    def produce(
        self,
        producer: Producer,
        record: str,
        value: Mapping[str, Any],
        *,
        on_delivery: Callable[[KafkaError | None, Any], None] | None = None,
    ) -> None:
        """Hands a record to a producer, into its open transaction if it has one."""
        key = json.dumps({"topic": self.topic, "record": record}, sort_keys=True)
        producer.produce(self.name, key=key, value=json.dumps(dict(value)), partition=0, on_delivery=on_delivery)

    def produce_share(self, producer: Producer, index: int, share: Share) -> None:
        """Hands the record of a writing task to its transaction."""
        self.produce(producer, f"{_SHARE}{index}", asdict(share))

    def record_verdict(self, verdict: Verdict) -> None:
        """Keeps the result of a check; needs no lease, since a verdict names its batch."""
        self.create()
        producer = self.endpoint.open_producer()
        value = {**asdict(verdict), "at": verdict.at.isoformat()}
        failures: list[KafkaError] = []
        self.produce(producer, VERDICT, value, on_delivery=lambda error, _: failures.append(error) if error else None)
        left = producer.flush(REQUEST_SECONDS)
        if left or failures:
            reason = f": {failures[0].str()}{remedy(failures[0].name())}" if failures else " in time"
            raise EndpointError(f"Kafka {self.endpoint.servers}: the verdict was not written to '{self.name}'{reason}")


def _applied(value: dict[str, Any]) -> Applied:
    marks = tuple((batch, tuple(ends)) for batch, ends in value.get("marks", ()))
    return Applied(**{**value, "marks": marks})


def _verdict(value: Any) -> Verdict | None:
    return None if value is None else Verdict(**{**value, "at": datetime.fromisoformat(value["at"])})
