"""Records of random histories, packed as disjoint groups of keys into one topic, encoded by code of their own."""

from __future__ import annotations

import json
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

KEYS: Final = 4
"""Keys of a history; key `id` belongs to history `id // KEYS`."""
START: Final = 1_700_000_000_000
SKEW: Final = 90_000
"""Clocks of producers differ by so many milliseconds at most."""
_OTHER_KEY: Final = b'{"id":-1,'
COLUMNS: Final = {"id": "BIGINT", "n": "BIGINT", "s": "STRING", "ds": "STRING"}


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    return bytes([*out, value])


def _avro_union(value: int | str | None) -> bytes:
    if value is None:
        return b"\0"
    if isinstance(value, int):
        return b"\2" + _varint(value)
    return b"\2" + _varint(len(value.encode())) + value.encode()


def _json_key(chance: random.Random, key: int) -> bytes:
    return chance.choice([b'{"id":%d}', b'{"id":%d}', b'{"id": %d}', b' {"id":"%d"}', b'{"x":null,"id":%d}']) % key


def _json_value(chance: random.Random, row: Mapping[str, Any]) -> bytes:
    copy = {"id": row["id"]} if chance.random() < 0.5 else {}
    rest = {name: value for name, value in row.items() if name != "id" and (value is not None or chance.random() < 0.5)}
    return json.dumps(copy | rest, ensure_ascii=chance.random() < 0.5, indent=chance.choice([None, None, 1])).encode()


def _csv_text(value: Any) -> str:
    return "NIL" if value is None else f'"{value}"' if isinstance(value, str) else str(value)


@dataclass(frozen=True)
class Encoding:
    """How records of a format are written.

    Attributes:
        options: of the declared table.
        columns: that values can carry.
        bad: values that no reader of the format takes.
    """

    key: Callable[[random.Random, int], bytes]
    value: Callable[[random.Random, Mapping[str, Any]], bytes]
    options: Mapping[str, str]
    columns: tuple[str, ...]
    bad: tuple[bytes, ...]


ENCODINGS: Final[Mapping[str, Encoding]] = {
    "json": Encoding(
        _json_key,
        _json_value,
        {},
        ("id", "n", "s", "ds"),
        (
            b"",
            b"nothing",
            b'{"n":1',
            b'{"n":"one"}',
            b'{"n":9223372036854775808}',
            _OTHER_KEY + b'"n":1}',
            b'{"s":"\xff"}',
        ),
    ),
    "csv": Encoding(
        lambda chance, key: chance.choice([b"%d", b'"%d"', b" %d"]) % key,
        lambda chance, row: ",".join(_csv_text(row[name]) for name in ("n", "s", "ds")).encode(),
        {"value.csv.null-literal": "NIL", "value.fields-include": "EXCEPT_KEY"},
        ("n", "s", "ds"),
        (b"one,a,b", b"1", b"1,a,b,c", b"9223372036854775808,a,b"),
    ),
    "avro": Encoding(
        lambda chance, key: _varint(key),
        lambda chance, row: b"".join(_avro_union(row[name]) for name in ("n", "s", "ds")),
        {"value.fields-include": "EXCEPT_KEY"},
        ("n", "s", "ds"),
        (b"", b"\2", b"\2\2\2\x0aab", b"\4"),
    ),
    "raw": Encoding(
        lambda chance, key: struct.pack(">q", key),
        lambda chance, row: struct.pack(">q", row["n"] or 0),
        {"value.fields-include": "EXCEPT_KEY"},
        ("n",),
        (b"", b"1234567", b"123456789"),
    ),
}


@dataclass
class Sent:
    """A record that the topic has.

    Attributes:
        good: whether it can be decoded, as the table is declared at the end.
    """

    key: int
    good: bool
    tombstone: bool


@dataclass
class Histories:
    """Random histories on one topic.

    Attributes:
        missing: share of values that lack a column, for tables that demand all of them at first.
        aborted: share of records in transactions that are aborted.
        sent: partition to offset to what is there.
    """

    bootstrap: str
    topic: str
    encoding: Encoding
    chance: random.Random
    count: int
    partitions: int
    missing: bool = False
    aborted: float = 0.0
    extra: bool = False
    clock: int = 0
    sent: dict[int, dict[int, Sent]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def produce(self, *, share: float) -> None:
        """Sends some records of every history, or of nearly every one, all in a random order."""
        steps = [
            history
            for history in range(self.count)
            for _ in range(self.chance.randint(0, round(2 * share)))
        ]  # fmt: skip
        self.chance.shuffle(steps)
        records = [self._record(history) for history in steps]
        committed = records if not self.aborted else list(self._transactions(records))
        if not self.aborted:
            self._send(self._producer(), records)
        self.counts["records"] += len(committed)
        self.counts["tombstones"] += sum(sent.tombstone for *_, sent in committed)
        self.counts["undecodable"] += sum(not sent.good for *_, sent in committed)

    def _record(self, history: int) -> tuple[int, bytes, bytes | None, int, Sent]:
        chance = self.chance
        self.clock += 7
        key = history * KEYS + chance.randrange(KEYS)
        roll = chance.random()
        value: bytes | None = None
        if roll > 0.2:
            value = self.encoding.value(chance, self._row(key))
        bad = roll > 0.95
        if bad:
            # Where values have no key, one that contradicts the key is as good as any.
            spoiled = [item for item in self.encoding.bad if not (self.missing and item.startswith(_OTHER_KEY))]
            value = chance.choice(spoiled)
        elif value is not None and self.missing and chance.random() < 0.1:
            value = b'{"n":%d}' % chance.randrange(50)
        time = START + self.clock + chance.choice([0, 0, 0, chance.randint(-SKEW, SKEW)])
        return key % self.partitions, self.encoding.key(chance, key), value, time, Sent(key, not bad, value is None)

    def _row(self, key: int) -> dict[str, Any]:
        chance = self.chance
        row: dict[str, Any] = {
            "id": key,
            "n": chance.choice([None, chance.randrange(10), chance.randint(-(2**63), 2**63 - 1)]),
            "s": chance.choice([None, "", "a", "ä€", "it's \\ \t", f"text {self.clock}"]),
            "ds": f"d{chance.randrange(5)}",
        }
        if self.missing:
            row["n"], row["s"] = row["n"] or 0, row["s"] or ""
        return row | ({"extra": chance.choice([None, "more"])} if self.extra else {})

    def _producer(self, **more: Any) -> Any:
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 20, "enable.idempotence": True, **more})

    def _transactions(self, records: list[tuple[int, bytes, bytes | None, int, Sent]]) -> Iterator[Any]:
        producer = self._producer(**{"transactional.id": f"histories-{self.topic}"})
        producer.init_transactions(60)
        for start in range(0, len(records), 400):
            part = records[start : start + 400]
            producer.begin_transaction()
            if self.chance.random() < self.aborted:
                for partition, key, value, time, _ in part:
                    producer.produce(self.topic, key=key, value=value, partition=partition, timestamp=time)
                producer.flush(60)
                producer.abort_transaction(60)
                self.counts["aborted records"] += len(part)
                continue
            self._send(producer, part)
            producer.commit_transaction(60)
            yield from part

    def _send(self, producer: Any, records: list[tuple[int, bytes, bytes | None, int, Sent]]) -> None:
        def delivered(error: Any, message: Any, sent: Sent) -> None:
            assert error is None, str(error)
            self.sent.setdefault(message.partition(), {})[message.offset()] = sent

        for partition, key, value, time, sent in records:
            while True:
                try:
                    producer.produce(
                        self.topic,
                        key=key,
                        value=value,
                        partition=partition,
                        timestamp=time,
                        on_delivery=lambda error, message, sent=sent: delivered(error, message, sent),
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(120) == 0
