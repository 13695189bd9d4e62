"""Random histories of real topics, in every format: changelog and table are those of the model."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest

from upsert_platform.changelog.latest import latest_per_key
from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.source.offsets import discover, plan_backlog
from upsert_platform.kafka.source.source import read_changes
from upsert_platform_tests.kafka.histories import FORMATS, KEYS, Codec, Put, schema_server, table_of
from upsert_platform_tests.kafka.writing import messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "200",
}


@dataclass
class Topic:
    """A real topic of one format, and the table that must come of it."""

    name: str
    bootstrap: str
    options: dict[str, str]
    format_id: str
    chance: random.Random
    model: dict[int, int] = field(default_factory=dict)
    sent: int = 0
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        declared = {"topic": self.name, "properties.bootstrap.servers": self.bootstrap}
        self.table = table_of(self.format_id, self.options, **declared)
        self.codec = Codec(self.table, FORMATS[self.format_id])

    def produce(self, count: int) -> None:
        """Sends transactions, every third of which is aborted."""
        producer = KafkaEndpoint(self.bootstrap).open_producer(**{"transactional.id": f"histories-{self.name}"})
        producer.init_transactions(30)
        for number in range(count):
            producer.begin_transaction()
            puts = [Put(self.chance.randint(1, KEYS * 5), self.chance.choice([None, *range(9)])) for _ in range(8)]
            for put in puts:
                key, value = self.codec.pair(put)
                producer.produce(self.name, key=key, value=value)
            if number % 3 == 1:
                producer.flush(30)
                producer.abort_transaction(30)
                continue
            producer.commit_transaction(30)
            self.sent += len(puts)
            for put in puts:
                self.model.pop(put.key, None)
                if put.number is not None:
                    self.model[put.key] = put.number

    def read(self, spark: SparkSession, batch: int) -> DataFrame:
        """The changes since the last batch; each with the format."""
        found = discover(self.table)
        ranges = plan_backlog(self.table, found, self)
        self.offsets = {self.name: {item.partition: item.end for item in found[0].partitions}}
        rows = read_changes(spark, self.table, ranges, batch=batch, mode="upsert").where("_kind IN ('+U', '-D')")
        return rows.selectExpr(f"'{self.format_id}' AS format", "*").localCheckpoint()


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with schema_server() as found:
        yield found


@pytest.mark.soak
def test_a_real_topic_ends_in_the_table_of_the_model(
    spark: SparkSession,
    kafka_bootstrap: str,
    make_topic: Callable[..., str],
    options: dict[str, str],
    seed: int,
) -> None:
    """Aborted transactions, compaction before and after a batch, and further partitions, in every format."""
    from confluent_kafka.admin import NewPartitions

    topics = [
        Topic(
            make_topic(config=COMPACTED),
            kafka_bootstrap,
            options,
            format_id,
            random.Random(f"{seed} {format_id}"),
        )
        for format_id in FORMATS
    ]
    changes: list[DataFrame] = []
    for batch in (1, 2, 3):
        for topic in topics:
            topic.produce(6)
        time.sleep(0.3)  # the segment that was written is closed by the next record
        if batch > 1:
            with KafkaEndpoint(kafka_bootstrap).admin() as admin:
                wider = [NewPartitions(topic.name, batch) for topic in topics]
                for future in admin.client.create_partitions(wider).values():
                    admin.result(future, "widening")
        for topic in topics:
            topic.produce(4)
            _await_compaction(topic)
        changes += [topic.read(spark, batch) for topic in topics]
    every = reduce(lambda one, other: one.unionByName(other), changes)
    found = latest_per_key(every, key=["format", "id"], columns=["number"]).where("_kind = '+U'").collect()
    for topic in topics:
        rows: dict[Any, Any] = {row.id: row.number for row in found if row.format == topic.format_id}
        assert rows == topic.model, topic.format_id


def _await_compaction(topic: Topic) -> None:
    """Waits until records that were sent are gone."""
    deadline = time.monotonic() + 60
    while len(messages(topic.bootstrap, topic.name)) == topic.sent:
        assert time.monotonic() < deadline, f"{topic.name}: nothing was compacted"
        time.sleep(0.2)
        topic.produce(1)
