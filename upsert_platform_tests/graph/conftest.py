"""Fixtures of the whole path: local servers for the session, a project per test."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from upsert_platform.local.kafka import Broker
from upsert_platform_tests.graph.stack import Stack, variables_of
from upsert_platform_tests.local.maxcompute.server import ServerHandle as MaxCompute
from upsert_platform_tests.local.tablestore.server import ServerHandle as Tablestore


@pytest.fixture(scope="session")
def variables(kafka_broker: Broker, shared_tablestore: Tablestore, shared_maxcompute: MaxCompute) -> Mapping[str, str]:
    """Endpoints of a broker, a Tablestore server and a MaxCompute server, as `local up` names them."""
    return variables_of(kafka_broker, shared_tablestore, shared_maxcompute)


@pytest.fixture
def make_stack(
    variables: Mapping[str, str],
    make_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
) -> Callable[[], Stack]:
    """Makes projects with both destinations, each on a topic and tables of its own."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def make() -> Stack:
        topic = make_topic(name=f"users-{uuid.uuid4().hex[:8]}", partitions=4, config={"cleanup.policy": "compact"})
        found = Stack(tmp_path / topic, variables, topic)
        found.declare()
        return found

    return make


@pytest.fixture
def stack(make_stack: Callable[[], Stack]) -> Stack:
    """A project with both destinations, on a topic and tables of its own; runs in this process share its session."""
    return make_stack()
