"""Load and baseline for measuring the reading of topics.

`python -m upsert_platform_tests.bench.kafka --servers 127.0.0.1:9092` prints bare consumers and the Spark source side
by side, in one run: on a machine that others use, only their ratio says something.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.types import parse_type
from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.source.fetch import FETCH_RECORDS
from upsert_platform.kafka.table import KafkaTable, read_kafka_table

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from pyspark.sql import SparkSession

BY_KEY: Final = -1
USER_COLUMNS = {"id": "BIGINT", "name": "STRING", "email": "STRING", "score": "DOUBLE", "updated": "BIGINT"}


def create_topic(servers: str, topic: str, *, partitions: int, config: dict[str, str] | None = None) -> None:
    """Creates a topic with one replica."""
    from confluent_kafka.admin import NewTopic

    with KafkaEndpoint(servers).admin() as admin:
        futures = admin.client.create_topics(
            [NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config or {})]
        )
        admin.result(futures[topic], f"creating topic '{topic}'")


def produce_json_users(servers: str, topic: str, *, records: int, keys: int, tombstones: float = 0.0) -> float:
    """Writes user records of about 110 bytes under JSON keys ``{"id":n}``, in random key order.

    Args:
        tombstones: share of records without a value.

    Returns:
        Seconds taken.
    """
    started = time.monotonic()
    settings: dict[str, str | int] = {"queue.buffering.max.messages": 500_000, "linger.ms": 50}
    producer = KafkaEndpoint(servers).open_producer(**settings, **{"enable.idempotence": "true"})
    numbers = random.Random(7)  # the same load in every run

    def users() -> Iterator[tuple[str, str | None, int]]:
        for index, key in enumerate(numbers.choices(range(keys), k=records)):
            text = None
            if not tombstones or numbers.random() >= tombstones:
                text = (
                    f'{{"id":{key},"name":"user-{key:08d}","email":"user{key}@example.com","score":{index % 1000}.25,'
                    f'"updated":{1_700_000_000_000 + index}}}'
                )
            yield f'{{"id":{key}}}', text, BY_KEY

    send(producer, topic, users())
    return time.monotonic() - started


def send(producer: Producer, topic: str, records: Iterable[tuple[bytes | str | None, bytes | str | None, int]]) -> None:
    """Produce keys and values, each to a partition or to the one of its key (`BY_KEY`), and wait for their delivery."""
    for at, (key, value, partition) in enumerate(records):
        while True:
            try:
                producer.produce(topic, value, key, partition)
                break
            except BufferError:
                producer.poll(0.1)
        if at % 2_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def bare_consumers_rate(servers: str, topic: str, *, processes: int = 2) -> tuple[int, float]:
    """Reads a whole topic by plain consumers that only count, partitions dealt to processes.

    Returns:
        Records and seconds, from the first fetch to the last record (processes start and connect before).
    """
    from confluent_kafka import TopicPartition

    consumer = KafkaEndpoint(servers).open_consumer()
    partitions = sorted(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    ends = {item: consumer.get_watermark_offsets(TopicPartition(topic, item), timeout=10)[1] for item in partitions}
    consumer.close()
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes + 1)
    results = context.Queue()
    workers = [
        context.Process(
            target=_count, args=(servers, topic, [(p, ends[p]) for p in partitions[i::processes]], barrier, results)
        )
        for i in range(processes)
    ]
    for worker in workers:
        worker.start()
    barrier.wait()
    started = time.monotonic()
    counts = [results.get() for _ in workers]
    seconds = time.monotonic() - started
    for worker in workers:
        worker.join()
    return sum(counts), seconds


def _count(servers: str, topic: str, ends: Sequence[tuple[int, int]], barrier: object, results: object) -> None:
    from confluent_kafka import TopicPartition

    consumer = KafkaEndpoint(servers).open_consumer()
    consumer.list_topics(topic, timeout=10)
    barrier.wait()  # type: ignore[attr-defined]
    total = 0
    for partition, end in ends:
        consumer.assign([TopicPartition(topic, partition, 0)])
        position = 0
        while position < end:
            messages = consumer.consume(min(FETCH_RECORDS, end - position), timeout=0.05)
            if messages:
                total += sum(message.error() is None for message in messages)
                position = messages[-1].offset() + (messages[-1].error() is None)
    results.put(total)  # type: ignore[attr-defined]
    consumer.close()


def users_table(servers: str, topic: str, **options: str) -> KafkaTable:
    """The table over what `produce_json_users` writes."""
    columns = tuple(Column(name, parse_type(kind)) for name, kind in USER_COLUMNS.items())
    declared = {
        "connector": "upsert-kafka",
        "topic": topic,
        "properties.bootstrap.servers": servers,
        "key.format": "json",
        "value.format": "json",
        **options,
    }
    table, problems = read_kafka_table(Table("users", columns, ("id",), Options(declared), SourceLocation("bench")))
    assert table is not None, problems
    return table


def source_rate(spark: SparkSession, table: KafkaTable) -> tuple[int, float]:
    """Reads a whole topic as one batch into nothing.

    Returns:
        Offsets and seconds.
    """
    from upsert_platform.kafka.source.offsets import discover
    from upsert_platform.kafka.source.source import read_changes

    ranges = [
        OffsetRange(topic.name, item.partition, item.low, item.end)
        for topic in discover(table)
        for item in topic.partitions
    ]
    started = time.monotonic()
    frame = read_changes(spark, table, ranges, batch=1, mode="upsert" if table.is_upsert else "append")
    frame.write.format("noop").mode("overwrite").save()
    return sum(item.offsets for item in ranges), time.monotonic() - started


def main(argv: Sequence[str] | None = None) -> int:
    """Prints rates per second as JSON; creates and fills the topic first unless it is named."""
    import argparse

    from upsert_platform.spark.session import open_session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", help="an existing topic; without it one is made and filled")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args(argv)
    topic = arguments.topic
    if topic is None:
        topic = f"bench-{time.time_ns()}"
        create_topic(arguments.servers, topic, partitions=arguments.partitions)
        produce_json_users(arguments.servers, topic, records=arguments.records, keys=arguments.keys)
    table = users_table(arguments.servers, topic)
    spark = open_session({"spark.master": "local[2]"})
    for _ in range(2):  # the first batches of a session start workers and compile
        source_rate(spark, table)
    ratios = []
    for _ in range(arguments.rounds):
        bare, bare_seconds = bare_consumers_rate(arguments.servers, topic)
        read, seconds = source_rate(spark, table)
        ratios.append((read / seconds) / (bare / bare_seconds))
        rates = {"bare": round(bare / bare_seconds), "source": round(read / seconds), "ratio": round(ratios[-1], 3)}
        print(json.dumps(rates), flush=True)  # noqa: T201
    print(json.dumps({"topic": topic, "median_ratio": round(statistics.median(ratios), 3)}))  # noqa: T201
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
