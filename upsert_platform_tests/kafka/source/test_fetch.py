"""Ranges of several partitions that are fetched together hold what each gives by itself."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.errors import EndpointError, TopicError
from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.source.fetch import (
    BorrowedConsumer,
    borrow_consumer,
    close_consumers,
    fetch_range,
    fetch_together,
)
from upsert_platform.kafka.source.source import write_changes_in_task
from upsert_platform_tests.bench.kafka import users_table

PARTITIONS = 5


def written(servers: str, topic: str) -> dict[int, list[int | None]]:
    """Transactions, some aborted: of each partition its offsets, None where no reader gets a record."""
    chance = random.Random(5)
    writer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    writer.init_transactions(30)
    offsets: dict[int, list[int | None]] = {partition: [] for partition in range(PARTITIONS - 1)}
    for _ in range(12):
        kept = chance.random() < 0.7
        writer.begin_transaction()
        met = set()
        for _ in range(chance.randint(1, 60)):
            partition = chance.randrange(PARTITIONS - 1)
            met.add(partition)
            number = len(offsets[partition])
            writer.produce(topic, b"%d" % number, b"k", partition=partition)
            offsets[partition].append(number if kept else None)
        writer.flush(30)
        if kept:
            writer.commit_transaction(30)
        else:
            writer.abort_transaction(30)
        for partition in met:
            offsets[partition].append(None)  # the marker
    return offsets


def test_together_they_hold_what_each_gives_by_itself(kafka_bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=PARTITIONS)
    there = written(kafka_bootstrap, topic)
    endpoint = users_table(kafka_bootstrap, topic).endpoint
    chance = random.Random(7)
    for _ in range(6):
        ranges = []
        for partition, offsets in there.items():
            start, end = sorted(chance.randint(0, len(offsets)) for _ in range(2))
            ranges.append(OffsetRange(topic, partition, start, end))
        ranges.append(OffsetRange(topic, PARTITIONS - 1, 0, 0))
        found = fetch_together(endpoint, ranges, most_bytes=1 << 20)
        assert found is not None
        for item in ranges:
            records = found[topic, item.partition]
            wanted = [offset for offset in there.get(item.partition, [])[item.start : item.end] if offset is not None]
            assert [record.offset() for record in records] == wanted
            assert [int(record.value()) for record in records] == wanted
            alone = [record.offset() for some in fetch_range(endpoint, item) for record in some]
            assert alone == wanted


def test_what_is_too_large_is_not_held(kafka_bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=2)
    writer = Producer({"bootstrap.servers": kafka_bootstrap})
    for number in range(100):
        writer.produce(topic, b"v" * 1000, b"k", partition=number % 2)
    writer.flush(30)
    endpoint = KafkaEndpoint(kafka_bootstrap)
    ranges = [OffsetRange(topic, partition, 0, 50) for partition in range(2)]
    assert fetch_together(endpoint, ranges, most_bytes=50_000) is None
    assert fetch_together(endpoint, ranges, most_bytes=200_000) is not None


def test_two_ranges_of_a_partition_are_read_whole(
    kafka_bootstrap: str, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic(partitions=1)
    writer = Producer({"bootstrap.servers": kafka_bootstrap})
    for number in range(20):
        writer.produce(topic, b'{"id": %d}' % number, b'{"id": %d}' % number)
    writer.flush(30)
    ranges = [OffsetRange(topic, 0, 0, 5), OffsetRange(topic, 0, 12, 20)]
    assert fetch_together(KafkaEndpoint(kafka_bootstrap), ranges, most_bytes=1 << 20) is None
    table = users_table(kafka_bootstrap, topic)
    files = write_changes_in_task(table, ranges, batch=1, mode="upsert", location=TableLocation(str(tmp_path)))
    found = [row for file in files for row in pq.read_table(tmp_path / file.path).to_pylist()]
    assert sorted(row["id"] for row in found if row["_kind"] == "+U") == [*range(5), *range(12, 20)]


def test_deleted_records_and_silence_are_told(kafka_bootstrap: str, make_topic: Callable[..., str]) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = make_topic(partitions=2)
    writer = Producer({"bootstrap.servers": kafka_bootstrap})
    for number in range(10):
        writer.produce(topic, b"v", b"k", partition=number % 2)
    writer.flush(30)
    endpoint = KafkaEndpoint(kafka_bootstrap)
    beyond = [OffsetRange(topic, 0, 0, 5), OffsetRange(topic, 1, 0, 9)]
    with pytest.raises(EndpointError, match=f"nothing came of {topic}-1 after offset 5"):
        fetch_together(endpoint, beyond, most_bytes=1 << 20, stall_seconds=3.0)
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    (gone,) = admin.delete_records([TopicPartition(topic, 1, 3)]).values()
    gone.result(30)
    with pytest.raises(TopicError, match=f"{topic}-1: offsets from 0 .* are deleted"):
        fetch_together(endpoint, [OffsetRange(topic, 0, 0, 5), OffsetRange(topic, 1, 0, 5)], most_bytes=1 << 20)


def test_each_thread_keeps_a_consumer_until_it_closes_it(kafka_bootstrap: str) -> None:
    endpoint = KafkaEndpoint(kafka_bootstrap)

    def borrowed() -> list[BorrowedConsumer]:
        found = []
        for _ in range(2):
            with borrow_consumer(endpoint) as consumer:
                found.append(consumer)
        close_consumers()
        with borrow_consumer(endpoint) as consumer:
            found.append(consumer)
        return found

    with borrow_consumer(endpoint) as own, ThreadPoolExecutor(1) as threads:
        first, second, third = threads.submit(borrowed).result(30)
        assert first is second
        assert third is not first
        assert own not in (first, third)
    with borrow_consumer(endpoint) as again:
        assert again is own
    close_consumers()


def test_a_kept_consumer_does_not_wait_for_the_leaders_of_the_next_topic(
    kafka_bootstrap: str, make_topic: Callable[..., str]
) -> None:
    """A client looks for them once a second by itself: ten topics would take nine seconds."""
    topics = [make_topic(partitions=1) for _ in range(10)]
    writer = Producer({"bootstrap.servers": kafka_bootstrap})
    for topic in topics:
        writer.produce(topic, b"v", b"k", partition=0)
    assert writer.flush(30) == 0
    endpoint = users_table(kafka_bootstrap, topics[0]).endpoint
    close_consumers()
    began = time.monotonic()
    for topic in topics:
        assert fetch_together(endpoint, [OffsetRange(topic, 0, 0, 1)], most_bytes=1 << 20) is not None
    assert time.monotonic() - began < 5
