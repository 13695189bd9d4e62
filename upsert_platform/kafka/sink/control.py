"""The state of a topic that the platform writes: a few records in a compacted control topic beside it.

Group offsets would do for a position, but the broker forgets them after a week without readers. Position, verdict and
lease are in the first partition and written by the driver alone, in transactions of a moment, so that a writer which
lost its lease is fenced by the broker. What tasks commit with their rows is in the second one: the open transaction of
a task that died hides nothing of the first.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.destination import BatchSpan, Verdict
from upsert_platform.core.errors import EndpointError
from upsert_platform.kafka.apsara import ApsaraInstance
from upsert_platform.kafka.endpoint import REQUEST_SECONDS, KafkaEndpoint
from upsert_platform.kafka.options import CONTROL_TOPIC, UpsertKafkaSettings
from upsert_platform.kafka.refusals import NO_LEADER, remedy
from upsert_platform.kafka.sink.transactions import Fenced, in_transaction, open_transactional
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.kafka.topics import add_partitions, create_topic
from upsert_platform.writing.lease import Tenure

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

STATE: Final = "state"
VERDICT: Final = "verdict"
LEASE: Final = "lease"
_SHARE: Final = "share/"
_RECORDS: Final = 0
_SHARES: Final = 1
_NOT_YET: Final = NO_LEADER | {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION"}
"""Errors for a topic that is known to be there: the broker that was asked does not know it yet."""
_LONGEST_NAME: Final = 249
_LONGEST_NAME_APSARA: Final = 64
LEGACY_CONTROL_TOPIC: Final = "upsert-platform-control"
"""Held the records of all topics before each had a control topic of its own; read where that holds none."""
MAX_MARKS: Final = 24
"""More than the batches from which a check draws its sample of earlier keys."""
MIN_MARKS: Final = 2
MAX_MARKED_OFFSETS: Final = 40_000
"""A control record stays below half of the megabyte that a broker takes by default."""
STABLE_SECONDS: Final = 25.0
"""How long reading waits for open transactions: brokers end those of a dead driver in this time."""
DRIVER_TRANSACTION_MS: Final = 10_000
_TOPIC_CONFIG: Final = {"cleanup.policy": "compact", "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}


@dataclass(frozen=True, slots=True)
class Applied:
    """Position of a written topic.

    Attributes:
        topic_id: of the topic that holds the batch; another one means that it was recreated.
        shares: how many writing tasks may have left a transaction open; none after a write that came to its end.
        prefix: of their transactional ids; empty for the declared one.
        partitions: of the topic when it was written.
        commit: identity of the changelog's commit of the batch; empty if unknown.
        begun: changelog, last batch and its commit of a write whose tasks commit one by one; None once it is applied.
        write: identity of that write; empty once it is applied, of one that nobody may go on with, and of one that an
            earlier version of the platform began.
        marks: batches that were applied, oldest first, each with the end of every partition then: what later batches
            wrote lies behind.
    """

    batch: int = 0
    changelog_id: str = ""
    topic_id: str = ""
    shares: int = 0
    partitions: int = 0
    marks: tuple[tuple[int, tuple[int, ...]], ...] = ()
    prefix: str = ""
    commit: str = ""
    begun: tuple[str, int, str] | None = None
    write: str = ""

    def resumed_by(self, span: BatchSpan) -> str:
        """Return the identity of the write that broke off and that a span goes on with; empty where it is another one.

        It is the same write if the changelog still has the batch that it was to end with: by the identity of a commit,
        since a number may be another batch's in a lake that was restored, and another frame's where assets write them.
        """
        if self.begun is None or span.repeats or not span.commit:
            return ""
        changelog_id, upto, commit = self.begun
        return self.write if changelog_id == span.changelog_id and commit and upto <= span.upto else ""

    def marked(self, batch: int, ends: Sequence[int]) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """The marks with one more, and without the oldest ones beyond what a control record should hold."""
        kept = max(MIN_MARKS, min(MAX_MARKS, MAX_MARKED_OFFSETS // max(1, len(ends))))
        return (*(mark for mark in self.marks if mark[0] < batch), (batch, tuple(ends)))[-kept:]


@dataclass(frozen=True, slots=True)
class Share:
    """The commit of one writing task, part of the transaction with its rows.

    Attributes:
        topic_id: of the topic that holds the rows.
        upto: last batch of the span.
        shares: number of tasks of that write, which decides what rows a share has.
        write: identity of that write (`Applied.write`). The record stays when the write is over, and says nothing of
            any other; one without an identity, as earlier versions of the platform left them, counts for none.
    """

    changelog_id: str
    topic_id: str
    upto: int
    shares: int
    write: str = ""

    def is_of(self, other: Share) -> bool:
        """Return whether both are of the same write, which may have grown by batches when it was resumed."""
        return bool(self.write) and replace(self, upto=0) == replace(other, upto=0)


@dataclass(frozen=True, slots=True)
class Control:
    """The control records that the driver writes."""

    applied: Applied = field(default_factory=Applied)
    lease: Tenure = field(default_factory=Tenure)
    verdict: Verdict | None = None


def unfinished_share(shares: Mapping[int, Share], *, write: str, changelog_id: str, topic_id: str) -> Share | None:
    """A share of a write that was never recorded as applied: one that broke off between its tasks' commits."""
    for share in shares.values():
        if share.is_of(Share(changelog_id, topic_id, share.upto, share.shares, write)):
            return share
    return None


def control_topic_name(settings: UpsertKafkaSettings) -> str:
    """The declared control topic of a written topic, or one of its own."""
    if settings.control_topic is not None:
        return settings.control_topic
    name = f"{CONTROL_TOPIC}{settings.topic[0]}"
    longest = _LONGEST_NAME if settings.apsara is None else _LONGEST_NAME_APSARA
    if len(name) <= longest:
        return name
    return f"{name[: longest - 17]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


class ControlTopic:
    """Reads and writes the control records of one written topic.

    Args:
        name: of the control topic.
        topic: the one that is written.
        legacy: control topic whose records count where `name` has none.
        apsara: the instance that creates topics, where the Kafka protocol does not.
    """

    def __init__(
        self,
        endpoint: KafkaEndpoint,
        name: str,
        *,
        topic: str,
        legacy: str | None = None,
        apsara: ApsaraInstance | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.name = name
        self.topic = topic
        self._legacy = legacy
        self._apsara = apsara

    @classmethod
    def of(cls, table: KafkaTable) -> ControlTopic:
        """The one of a declared destination."""
        settings = table.settings
        assert isinstance(settings, UpsertKafkaSettings)
        return cls(
            table.endpoint,
            control_topic_name(settings),
            topic=settings.topic[0],
            legacy=LEGACY_CONTROL_TOPIC if settings.control_topic is None else None,
            apsara=None if settings.apsara is None else settings.apsara.for_control(),
        )

    def create(self) -> None:
        """Creates the control topic if it is missing; one without a partition for tasks is given it.

        Raises:
            EndpointError: the brokers cannot be reached, or do not let this user do so.
        """

        with self.endpoint.admin() as admin:
            found = admin.partitions(self.name)
        if not found:
            wanted = _SHARES + 1
            create_topic(
                self.endpoint, self.name, partitions=wanted, replication=None, config=_TOPIC_CONFIG, apsara=self._apsara
            )
        elif found <= _SHARES:
            add_partitions(self.endpoint, self.name, _SHARES + 1)

    def is_ready(self) -> bool:
        """Return whether `create` would change nothing.

        Raises:
            EndpointError: the brokers cannot be reached.
        """
        with self.endpoint.admin() as admin:
            return admin.partitions(self.name) > _SHARES

    def read(self, *, waits: bool = True) -> Control:
        """The last record of each kind; initial values where there is none, or no control topic.

        Args:
            waits: whether records behind an open transaction are waited for; without, what is visible is given.

        Raises:
            EndpointError: the brokers cannot be reached, or a transaction stays open.
        """
        found = self._last(self.name, (_RECORDS,), waits=waits)
        if STATE not in found and self._legacy is not None:
            found = {**self._last(self._legacy, (_RECORDS,), waits=waits), **found}
        return Control(
            _applied(found.get(STATE) or {}), Tenure(**(found.get(LEASE) or {})), _verdict(found.get(VERDICT))
        )

    def shares(self) -> dict[int, Share]:
        """Return the commits of tasks by the number of their share.

        Raises:
            EndpointError: see `read`.
        """
        found = self._last(self.name, (_RECORDS, _SHARES))
        if not found and self._legacy is not None:
            found = self._last(self._legacy, (_RECORDS,))
        return {
            int(name.removeprefix(_SHARE)): Share(**value)
            for name, value in found.items()
            if name.startswith(_SHARE) and value is not None
        }

    def _last(self, name: str, partitions: Sequence[int], *, waits: bool = True) -> dict[str, Any]:
        """Values of the last records about the written topic; a later partition counts before an earlier one."""
        with self.endpoint.admin() as admin:
            there = admin.partitions(name)
        found: dict[str, Any] = {}
        for partition in partitions:
            for key, value in self._records(name, partition, waits=waits) if partition < there else ():
                about = json.loads(key)
                if about["topic"] == self.topic:
                    found[about["record"]] = None if value is None else json.loads(value)
        return found

    def _records(self, name: str, partition: int, *, waits: bool) -> list[tuple[bytes, bytes | None]]:
        """Committed records of a partition to its end: that of all records, where `waits`, of committed ones else."""
        from confluent_kafka import TopicPartition

        settings: dict[str, str | int] = {"isolation.level": "read_committed", "fetch.wait.max.ms": 10}
        consumer = self.endpoint.open_consumer(**settings)
        try:
            # Asked for first, since the client takes half a second to find the beginning by itself.
            place = TopicPartition(name, partition, self._beginning(consumer, name, partition))
            consumer.assign([place])
            records: list[tuple[bytes, bytes | None]] = []
            started, position = time.monotonic(), -1
            while True:
                for message in consumer.consume(2_000, timeout=0.02):
                    position = self._position(name, message, before=position)
                    if message.error() is None and (key := message.key()) is not None:
                        records.append((key, message.value()))
                if position >= 0 and (not waits or position >= self._end(consumer, place)):
                    return records
                waited = time.monotonic() - started
                if position < 0 and waited > REQUEST_SECONDS:
                    raise EndpointError(f"Kafka {self.endpoint.servers}: control topic '{name}' cannot be read")
                if waited > STABLE_SECONDS:
                    raise EndpointError(
                        f"Kafka {self.endpoint.servers}: an open transaction hides the last records of control topic"
                        f" '{name}'; brokers end it at its timeout, run it again then"
                    )
        finally:
            consumer.close()

    def _beginning(self, consumer: Consumer, name: str, partition: int) -> int:
        from confluent_kafka import KafkaException, TopicPartition

        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                return int(consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=REQUEST_SECONDS)[0])
            except KafkaException as error:
                reason = error.args[0]
            if reason.name() not in _NOT_YET or time.monotonic() >= deadline:
                raise EndpointError(
                    f"Kafka {self.endpoint.servers}: control topic '{name}' cannot be read:"
                    f" {reason.str()}{remedy(reason.name())}"
                )
            time.sleep(0.05)

    def _position(self, name: str, message: Message, *, before: int) -> int:
        """Return the end of the committed records once it is reached."""
        error = message.error()
        if error is None:
            return before
        if error.name() == "_PARTITION_EOF":
            return int(message.offset() or 0)
        if error.name() == "TOPIC_AUTHORIZATION_FAILED":
            raise EndpointError(
                f"Kafka {self.endpoint.servers}: control topic '{name}' cannot be read:"
                f" {error.str()}{remedy(error.name())}"
            )
        return before

    @staticmethod
    def _end(consumer: Consumer, place: Any) -> int:
        """The end of all records, of committed and open transactions, as the last fetch told it."""
        return int(consumer.get_watermark_offsets(place, cached=True)[1])

    def produce(
        self,
        producer: Producer,
        record: str,
        value: Mapping[str, Any] | None,
        *,
        partition: int = _RECORDS,
        on_delivery: Callable[[KafkaError | None, Any], None] | None = None,
    ) -> None:
        """Hands a record to a producer, into its open transaction if it has one; no value takes the record away."""
        key = json.dumps({"topic": self.topic, "record": record}, sort_keys=True)
        text = None if value is None else json.dumps(dict(value))
        producer.produce(self.name, key=key, value=text, partition=partition, on_delivery=on_delivery)

    def produce_share(self, producer: Producer, index: int, share: Share) -> None:
        """Hands the record of a writing task to its transaction."""
        self.produce(producer, f"{_SHARE}{index}", asdict(share), partition=_SHARES)

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

    def swap_verdict(self, old: Verdict | None, new: Verdict) -> bool:
        """Keeps a verdict in the place of another one, and returns whether that was still there.

        Under a transactional id of verdicts alone: of two that come at once, one sees what the other has written, or
        is refused when it commits.
        """
        self.create()
        within = dict.fromkeys(("transaction.timeout.ms", "delivery.timeout.ms"), DRIVER_TRANSACTION_MS)
        of_verdicts = f"upsert-platform.{self.name}.{self.topic}.verdict"
        producer = open_transactional(self.endpoint, of_verdicts, near=self.name, **within)
        if self.read().verdict != old:
            return False
        value = {**asdict(new), "at": new.at.isoformat()}
        try:
            in_transaction(producer, lambda: self.produce(producer, VERDICT, value))
        except Fenced:
            return False
        return True


def _applied(value: dict[str, Any]) -> Applied:
    marks = tuple((batch, tuple(ends)) for batch, ends in value.get("marks", ()))
    begun = value.get("begun")
    return Applied(**{**value, "marks": marks, "begun": None if begun is None else tuple(begun)})


def _verdict(value: Any) -> Verdict | None:
    return None if value is None else Verdict(**{**value, "at": datetime.fromisoformat(value["at"])})
