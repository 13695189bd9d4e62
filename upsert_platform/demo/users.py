"""Makes users and produces them to an upsert topic: JSON key and value, a null value deletes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

TOPIC = "users"
PARTITIONS = 4
REGIONS = ("hangzhou", "beijing", "shanghai", "shenzhen", "singapore", "test")
_NAMES = ("Ada", "Bo", "Chen", "Dilnoza", "Emil", "Fatima", "Goro", "Hana", "Ines", "Jun")
_EPOCH = datetime(2026, 11, 1, 10)  # noqa: DTZ001 - the column is a TIMESTAMP without a zone


@dataclass
class Users:
    """The truth beside the producer: what every key should be in the end.

    Attributes:
        rows: user id to the last value; deleted users are absent.
        produced: records made so far.
    """

    seed: int = 7
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    produced: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def first_wave(self, count: int) -> Iterator[tuple[bytes, bytes | None]]:
        """Inserts `count` users, each touched again now and then."""
        for user_id in range(1, count + 1):
            yield self._put(user_id)
            if self._random.random() < 0.1:
                yield self._put(user_id)

    def second_wave(self, count: int) -> Iterator[tuple[bytes, bytes | None]]:
        """Updates, deletes, inserts again and adds users, `count` records in all."""
        highest = max(self.rows, default=0)
        for _ in range(count):
            choice = self._random.random()
            user_id = self._random.randint(1, highest)
            if choice < 0.2:
                yield self._delete(user_id)
            elif choice < 0.3:
                highest += 1
                yield self._put(highest)
            else:
                yield self._put(user_id)

    def make(self, user_id: int) -> dict[str, Any]:
        """A random row of a user; not noted as produced."""
        return {
            "user_id": user_id,
            "name": f"{self._random.choice(_NAMES)} {user_id}",
            "region": self._random.choice(REGIONS),
            "balance": Decimal(self._random.randint(-10_000, 1_000_000)) / 100,
            "updated_at": _EPOCH + timedelta(milliseconds=self.produced),
        }

    def _put(self, user_id: int) -> tuple[bytes, bytes]:
        self.produced += 1
        row = self.make(user_id)
        self.rows[user_id] = row
        return encode_key(user_id), encode_value(row)

    def _delete(self, user_id: int) -> tuple[bytes, None]:
        self.produced += 1
        self.rows.pop(user_id, None)
        return encode_key(user_id), None


def encode_key(user_id: int) -> bytes:
    """The key as Flink's JSON format writes it."""
    return json.dumps({"user_id": user_id}, separators=(",", ":")).encode()


def encode_value(row: Mapping[str, Any]) -> bytes:
    """The value as Flink's JSON format writes it."""
    at: datetime = row["updated_at"]
    text = {
        **row,
        "balance": float(row["balance"]),
        "updated_at": at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03d}",
    }
    return json.dumps(text, separators=(",", ":")).encode()


def produce(
    bootstrap_servers: str,
    records: Iterator[tuple[bytes | None, bytes | None]],
    *,
    topic: str = TOPIC,
    compacted: bool = True,
) -> int:
    """Creates the topic if it is missing, sends the records, and returns how many were acknowledged.

    Args:
        compacted: the topic keeps the last record of each key; else every record.

    Raises:
        RuntimeError: a record was not acknowledged.
    """
    from confluent_kafka import KafkaError, KafkaException, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    policy = {"cleanup.policy": "compact" if compacted else "delete"}
    wanted = NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1, config=policy)
    try:
        admin.create_topics([wanted])[topic].result(30)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    failures: list[str] = []
    sent = 0
    # The partition that a Java producer would choose, so that Flink and this producer agree.
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5, "partitioner": "murmur2_random"})

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    for key, value in records:
        while True:
            try:
                producer.produce(topic, key=key, value=value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        sent += 1
        producer.poll(0)
    producer.flush(60)
    if failures:
        raise RuntimeError(f"{len(failures)} records were not acknowledged, the first: {failures[0]}")
    return sent
