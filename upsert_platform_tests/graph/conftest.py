"""Fixtures of the whole path: local servers for the session, a project per test."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from upsert_platform.local.kafka import Broker
from upsert_platform_tests.graph.stack import Stack, variables_of
from upsert_platform_tests.local.maxcompute.server import maxcompute_server
from upsert_platform_tests.local.tablestore.server import tablestore_server


@pytest.fixture(scope="session")
def variables(kafka_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """Endpoints of a broker, a Tablestore server and a MaxCompute server, as `local up` names them."""
    path = tmp_path_factory.mktemp("servers")
    with tablestore_server(path / "tablestore") as tablestore, maxcompute_server(path / "maxcompute") as maxcompute:
        yield variables_of(kafka_broker, tablestore, maxcompute)


@pytest.fixture
def stack(
    variables: Mapping[str, str],
    make_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
) -> Stack:
    """A project with both destinations, on a topic and tables of its own; runs in this process share its session."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    topic = make_topic(name=f"users-{uuid.uuid4().hex[:8]}", partitions=4, config={"cleanup.policy": "compact"})
    found = Stack(tmp_path, variables, topic)
    found.declare()
    return found
