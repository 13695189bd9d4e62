"""The check of a batch that a topic holds: whatever lies in the topic afterwards is noticed, however it is spelled."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from confluent_kafka import Producer

from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.kafka.sink.destination import KafkaDestination
from upsert_platform.sync import verify
from upsert_platform.sync.binding import Target
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.verify import check_batch, check_everything
from upsert_platform_tests.changelog.places import Placed
from upsert_platform_tests.kafka.tables import declare, read
from upsert_platform_tests.sync.test_one_task import append, hop_to, never
from upsert_platform_tests.writing.in_memory import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

SPOILED = {
    "another value": ('{"id":7}', '{"id":7,"name":"another"}', "stale"),
    "a key that was deleted": ('{"id":1}', '{"id":1,"name":"back"}', "extra"),
    "a tombstone": ('{"id":8}', None, "missing"),
    "a tombstone of another spelling": ('{"id": 9}', None, "missing"),
    "a value of another spelling": ('{"id": 6}', '{"id":6,"name":"another"}', "stale"),
}
HARMLESS = {
    "another key": ('{"id":1000}', '{"id":1000,"name":"of nobody"}'),
    "what is no record of the table": ('{"id":7}', "no JSON"),
    "the same once more": ('{"id": 7}', '{"name":"name 7","id":7}'),
}


def test_records_beside_those_of_a_batch_are_noticed(
    spark: SparkSession, tmp_path: Path, topic: str, kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hop = _written(tmp_path, topic, kafka_bootstrap)
    records = [Placed(2, 0, 100 + key, None, key, None if key < 3 else f"name {key}") for key in range(20)]
    append(hop.store, 2, records)
    hop.execute(OnDemand(never), hop.plan())

    look = Mock(wraps=verify._compare)
    monkeypatch.setattr(verify, "_compare", look)
    found = check_batch(OnDemand.dividing(spark), hop, after=1, upto=2)
    assert (found.passed, found.compared, look.call_count) == (True, 40, 0)
    whole = check_everything(spark, hop, upto=2)
    assert (whole.passed, whole.compared, whole.rows, look.call_count) == (True, 40, 37, 0)
    monkeypatch.setattr("upsert_platform.kafka.sink.destination._MOST_HELD", 5)
    assert check_everything(spark, hop, upto=2) == whole
    assert look.call_count == 1, "no task holds hashes of so many records"
    producer = Producer({"bootstrap.servers": kafka_bootstrap})

    for key, value in HARMLESS.values():
        producer.produce(topic, key=key.encode(), value=value.encode())
    assert producer.flush(10) == 0
    assert check_batch(OnDemand.dividing(spark), hop, after=1, upto=2).passed
    for key, spoiled, _ in SPOILED.values():
        producer.produce(topic, key=key.encode(), value=spoiled and spoiled.encode())
    assert producer.flush(10) == 0
    found = check_batch(OnDemand.dividing(spark), hop, after=1, upto=2)
    wanted = [(f"id={key[6:-1].strip()}", status) for key, _, status in SPOILED.values()]
    assert sorted((row["key"], row["status"]) for row in found.sample) == sorted(wanted)
    hop.destination.close()


def test_a_tombstone_in_another_partition_deletes_a_row(
    spark: SparkSession, tmp_path: Path, make_topic: Callable[..., str], kafka_bootstrap: str
) -> None:
    """A client that divides keys otherwise wrote it, later than the row."""
    topic = make_topic(partitions=2)
    hop = _written(tmp_path, topic, kafka_bootstrap)
    assert check_everything(spark, hop, upto=1).rows == 40
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for partition in (0, 1):
        producer.produce(topic, key=b'{"id":8}', partition=partition)
        producer.produce(topic, key=b'{"id":8}', value=b'{"id":8,"name":"name 8"}', partition=1 - partition)
        assert producer.flush(10) == 0
        time.sleep(0.01)  # between partitions the time of records decides
        producer.produce(topic, key=b'{"id":8}', partition=partition)
        assert producer.flush(10) == 0
        found = check_everything(spark, hop, upto=1)
        assert [(row["key"], row["status"]) for row in found.sample] == [("id=8", "missing")]
    hop.destination.close()


def _written(tmp_path: Path, topic: str, servers: str) -> DestinationHop:
    """A topic with forty rows of one batch."""
    table = declare(topic=topic, properties__bootstrap__servers=servers, **{"sink.control-topic": f"control-{topic}"})
    hop = hop_to(Place(), tmp_path)
    target = Target(table, hop.target.insert, hop.target.source, None, None)  # type: ignore[arg-type]
    destination = KafkaDestination(read(table, writes=True))
    hop = DestinationHop(target, hop.store, destination, refused=RefusedStore(str(tmp_path / "aside")), run="run")
    append(hop.store, 1, [Placed(1, 0, key, None, key, f"name {key}") for key in range(40)])
    hop.execute(OnDemand(never), hop.plan())
    return hop
