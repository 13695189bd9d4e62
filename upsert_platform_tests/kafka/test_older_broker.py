"""The broker line before the present one is written and read; brokers of the first lines are refused by name."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from upsert_platform.core.errors import DestinationError, EndpointError
from upsert_platform.kafka import endpoint
from upsert_platform.kafka.sink.destination import KafkaDestination
from upsert_platform.kafka.sink.transactions import open_transactional
from upsert_platform.kafka.source.offsets import commit_to_group, discover, plan_backlog
from upsert_platform.kafka.source.source import read_changes
from upsert_platform.local.kafka import Broker
from upsert_platform.writing.outcomes import run_tasks
from upsert_platform_tests.kafka.ancient import ancient_broker
from upsert_platform_tests.kafka.source.test_offsets import Positions
from upsert_platform_tests.kafka.tables import declare, read
from upsert_platform_tests.kafka.writing import frame, write, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.soak
def test_an_older_broker_is_written_and_read(
    spark: SparkSession, older_kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = older_kafka_broker.bootstrap_servers
    topic = f"older-{uuid.uuid4().hex[:8]}"
    options = {
        "topic": topic,
        "properties.bootstrap.servers": servers,
        "properties.group.id": "older",
        "sink.control-topic": f"{topic}-control",
        "sink.parallelism": "2",
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": topic,
    }
    table = read(declare(**options), writes=True)
    destination = KafkaDestination(table)
    changes = frame(spark, [(1, "a", "U", 1), (2, "b", "U", 1), (3, None, "D", 1)])

    def run_and_die(*arguments: Any, **more: Any) -> None:
        run_tasks(*arguments, **more)
        raise DestinationError("died")

    with monkeypatch.context() as patch:
        patch.setattr("upsert_platform.kafka.sink.destination.run_tasks", run_and_die)
        with pytest.raises(DestinationError, match="died"):
            write(destination, changes, 1)
    assert write(destination, changes, 1).metrics["replayed"] == 3
    assert destination.state().applied_batch == 1
    assert sorted(written(servers, topic), key=str) == [
        ('{"id":1}', '{"id":1,"name":"a"}'),
        ('{"id":2}', '{"id":2,"name":"b"}'),
        ('{"id":3}', None),
    ]
    found = discover(table)
    ranges = plan_backlog(table, found, Positions())
    rows = read_changes(spark, table, ranges, batch=1, mode="upsert").where("_kind IN ('+U', '-D')").collect()
    assert sorted((row.id, row.name, row._kind) for row in rows) == [(1, "a", "+U"), (2, "b", "+U"), (3, None, "-D")]
    assert commit_to_group(table, {topic: {0: ranges[0].end}})


def test_a_broker_before_0_11_is_refused() -> None:
    with ancient_broker("users", knows_versions=True) as servers:
        table = read(declare(**{"properties.bootstrap.servers": servers}))
        with pytest.raises(EndpointError, match=r"brokers of Kafka 0\.11 or later are needed"):
            discover(table)
        with pytest.raises(EndpointError, match=r"transactions need brokers of version 0\.11 or later"):
            open_transactional(table.endpoint, "id")


def test_a_broker_before_0_10_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "REQUEST_SECONDS", 1.5)
    with ancient_broker("users", knows_versions=False) as servers:
        table = read(declare(**{"properties.bootstrap.servers": servers}))
        with pytest.raises(EndpointError, match=r"brokers of Kafka 0\.11 or later are needed"):
            discover(table)
