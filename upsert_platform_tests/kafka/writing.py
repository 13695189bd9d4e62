"""Writing change frames to topics in tests, and reading what lies in them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.destination import BatchSpan, WriteReport
from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.sink.destination import KafkaDestination

if TYPE_CHECKING:
    from confluent_kafka import Message
    from pyspark.sql import DataFrame, SparkSession

MINUTE: Final = timedelta(seconds=60)


def span(upto: int, after: int = 0) -> BatchSpan:
    """Batches of the changelog that all tests pretend to have."""
    return BatchSpan(after, upto, "changelog-1", f"run-{upto}", commit=f"commit-{upto}")


def frame(
    spark: SparkSession, rows: Sequence[Any], ddl: str = "id INT, name STRING, _op STRING, _seq BIGINT"
) -> DataFrame:
    """A change frame."""
    return spark.createDataFrame(rows, ddl)


def write(destination: KafkaDestination, changes: DataFrame, upto: int, after: int = 0, **options: Any) -> WriteReport:
    """Prepares, takes the lease and writes a span."""
    destination.prepare()
    with destination.lease(owner=f"run-{upto}", duration=MINUTE) as lease:
        return destination.write(changes, span=span(upto, after), lease=lease, **options)


def messages(bootstrap: str, topic: str) -> list[Message]:
    """Committed records of a topic, in order per partition."""
    from confluent_kafka import TopicPartition

    consumer = KafkaEndpoint(bootstrap).open_consumer(**{"isolation.level": "read_committed", "fetch.wait.max.ms": 10})
    found = []
    for partition in sorted(consumer.list_topics(topic, timeout=10).topics[topic].partitions):
        low, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        consumer.assign([TopicPartition(topic, partition, low)])
        position = low
        while position < end:
            for message in consumer.consume(100, timeout=0.02):
                position = message.offset() + (message.error() is None)
                if message.error() is None:
                    found.append(message)
    consumer.close()
    return found


def written(bootstrap: str, topic: str) -> list[tuple[str | None, str | None]]:
    """Keys and values of committed records, as text."""
    pairs = ((message.key(), message.value()) for message in messages(bootstrap, topic))
    return [(key and key.decode(), value and value.decode()) for key, value in pairs]
