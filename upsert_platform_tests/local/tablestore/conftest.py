"""A server for the room's tests, shared by those that do not disturb it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from upsert_platform_tests.local.tablestore.server import ServerHandle, tablestore_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    logging.getLogger("tablestore-client").setLevel(logging.CRITICAL)
    with tablestore_server(tmp_path_factory.mktemp("server"), arguments=["--max-tables", "10000"]) as handle:
        yield handle


def connect(handle: ServerHandle, **options: Any) -> Any:
    """The official client, without retries unless a test asks for them."""
    from tablestore import OTSClient
    from tablestore.retry import NoRetryPolicy

    options.setdefault("retry_policy", NoRetryPolicy())
    secret = options.pop("access_key_secret", handle.access_key_secret)
    key = options.pop("access_key_id", handle.access_key_id)
    instance = options.pop("instance", handle.instance)
    client = OTSClient(handle.endpoint, key, secret, instance, **options)
    client.logger.setLevel(logging.CRITICAL)
    return client


@pytest.fixture(scope="session")
def client(server: ServerHandle) -> Any:
    return connect(server)


def create_table(client: Any, name: str, key: list[tuple[Any, ...]], **options: Any) -> str:
    """Creates a table with the SDK's own objects."""
    from tablestore import CapacityUnit, ReservedThroughput, TableMeta, TableOptions

    defined = options.pop("defined_columns", [])
    client.create_table(TableMeta(name, key, defined), TableOptions(**options), ReservedThroughput(CapacityUnit(0, 0)))
    return name


@pytest.fixture
def make_table(client: Any) -> Iterator[Callable[..., str]]:
    """Creates tables of unique names: ``make_table(("k", "STRING"), max_version=2)``."""
    names = []

    def make(*key: tuple[Any, ...], **options: Any) -> str:
        names.append(create_table(client, f"t_{uuid.uuid4().hex}", list(key or [("k", "STRING")]), **options))
        return names[-1]

    yield make
    present = client.list_table()
    for name in names:
        if name in present:
            client.delete_table(name)


@pytest.fixture
def table(make_table: Callable[..., str]) -> str:
    """A table with one STRING key column ``k``."""
    return make_table(("k", "STRING"))


def error_of(call: Callable[[], Any]) -> tuple[int, str]:
    """Status and code of the service error that a call ends with."""
    from tablestore import OTSServiceError

    with pytest.raises(OTSServiceError) as raised:
        call()
    return raised.value.http_status, raised.value.code
