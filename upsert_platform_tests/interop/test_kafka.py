"""Apache Kafka's own clients against what the platform writes to topics and reads from them."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from upsert_platform.changelog import rows as changelog_rows
from upsert_platform.core.destination import BatchSpan
from upsert_platform.kafka.sink.destination import KafkaDestination
from upsert_platform.kafka.source.offsets import discover, plan_backlog
from upsert_platform.kafka.source.source import read_changes
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.kafka.topics import wait_until_stable
from upsert_platform_tests.interop.bulk import Bulk
from upsert_platform_tests.interop.java import Java, each
from upsert_platform_tests.kafka.source.test_offsets import Positions
from upsert_platform_tests.kafka.tables import declare, read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {"id": "BIGINT", "name": "STRING", "score": "DOUBLE", "flag": "BOOLEAN"}
DDL = "id BIGINT, name STRING, score DOUBLE, flag BOOLEAN, _op STRING, _seq BIGINT"
PARTITIONS = 12
Received = tuple[int, int, bytes, bytes | None, list[tuple[str, bytes]]]
"""Partition, offset, key, value and headers of a record."""


@contextmanager
def producer(java: Java, bootstrap: str, **properties: str) -> Iterator[Any]:
    """A Java producer of bytes; dots in property names are given as ``_``."""
    serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
    given = {"bootstrap.servers": bootstrap, "key.serializer": serializer, "value.serializer": serializer}
    given |= {name.replace("_", "."): value for name, value in properties.items()}
    opened = java.classes.org.apache.kafka.clients.producer.KafkaProducer(java.map_of(given))
    try:
        yield opened
    finally:
        opened.close()


def send(java: Java, opened: Any, topic: str, pairs: Sequence[tuple[bytes | None, bytes | None]]) -> None:
    """Sends pairs of key and value to the partitions that the producer picks; raises for those that fail."""
    record = java.classes.org.apache.kafka.clients.producer.ProducerRecord
    for key, value in pairs:
        last = opened.send(record(topic, key, value))
    opened.flush()
    assert last.get().topic() == topic


def send_keys(java: Java, opened: Any, topic: str, keys: Sequence[bytes]) -> None:
    """Sends thousands of records with empty values.

    Open the producer without idempotence: with it, the client of 4.3.1 leaves a batch unsent about once in 25 times
    and gives up on it after ``delivery.timeout.ms``, which only the futures tell.
    """
    bulk = Bulk(java)
    clients, anything = "org.apache.kafka.clients.producer", "java.lang.Object"
    decode = bulk.virtual("java.util.Base64$Decoder", "decode", "[B", "java.lang.String")
    record = bulk.constructor(f"{clients}.ProducerRecord", "java.lang.String", anything, anything)
    sending = bulk.virtual(
        f"{clients}.KafkaProducer", "send", "java.util.concurrent.Future", f"{clients}.ProducerRecord"
    )
    bulk.map(
        [base64.b64encode(key).decode() for key in keys],
        bulk.bind(decode, 0, java.classes.java.util.Base64.getDecoder()),
        bulk.bind(bulk.bind(record, 2, b""), 0, topic),
        bulk.bind(sending, 0, opened),
    )
    opened.flush()


def received(java: Java, bootstrap: str, topic: str) -> list[Received]:
    """All committed records of a topic as the Java consumer gives them."""
    deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    consumer = java.classes.org.apache.kafka.clients.consumer.KafkaConsumer(
        java.map_of(
            {
                "bootstrap.servers": bootstrap,
                "key.deserializer": deserializer,
                "value.deserializer": deserializer,
                "isolation.level": "read_committed",
            }
        )
    )
    try:
        partition = java.classes.org.apache.kafka.common.TopicPartition
        all_of_them = java.list_of(partition(topic, info.partition()) for info in consumer.partitionsFor(topic))
        consumer.assign(all_of_them)
        consumer.seekToBeginning(all_of_them)
        ends = consumer.endOffsets(all_of_them)
        found: list[Received] = []
        while any(consumer.position(one) < ends[one] for one in all_of_them):
            for record in each(consumer.poll(java.classes.java.time.Duration.ofMillis(200))):
                headers = [(header.key(), header.value()) for header in record.headers().toArray()]
                found.append((record.partition(), record.offset(), record.key(), record.value(), headers))
        return found
    finally:
        consumer.close()


def partition_of_each(bootstrap: str, topic: str) -> dict[bytes, int]:
    """Key to partition, of a topic with one record per key."""
    from confluent_kafka import TopicPartition

    from upsert_platform.kafka.endpoint import KafkaEndpoint

    consumer = KafkaEndpoint(bootstrap).open_consumer(**{"isolation.level": "read_committed", "fetch.wait.max.ms": 10})
    found: dict[bytes, int] = {}
    try:
        for number in range(PARTITIONS):
            end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1]
            consumer.assign([TopicPartition(topic, number, 0)])
            position = 0
            while position < end:
                for message in consumer.consume(5000, timeout=0.05):
                    position = message.offset() + 1
                    if message.error() is None and message.key() not in found:
                        found[message.key()] = number
    finally:
        consumer.close()
    return found


def write(destination: KafkaDestination, changes: DataFrame) -> None:
    destination.prepare()
    with destination.lease(owner="test", duration=timedelta(minutes=1)) as lease:
        destination.write(changes, span=BatchSpan(0, 1, "changelog-1", "run-1"), lease=lease)


def table_of(bootstrap: str, topic: str, columns: Mapping[str, str], *, writes: bool, **options: str) -> KafkaTable:
    control = {"sink.control-topic": f"control-{topic}"} if writes else {}
    given = {"topic": topic, "properties.bootstrap.servers": bootstrap, **control, **options}
    return read(declare(columns, **cast("dict[str, Any]", given)), writes=writes)


def rows_of_source(spark: SparkSession, table: KafkaTable, mode: str = "upsert") -> list[Any]:
    """What the source makes of the whole topic, without accounting rows."""
    ranges = plan_backlog(table, discover(table), Positions())
    changes = read_changes(spark, table, ranges, batch=1, mode=mode)
    return changes.where(f"{changelog_rows.KIND} <> '{changelog_rows.KIND_ACCOUNTING}'").collect()


def test_10_000_keys_go_to_the_partition_that_the_java_producer_picks(
    spark: SparkSession, kafka_java: Java, kafka_bootstrap: str, make_topic: Callable[..., str]
) -> None:
    chance = random.Random(20_240_501)
    keys = sorted({b"", *(chance.randbytes(chance.randrange(1, 48)) for _ in range(10_400))})[:10_000]
    assert len(keys) == 10_000
    by_java, by_us = make_topic(partitions=PARTITIONS), make_topic(partitions=PARTITIONS)
    with producer(kafka_java, kafka_bootstrap, linger_ms="20", enable_idempotence="false") as opened:
        send_keys(kafka_java, opened, by_java, keys)
    options = {"key.format": "raw", "value.fields-include": "EXCEPT_KEY", "sink.parallelism": "2"}
    table = table_of(kafka_bootstrap, by_us, {"id": "BYTES", "name": "STRING"}, writes=True, **options)
    rows = [(bytearray(key), "x", "U", 1) for key in keys]
    write(KafkaDestination(table), spark.createDataFrame(rows, "id BINARY, name STRING, _op STRING, _seq BIGINT"))

    expected = partition_of_each(kafka_bootstrap, by_java)
    assert len(expected) == 10_000
    assert set(expected.values()) == set(range(PARTITIONS))
    assert partition_of_each(kafka_bootstrap, by_us) == expected


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_the_java_consumer_and_our_source_read_what_we_wrote(
    spark: SparkSession, kafka_java: Java, kafka_bootstrap: str, make_topic: Callable[..., str], guarantee: str
) -> None:
    topic = make_topic(partitions=3)
    options = {"sink.delivery-guarantee": guarantee, "sink.add-tableId-to-header-enabled": "true"}
    if guarantee == "exactly-once":
        options["sink.transactional-id-prefix"] = f"prefix-{topic}"
    kept: list[tuple[Any, ...]] = [
        (number, f'name {number} é中\U0001f600"\\\n', number / 8, number % 2 == 0) for number in range(40)
    ]
    kept.append((2**62, "", -0.0, None))
    deleted: list[tuple[Any, ...]] = [(number, None, None, None) for number in range(100, 110)]
    rows = [(*row, "U", 1) for row in kept] + [(*row, "D", 1) for row in deleted]
    written = table_of(kafka_bootstrap, topic, COLUMNS, writes=True, **options)
    write(KafkaDestination(written), spark.createDataFrame(rows, DDL))

    records = received(kafka_java, kafka_bootstrap, topic)
    by_key = {json.loads(key)["id"]: value and json.loads(value) for _, _, key, value, _ in records}
    assert len(records) == len(rows) == len(by_key)
    named = dict(zip(COLUMNS, zip(*kept, strict=True), strict=True))
    assert by_key == {
        **{row[0]: dict(zip(named, row, strict=True)) for row in kept},
        **{row[0]: None for row in deleted},
    }
    names = [("namespace", b""), ("schemaName", b""), ("tableName", b"users")]
    assert all(headers == names for *_, headers in records)

    found = rows_of_source(spark, table_of(kafka_bootstrap, topic, COLUMNS, writes=False))
    assert sorted((row.id, row.name, row.score, row.flag) for row in found) == sorted(kept + deleted)
    places = {(row._partition, row._offset): row.id for row in found}
    assert places == {(number, offset): json.loads(key)["id"] for number, offset, key, *_ in records}


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_our_source_reads_what_the_java_producer_wrote(
    spark: SparkSession, kafka_java: Java, kafka_bootstrap: str, topic: str, compression: str
) -> None:
    def pair(number: int, name: str | None) -> tuple[bytes, bytes | None]:
        value = None if name is None else json.dumps({"id": number, "name": name, "score": 0.5, "flag": True}).encode()
        return json.dumps({"id": number}).encode(), value

    properties = {"transactional_id": f"java-{topic}", "compression_type": compression}
    with producer(kafka_java, kafka_bootstrap, **properties) as opened:
        opened.initTransactions()
        opened.beginTransaction()
        send(kafka_java, opened, topic, [pair(number % 50, f"é {number}") for number in range(150)])
        opened.commitTransaction()
        opened.beginTransaction()
        send(kafka_java, opened, topic, [pair(number, "aborted") for number in range(60)])
        opened.abortTransaction()
        opened.beginTransaction()
        send(kafka_java, opened, topic, [pair(0, None), pair(50, "last")])
        opened.commitTransaction()
    table = table_of(kafka_bootstrap, topic, COLUMNS, writes=False)
    # A commit is answered before the broker has marked it in every partition.
    assert wait_until_stable(table.endpoint, topic, seconds=60).stable
    found = rows_of_source(spark, table)
    expected = {(number, f"é {number + 100}") for number in range(1, 50)} | {(0, None), (50, "last")}
    assert {(row.id, row.name) for row in found} == expected
    assert {row._kind for row in found if row.id == 0} == {changelog_rows.KIND_DELETE}
