"""A local Tablestore server for this folder, and the official SDK on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from upsert_platform.tablestore.table import TablestoreTable
from upsert_platform_tests.local.tablestore.server import ServerHandle, tablestore_server


@pytest.fixture(scope="session")
def server(shared_tablestore: ServerHandle) -> ServerHandle:
    """One server for the tests that disturb nobody."""
    return shared_tablestore


@pytest.fixture(scope="session")
def disturbed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    """One server for the tests that set faults."""
    with tablestore_server(tmp_path_factory.mktemp("disturbed"), arguments=["--max-tables", "2000"]) as handle:
        yield handle


@pytest.fixture
def disturbed(disturbed_server: ServerHandle) -> Iterator[ServerHandle]:
    """A server without faults, for a test that sets some."""
    disturbed_server.faults()
    yield disturbed_server
    disturbed_server.faults()


@pytest.fixture(scope="session")
def sdk_client() -> Callable[[ServerHandle], Any]:
    """The official client on a server."""

    def open_client(handle: ServerHandle) -> Any:
        import logging

        logging.getLogger("tablestore").setLevel(logging.CRITICAL)
        logging.getLogger("tablestore-tests").setLevel(logging.CRITICAL)
        from tablestore import OTSClient

        return OTSClient(
            handle.endpoint,
            handle.access_key_id,
            handle.access_key_secret,
            handle.instance,
            logger_name="tablestore-tests",
        )

    return open_client


@pytest.fixture
def stored(sdk_client: Callable[[ServerHandle], Any]) -> Callable[[ServerHandle, TablestoreTable], dict[Any, Any]]:
    """Reads a table back by the SDK: primary key values to cells."""

    def read(handle: ServerHandle, table: TablestoreTable) -> dict[Any, Any]:
        from tablestore.metadata import INF_MAX, INF_MIN

        client = sdk_client(handle)
        names = [column.name for column in table.primary_key]
        position: Any = [(name, INF_MIN) for name in names]
        end = [(name, INF_MAX) for name in names]
        found = {}
        while position is not None:
            _, position, rows, _ = client.get_range(table.table_name, "FORWARD", position, end, max_version=1)
            for row in rows:
                key = tuple(bytes(value) if isinstance(value, bytearray) else value for _, value in row.primary_key)
                cells = {name: value for name, value, _ in row.attribute_columns}
                found[key] = {
                    name: bytes(value) if isinstance(value, bytearray) else value for name, value in cells.items()
                }
        return found

    return read
