"""Fixtures that several rooms share: a real broker for the whole session, topics in it, and one Spark session."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from upsert_platform.local.kafka import Broker, start_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One Apache Kafka broker on a free port, for the whole session (one per worker under pytest-xdist)."""
    with start_broker(tmp_path_factory.mktemp("kafka"), die_with_parent=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka_broker: Broker) -> str:
    """``bootstrap.servers`` of the session's broker."""
    return kafka_broker.bootstrap_servers


@pytest.fixture(scope="session")
def make_topic(kafka_bootstrap: str) -> Callable[..., str]:
    """Makes a topic and returns its name: ``make_topic(partitions=4, config={"cleanup.policy": "compact"})``.

    Names are unique unless one is given, so tests share the broker without meeting each other.
    """
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})

    def make(*, partitions: int = 1, config: Mapping[str, str] | None = None, name: str | None = None) -> str:
        topic = name or f"topic-{uuid.uuid4().hex[:12]}"
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin.create_topics([new])[topic].result(30)
        return topic

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A fresh topic of one partition."""
    return make_topic()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark session with Delta Lake for the whole pytest session, as runs open it."""
    from upsert_platform.spark import open_session

    session = open_session({"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))})
    yield session
    session.stop()
