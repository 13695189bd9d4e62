"""Every destination by one name, each on its real system; a new one is a function, and a line in DESTINATIONS."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import pytest

from upsert_platform.core.destination import Destination
from upsert_platform_tests.kafka.tables import declare as declare_topic
from upsert_platform_tests.kafka.tables import read as read_topic
from upsert_platform_tests.maxcompute.conftest import make_table, maxcompute  # noqa: F401 (fixtures)
from upsert_platform_tests.postgres.conftest import postgres_server, postgres_tables  # noqa: F401 (fixtures)
from upsert_platform_tests.tablestore.conftest import server  # noqa: F401 (a fixture)
from upsert_platform_tests.tablestore.declared import table_on
from upsert_platform_tests.writing.in_memory import COLUMNS, MemoryDestination, Place

STRICT: Final = {"id": "BIGINT", "name": "STRING NOT NULL"}
Open = Callable[[], Destination]
"""Opens a destination; each call another object on one and the same table."""
Columns = Mapping[str, str]


def at_least_once(request: pytest.FixtureRequest, columns: Columns, **options: str) -> Open:
    from upsert_platform.kafka.sink.destination import KafkaDestination

    topic = f"contract-{uuid.uuid4().hex[:12]}"
    servers = {"properties.bootstrap.servers": request.getfixturevalue("kafka_bootstrap")}
    named = {name: f"{value}-{topic}" if name.endswith("prefix") else value for name, value in options.items()}
    declared = declare_topic(columns, topic=topic, **servers, **{"sink.parallelism": "2"}, **named)
    return lambda: KafkaDestination(read_topic(declared, writes=True))


def exactly_once(request: pytest.FixtureRequest, columns: Columns, **options: str) -> Open:
    more = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "contract"}
    return at_least_once(request, columns, **more, **options)


def tablestore(request: pytest.FixtureRequest, columns: Columns, **options: str) -> Open:
    from upsert_platform.tablestore.destination import TablestoreDestination

    table = table_on(request.getfixturevalue("server"), columns, ["id"], options)
    return lambda: TablestoreDestination(table)


def maxcompute_delta(request: pytest.FixtureRequest, columns: Columns, **options: str) -> Open:
    from upsert_platform.maxcompute.destination import MaxComputeDestination

    named = {name.replace("-", "__"): value for name, value in options.items()}
    table = request.getfixturevalue("make_table")(columns, commit_min__interval="0 s", **named)
    return lambda: MaxComputeDestination(table)


def maxcompute_tunnel(request: pytest.FixtureRequest, columns: Columns, **options: str) -> Open:
    return maxcompute_delta(request, columns, **options, **{"write_api": "tunnel"})


def postgres(request: pytest.FixtureRequest, columns: Columns, **options: str) -> Open:
    from upsert_platform.postgres.destination import PostgresDestination

    table = request.getfixturevalue("postgres_tables")(columns, **options)
    return lambda: PostgresDestination(table)


def memory(request: pytest.FixtureRequest, columns: Columns, **options: str) -> Open:
    place = Place()
    return lambda: MemoryDestination(place, columns, fails=options.get("on-error") == "fail")


DESTINATIONS: Final[Mapping[str, Callable[..., Open]]] = {
    "upsert-kafka": at_least_once,
    "upsert-kafka-exactly-once": exactly_once,
    "tablestore": tablestore,
    "maxcompute": maxcompute_delta,
    "memory": memory,
    "postgres": postgres,
}
OF_SYSTEMS: Final = {"postgres"}
"""Those whose server has to be installed: their tests are run by `make test-systems`."""


def marked(names: Collection[str]) -> list[Any]:
    """Return the names as parameters, those of further servers with the mark `systems`."""
    return [pytest.param(name, marks=pytest.mark.systems) if name in OF_SYSTEMS else name for name in names]


@pytest.fixture(params=marked(DESTINATIONS))
def declared(request: pytest.FixtureRequest) -> Iterator[Callable[..., Open]]:
    """Declares tables of one kind: columns and options to what opens a destination; all are closed at the end."""
    made: list[Any] = []

    def declare(columns: Columns = COLUMNS, **options: str) -> Open:
        build = DESTINATIONS[request.param](request, columns, **options)

        def open_() -> Destination:
            made.append(build())
            return made[-1]

        return open_

    yield declare
    for destination in made:
        destination.close()
        destination.close()  # closing is idempotent


@pytest.fixture
def opened(declared: Callable[..., Open]) -> Open:
    """Opens destinations of one kind."""
    return declared()
