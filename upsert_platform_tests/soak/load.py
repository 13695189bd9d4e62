"""Random change of users on a topic, by a plain producer, with the truth and the place of every record beside it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.demo.users import Users, encode_key, encode_value

PARTITIONS = 4
Place = tuple[int, int]
"""Partition and offset."""


@dataclass
class Expected:
    """What should have become of the records of some offset ranges."""

    kept: int = 0
    superseded: int = 0
    quarantined: set[Place] = field(default_factory=set)


@dataclass
class Load:
    """Produces upserts, updates, tombstones and malformed values to the topic of a project.

    The value of a key is its highest decodable record or tombstone, so a malformed value leaves the truth as it is.

    Attributes:
        users: the truth, changed by what is produced.
        keys: user ids are from 1 to this.
        malformed: share of values that cannot be decoded.
        sent: per partition, offset to key bytes and whether the value can be decoded.
        deleted: user id to how many tombstones were sent for it.
    """

    bootstrap: str
    topic: str
    users: Users
    chance: random.Random
    keys: int
    malformed: float = 0.001
    tombstones: float = 0.15
    sent: dict[int, dict[int, tuple[bytes, bool]]] = field(
        default_factory=lambda: {number: {} for number in range(PARTITIONS)}
    )
    deleted: Counter[int] = field(default_factory=Counter)

    @property
    def records(self) -> int:
        """Records that the broker took."""
        return sum(len(offsets) for offsets in self.sent.values())

    @property
    def bad(self) -> int:
        """Records that cannot be decoded."""
        return sum(not good for offsets in self.sent.values() for _, good in offsets.values())

    def produce(self, count: int) -> None:
        """Sends `count` records and waits until the broker has them all."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 20, "enable.idempotence": True})
        for _ in range(count):
            user_id, key, value, good = self._record()
            while True:
                try:
                    producer.produce(
                        self.topic,
                        key=key,
                        value=value,
                        partition=user_id % PARTITIONS,
                        on_delivery=lambda error, message, note=(key, good): self._note(error, message, note),
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(120) == 0

    def expected(self, ranges: Iterable[RangeAccount]) -> Expected:
        """What becomes of the records of these ranges: within each, the last good record per key bytes is kept."""
        result = Expected()
        for part in ranges:
            offsets = self.sent[part.partition]
            kept: set[bytes] = set()
            for offset in range(part.end - 1, part.start - 1, -1):
                key, good = offsets[offset]
                if key in kept:
                    result.superseded += 1
                elif good:
                    kept.add(key)
                else:
                    result.quarantined.add((part.partition, offset))
            result.kept += len(kept)
        return result

    def _record(self) -> tuple[int, bytes, bytes | None, bool]:
        user_id = self.chance.randint(1, self.keys)
        key = encode_key(user_id)
        if self.chance.random() < 0.05:
            key = key.replace(b":", b": ")  # other bytes, the same key
        self.users.produced += 1
        drawn = self.chance.random()
        if drawn < self.malformed:
            return user_id, key, self._spoiled(user_id), False
        if drawn < self.malformed + self.tombstones:
            self.users.rows.pop(user_id, None)
            self.deleted[user_id] += 1
            return user_id, key, None, True
        row = self.users.make(user_id)
        self.users.rows[user_id] = row
        return user_id, key, encode_value(row), True

    def _spoiled(self, user_id: int) -> bytes:
        good = encode_value(self.users.make(user_id))
        return self.chance.choice(
            [
                good[: self.chance.randint(1, len(good) - 1)],
                b"\xff\xfe" + good,
                b"not json",
                good.replace(b'"balance":', b'"balance":"much","was":'),
                good.replace(b'"updated_at":"', b'"updated_at":"about '),
                good.replace(b'"user_id":', b'"user_id":1'),
            ]
        )

    def _note(self, error: Any, message: Any, note: tuple[bytes, bool]) -> None:
        assert error is None, str(error)
        self.sent[message.partition()][message.offset()] = note
