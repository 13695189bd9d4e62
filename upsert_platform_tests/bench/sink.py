"""The sink's writer against a bare producer that sends the same records, and a topic copied to another beside it."""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.core.destination import SEQUENCE, BatchSpan
from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.sink.destination import KafkaDestination
from upsert_platform.kafka.sink.encode import EncodedBlock, RecordEncoder
from upsert_platform.kafka.sink.lease import KafkaLease
from upsert_platform.kafka.sink.sink import SHARE, WritingTask, _Task
from upsert_platform.kafka.topics import describe_topic
from upsert_platform.local.kafka import start_broker
from upsert_platform.sync.leased import LEASE
from upsert_platform_tests.bench.kafka import USER_COLUMNS, create_topic, produce_json_users, users_table
from upsert_platform_tests.bench.measure import row
from upsert_platform_tests.kafka.tables import declare, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 500_000
REPEATS = 5
PARTITIONS = 4
_BATCH = 20_000
_GOALS = {"at-least-once": ">= 0.7", "exactly-once": ">= 0.6"}
Pairs = list[tuple[bytes, bytes]]


class _Encoded(RecordEncoder):
    """In the place of the sink's encoder: hands on columns that hold records already."""

    def encode(self, changes: pa.RecordBatch) -> EncodedBlock:
        return EncodedBlock(changes.column("key"), changes.column("value"), np.zeros(changes.num_rows, bool))


def run(*, rows: int = ROWS) -> Iterator[dict[str, Any]]:
    """Measures `sink_at_least_once`, `sink_exactly_once` and `topic_to_topic`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        start_broker(Path(folder) / "kafka", die_with_parent=True) as broker,
    ):
        servers = broker.bootstrap_servers
        pairs = _records(rows)
        batches = _batches(pairs)
        for guarantee, goal in _GOALS.items():
            bare, ours = [], []
            for repeat in range(REPEATS + 1):  # the first round is not counted
                bare.append(_timed(servers, lambda topic: _produce(servers, topic, pairs)))
                ours.append(_timed(servers, partial(_write, servers, batches, guarantee)))
                if repeat == 0:
                    bare.clear()
                    ours.clear()
            yield row(
                f"sink_{guarantee.replace('-', '_')}",
                rows=rows,
                seconds=min(ours),
                ratio=statistics.median(theirs / own for theirs, own in zip(bare, ours, strict=True)),
                ratio_to="Producer.produce in a loop, acks=all, one process each, in turn",
                goal=goal,
                bare_rows_per_s=round(rows / min(bare)),
            )
        yield _topic_to_topic(servers, rows)


def _records(rows: int) -> Pairs:
    """Users of about 110 bytes, each key once: what is left of a batch when it was reduced."""
    return [
        (
            b'{"id":%d}' % number,
            b'{"id":%d,"name":"user-%08d","email":"user%d@example.com","score":%d.25,"updated":%d}'
            % (number, number, number, number % 1000, 1_700_000_000_000 + number),
        )
        for number in range(rows)
    ]


def _batches(pairs: Pairs) -> list[pa.RecordBatch]:
    made = []
    for start in range(0, len(pairs), _BATCH):
        part = pairs[start : start + _BATCH]
        columns = {
            "key": pa.array([key for key, _ in part], pa.binary()),
            "value": pa.array([value for _, value in part], pa.binary()),
            SEQUENCE: pa.array(np.ones(len(part), np.int64)),
            SHARE: pa.array(np.zeros(len(part), np.int32)),
        }
        made.append(pa.RecordBatch.from_pydict(columns))
    return made


def _timed(servers: str, work: Callable[[str], float]) -> float:
    """Seconds of writing to a topic that is made for it, and dropped."""
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    create_topic(servers, topic, partitions=PARTITIONS, config={"cleanup.policy": "compact"})
    seconds = work(topic)
    with KafkaEndpoint(servers).admin() as admin:
        admin.result(admin.client.delete_topics([topic])[topic], f"dropping topic '{topic}'")
    return seconds


def _produce(servers: str, topic: str, pairs: Pairs) -> float:
    """The bare loop: connect, produce everything, wait until all of it is delivered."""
    started = time.monotonic()
    producer = KafkaEndpoint(servers).open_producer(acks="all")
    for key, value in pairs:
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    return time.monotonic() - started


def _write(servers: str, batches: list[pa.RecordBatch], guarantee: str, topic: str) -> float:
    """The same records by the sink's task: with its lease, and in a transaction when they are written exactly once."""
    destination = _destination(servers, topic, guarantee)
    destination.prepare()
    found = describe_topic(destination.table.endpoint, topic)
    assert found is not None
    with destination.lease(owner="bench", duration=LEASE) as lease:
        assert isinstance(lease, KafkaLease)
        plan = WritingTask(destination.table, BatchSpan(0, 1, "bench", "bench"), found.topic_id, 1, lease.terms)
        task = _Task(plan)
        task._encoder = _Encoded(destination.table)
        started = time.monotonic()
        *_, last = task.run(iter(batches))
        seconds = time.monotonic() - started
    assert f'"upserts": {sum(batch.num_rows for batch in batches)},' in last.column("stats")[0].as_py()
    return seconds


def _destination(servers: str, topic: str, guarantee: str) -> KafkaDestination:
    options: dict[str, Any] = {
        "topic": topic,
        "properties.bootstrap.servers": servers,
        "sink.control-topic": f"{topic}-control",
        "sink.delivery-guarantee": guarantee,
        "sink.transactional-id-prefix": topic,
    }
    if guarantee != "exactly-once":
        del options["sink.transactional-id-prefix"]
    return KafkaDestination(read(declare(USER_COLUMNS, **options), writes=True))


def _topic_to_topic(servers: str, rows: int) -> dict[str, Any]:
    """A topic of four records a key, read as one batch, reduced, encoded and written exactly once, by Spark."""
    from upsert_platform.spark.session import open_session

    topic = f"bench-{uuid.uuid4().hex[:12]}"
    create_topic(servers, topic, partitions=PARTITIONS)
    produce_json_users(servers, topic, records=rows, keys=max(1, rows // 4))
    spark = open_session()
    try:
        times, written = [], 0
        for _ in range(REPEATS):
            seconds, written = _copy(spark, servers, topic)
            times.append(seconds)
    finally:
        spark.stop()
    return row("topic_to_topic", rows=rows, seconds=min(times), written=written, guarantee="exactly-once")


def _copy(spark: SparkSession, servers: str, topic: str) -> tuple[float, int]:
    """Seconds, and records written; planning and the lease included."""
    from upsert_platform.kafka.source.offsets import discover
    from upsert_platform.kafka.source.source import read_changes

    target = f"{topic}-{uuid.uuid4().hex[:8]}"
    create_topic(servers, target, partitions=PARTITIONS, config={"cleanup.policy": "compact"})
    destination = _destination(servers, target, "exactly-once")
    table = users_table(servers, topic)
    destination.prepare()
    started = time.monotonic()
    ranges = [
        OffsetRange(found.name, item.partition, item.low, item.end)
        for found in discover(table)
        for item in found.partitions
    ]
    changes = (
        read_changes(spark, table, ranges, batch=1, mode="upsert")
        .where("_kind IN ('+U', '-D')")
        .selectExpr(*USER_COLUMNS, "IF(_kind = '-D', 'D', 'U') AS _op", "CAST(1 AS BIGINT) AS _seq")
    )
    with destination.lease(owner="bench", duration=LEASE) as lease:
        report = destination.write(changes, span=BatchSpan(0, 1, "bench", "bench"), lease=lease)
    return time.monotonic() - started, report.upserts
