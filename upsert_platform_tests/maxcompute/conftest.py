"""One local MaxCompute server for the tests of this room; every test has tables of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from upsert_platform.maxcompute.client import Client
from upsert_platform.maxcompute.connection import Connection
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.table import MaxComputeTable, read_maxcompute_table
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.declare import USERS, declare


@pytest.fixture(scope="session")
def maxcompute(shared_maxcompute: ServerHandle) -> ServerHandle:
    """The server."""
    return shared_maxcompute


def options_for(server: ServerHandle, table: str) -> dict[str, str]:
    """Options that reach a table of the server."""
    return {
        "odps.end.point": server.endpoint,
        "odps.project.name": server.project,
        "odps.access.id": server.access_id,
        "odps.access.key": server.access_key,
        "table.name": table,
        "control.table": f"control_{table}",
    }


@pytest.fixture
def make_table(maxcompute: ServerHandle) -> Callable[..., MaxComputeTable]:
    """Declares a table on the server, with a name of its own and ``auto.create``; nothing is created yet."""

    def make(
        columns: Mapping[str, str] = USERS,
        *,
        key: Sequence[str] = ("id",),
        partitioned_by: Sequence[str] = (),
        server: ServerHandle | None = None,
        **options: str,
    ) -> MaxComputeTable:
        operation = "upsert" if key else "insert"
        values = {
            **options_for(server or maxcompute, f"t_{uuid.uuid4().hex[:12]}"),
            "sink.operation": operation,
            "auto.create": "true",
            "upsert.write.bucket.num": "4",
            **{name.replace("__", "-").replace("_", "."): value for name, value in options.items()},
        }
        table, problems = read_maxcompute_table(
            declare(columns, key=key, partitioned_by=partitioned_by, options=values)
        )
        assert table is not None, problems
        return table

    return make


@pytest.fixture
def client(make_table: Callable[..., MaxComputeTable]) -> Iterator[Client]:
    """A client of the project."""
    opened = Client(Connection.of(make_table().settings))
    yield opened
    opened.close()


@pytest.fixture
def opened(make_table: Callable[..., MaxComputeTable]) -> Iterator[Callable[..., MaxComputeDestination]]:
    """Opens and prepares a destination; takes what `make_table` takes."""
    destinations = []

    def open_it(*arguments: object, **options: object) -> MaxComputeDestination:
        destination = MaxComputeDestination(make_table(*arguments, **options))
        destinations.append(destination)
        destination.prepare()
        return destination

    yield open_it
    for destination in destinations:
        destination.close()
