"""A topic that is widened: its new partitions' first records tell how many keys moved, once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from upsert_platform.changelog.lake import Lake
from upsert_platform.core.errors import ChangelogError
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.sync.binding import changelog_of
from upsert_platform.sync.changelog_hop import ChangelogHop, ChangelogRun, CommittedBatch
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.widened_topics import MovedKeys
from upsert_platform_tests.kafka.tables import declare, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def never() -> NoReturn:
    raise AssertionError("Spark is not needed")


@pytest.mark.parametrize("here", [False, True])
def test_keys_that_move_to_new_partitions_are_counted_once(
    spark: SparkSession, kafka_bootstrap: str, make_topic: Callable[..., str], tmp_path: Path, here: bool
) -> None:
    topic = make_topic(partitions=2)
    table = declare(topic=topic, **{"properties.bootstrap.servers": kafka_bootstrap})
    source = TopicSource(table, read(table))

    def synced(*records: tuple[int, range]) -> ChangelogRun:
        """Sends keys to partitions, and reads them."""
        producer = Producer({"bootstrap.servers": kafka_bootstrap})  # that knows the partitions of now
        for partition, keys in records:
            for key in keys:
                value = json.dumps({"id": key, "name": f"in {partition}"})
                producer.produce(topic, key=json.dumps({"id": key}), value=value, partition=partition)
        producer.flush()
        hop = ChangelogHop(source, changelog_of(source, Lake(str(tmp_path))), run="run")
        run = hop.execute(OnDemand(never) if here else OnDemand.dividing(spark), hop.plan(), progress=told.append)
        assert sum(item.records for item in run.ranges) == sum(len(keys) for _, keys in records)
        return run

    told: list[CommittedBatch] = []
    assert synced((0, range(20))).moved == ()
    # Partition 1 has a position, and gives its first records now: of other keys.
    assert synced((0, range(5)), (1, range(20, 30))).moved == ()
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(20)
    moved = (MovedKeys(topic, 2, 8), MovedKeys(topic, 3, 2))
    assert synced((2, range(12, 20)), (2, range(100, 150)), (3, range(28, 31))).moved == moved
    assert told[-1].moved == moved
    assert synced((2, range(12)), (0, range(20))).moved == ()


def test_a_changelog_that_is_made_anew_while_it_is_read_takes_no_batch_of_the_old_plan(
    kafka_bootstrap: str, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The plan begins behind what the old one had read: the new one would lack those offsets."""
    topic = make_topic()
    table = declare(topic=topic, **{"properties.bootstrap.servers": kafka_bootstrap})
    source = TopicSource(table, read(table))
    producer = Producer({"bootstrap.servers": kafka_bootstrap})

    def hop(run: str) -> ChangelogHop:
        return ChangelogHop(source, changelog_of(source, Lake(str(tmp_path))), run=run)

    def send(*keys: int) -> None:
        for key in keys:
            producer.produce(topic, key=json.dumps({"id": key}), value=json.dumps({"id": key, "name": "n"}))
        assert producer.flush(20) == 0

    send(1, 2, 3)
    first = hop("first")
    first.execute(OnDemand(never), first.plan())
    send(4, 5)
    late = hop("late")
    plan = late.plan()
    shutil.rmtree(tmp_path / "changelogs" / table.name)
    anew = hop("anew")
    assert anew.execute(OnDemand(never), anew.plan()).account.records == 5
    with pytest.raises(ChangelogError, match="was made anew while it was read"):
        late.execute(OnDemand(never), plan)
    send(6)
    last = hop("last")
    assert last.execute(OnDemand(never), last.plan()).account.records == 1
