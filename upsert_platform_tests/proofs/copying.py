"""A writer that fills a topic at a steady rate, and its copy a moment later, as a job of another program does."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.proofs.test_faults import TOPIC, proven, write_project
from upsert_platform_tests.proofs.typed_rows import FLAT, columns, key_of, respelled, row_of, value_of

KEYS = 20_000
_SHARE = 0.02
"""Seconds between the portions of records that are sent at once."""
_MOST_SHARES = 5


class CopyingWriter(threading.Thread):
    """Sends records of random keys, one in ten a delete, and each of them to the copy after a delay.

    Args:
        rate: records a second.
        delay: seconds.
    """

    def __init__(self, servers: str, topic: str, copy: str, *, rate: int, delay: float) -> None:
        super().__init__(daemon=True)
        self.producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        self.topic, self.copy = topic, copy
        self.rate, self.delay = rate, delay
        self.written = 0
        self.began = time.monotonic()
        self.ended = threading.Event()

    def run(self) -> None:
        chosen = random.Random(31)
        values = [row_of(number) for number in range(500)]
        waiting: deque[tuple[float, int, dict[str, Any] | None]] = deque()
        self.began = time.monotonic()
        while not self.ended.is_set() or waiting:
            now = time.monotonic()
            # No more at once than a copy may be behind, on a machine that is too slow for the rate as well.
            upto = min((now - self.began) * self.rate, self.written + _MOST_SHARES * _SHARE * self.rate)
            while not self.ended.is_set() and self.written < upto:
                key = chosen.randrange(KEYS)
                value = None if chosen.random() < 0.1 else chosen.choice(values)
                self._send(self.topic, key, None if value is None else value_of(key, value), partition=key % 4)
                waiting.append((now + self.delay, key, value))
                self.written += 1
            while waiting and waiting[0][0] <= now:
                _, key, value = waiting.popleft()
                self._send(self.copy, key, None if value is None else respelled(key, value), partition=key % 3)
            time.sleep(_SHARE)
        assert self.producer.flush(30) == 0

    def _send(self, topic: str, key: int, value: bytes | None, *, partition: int) -> None:
        while True:
            try:
                self.producer.produce(topic, key=key_of(key), value=value, partition=partition)
            except BufferError:
                self.producer.poll(0.1)
                continue
            self.producer.poll(0)
            return


def prove_while_written(
    stack: Stack, spark: Any, make_topic: Callable[..., str], *, runs: int, rate: int = 5000
) -> tuple[list[str], float]:
    """Prove a copy again and again while it is written; after that put one row wrong, and prove that it is found.

    Returns:
        The rows that proofs named, up to the first proof with any, and records a second that were written meanwhile.
    """
    copy = make_topic(name=f"{stack.topic}-copy", partitions=3, config={"cleanup.policy": "compact"})
    kinds = columns(FLAT)
    write_project(
        stack.project,
        TOPIC.format(name="source", topic=stack.topic, columns=kinds),
        TOPIC.format(name="copied", topic=copy, columns=kinds),
        "INSERT INTO copied SELECT * FROM source;",
    )
    servers = stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
    writer = CopyingWriter(servers, stack.topic, copy, rate=rate, delay=0.5)
    writer.start()
    alarms: list[str] = []
    time.sleep(2)
    for _ in range(runs):
        proof = proven(stack, "copied", spark, settle=30.0, examples=3)
        alarms += [f"{row['status']} {row['key']}: {row['difference']}" for row in proof.found.sample]
        if not proof.equal:
            break
        assert proof.found.compared > KEYS // 10
    rate_seen = writer.written / (time.monotonic() - writer.began)
    writer.ended.set()
    writer.join(60)
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(copy, key=key_of(KEYS), value=respelled(KEYS, row_of(1)), partition=KEYS % 3)
    assert producer.flush(20) == 0
    proof = proven(stack, "copied", spark)
    assert (proof.found.extra, proof.found.missing, proof.found.stale) == (1, 0, 0)
    return alarms, rate_seen
