"""Servers that can be watched and disturbed, and a project on them. The mark `soak` on a test makes it a long one."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from upsert_platform.local.kafka import Broker, start_broker
from upsert_platform_tests.graph.stack import Stack, variables_of
from upsert_platform_tests.local.maxcompute.server import ServerHandle as MaxComputeServer
from upsert_platform_tests.local.maxcompute.server import maxcompute_server
from upsert_platform_tests.local.tablestore.server import ServerHandle as TablestoreServer
from upsert_platform_tests.local.tablestore.server import tablestore_server
from upsert_platform_tests.soak.load import PARTITIONS


@pytest.fixture
def seed(record_property: Callable[[str, object], None]) -> int:
    """Of everything random in a test; `SOAK_SEED` repeats a run that went wrong."""
    chosen = int(os.environ.get("SOAK_SEED", uuid.uuid4().int % 1_000_000))
    record_property("seed", chosen)
    print(f"SOAK_SEED={chosen}")  # noqa: T201 - pytest shows it with a failure
    return chosen


@pytest.fixture
def scale(record_property: Callable[[str, object], None]) -> float:
    """How much of a campaign is done: `SOAK_SCALE` of it, from 0 to 1."""
    chosen = float(os.environ.get("SOAK_SCALE", "1"))
    record_property("scale", chosen)
    print(f"SOAK_SCALE={chosen}")  # noqa: T201
    return chosen


@pytest.fixture(scope="session")
def tablestore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TablestoreServer]:
    """A Tablestore server."""
    with tablestore_server(tmp_path_factory.mktemp("tablestore")) as server:
        yield server


@pytest.fixture(scope="session")
def maxcompute(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MaxComputeServer]:
    """A MaxCompute server."""
    with maxcompute_server(tmp_path_factory.mktemp("maxcompute")) as server:
        yield server


@pytest.fixture(scope="session")
def variables(kafka_broker: Broker, tablestore: TablestoreServer, maxcompute: MaxComputeServer) -> Mapping[str, str]:
    """Endpoints of the servers, as `local up` names them."""
    return variables_of(kafka_broker, tablestore, maxcompute)


@pytest.fixture
def stack(
    variables: Mapping[str, str],
    make_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Stack:
    """A project on a topic and tables of its own; the test declares what it needs."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    topic = make_topic(name=f"users-{uuid.uuid4().hex[:8]}", partitions=4, config={"cleanup.policy": "compact"})
    return Stack(tmp_path, variables, topic)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[list[Broker]]:
    """A broker that the test may stop and start, in a list of one."""
    held = [start_broker(tmp_path / "broker", die_with_parent=True)]
    yield held
    held[0].stop()


@pytest.fixture
def streamed(
    own_broker: list[Broker],
    tablestore: TablestoreServer,
    maxcompute: MaxComputeServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Stack:
    """A project on the broker, with both destinations."""
    from confluent_kafka.admin import AdminClient, NewTopic

    variables = variables_of(own_broker[0], tablestore, maxcompute)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    topic = f"users-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": own_broker[0].bootstrap_servers})
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])[topic].result(30)
    stack = Stack(tmp_path, variables, topic)
    stack.declare()
    return stack
