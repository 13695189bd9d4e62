"""Some faults of the catalogue, of each kind one; `make soak ARGS="-k faults"` carries out all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from upsert_platform.local.kafka import Broker
from upsert_platform_tests.campaign import first_of
from upsert_platform_tests.local.maxcompute.server import ServerHandle as MaxCompute
from upsert_platform_tests.local.maxcompute.server import maxcompute_server
from upsert_platform_tests.local.tablestore.server import ServerHandle as Tablestore
from upsert_platform_tests.local.tablestore.server import tablestore_server
from upsert_platform_tests.systems.faults import of_processes, of_servers, of_the_lake
from upsert_platform_tests.systems.faults.tally import Tally
from upsert_platform_tests.systems.faults.world import World, make_world

pytestmark = [pytest.mark.systems, pytest.mark.timeout(600)]

FAULTS = {**of_the_lake.FAULTS, **of_servers.FAULTS, **of_processes.FAULTS}
CHEAP = (
    "lake of 1 batches ago", "last batch gone", "data file gone", "data file cut", "bits of a data file changed",
    "log cut", "last commit empty", "disk full", "tablestore resetting", "maxcompute truncating", "kafka truncating",
    "clock an hour behind",
)  # fmt: skip


@pytest.fixture(scope="module")
def tablestore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tablestore]:
    """A server that may be disturbed."""
    with tablestore_server(tmp_path_factory.mktemp("tablestore")) as server:
        yield server


@pytest.fixture(scope="module")
def maxcompute(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MaxCompute]:
    """A server that may be disturbed."""
    with maxcompute_server(tmp_path_factory.mktemp("maxcompute")) as server:
        yield server


@pytest.fixture(scope="module")
def tally() -> Iterator[Tally]:
    """The counts of this module's faults."""
    found = Tally()
    yield found
    print(f"\n{found}")  # noqa: T201


@pytest.fixture
def world(
    tmp_path: Path,
    kafka_broker: Broker,
    tablestore: Tablestore,
    maxcompute: MaxCompute,
    make_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    spark: object,
) -> World:
    """A project of one's own."""
    made = make_world(tmp_path, kafka_broker, tablestore, maxcompute, make_topic)
    for name, value in made.stack.variables.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.mark.parametrize("name", first_of(CHEAP, every=2))
def test_nothing_is_lost_or_doubled(world: World, tally: Tally, name: str) -> None:
    FAULTS[name](world)
    tally.add(name, world.told, world.stack)
