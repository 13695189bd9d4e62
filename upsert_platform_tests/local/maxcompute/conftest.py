"""One server for the session, and names that no other test uses."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from upsert_platform_tests.local.maxcompute.server import ServerHandle, maxcompute_server

_numbers = itertools.count()
warnings.filterwarnings("ignore", module="odps")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with maxcompute_server(tmp_path_factory.mktemp("maxcompute")) as handle:
        yield handle


@pytest.fixture
def odps(server: ServerHandle) -> Any:
    return server.odps()


@pytest.fixture
def tunnel(odps: Any) -> Any:
    """A client of the tunnel."""
    from odps.tunnel import TableTunnel

    return TableTunnel(odps)


@pytest.fixture
def name() -> str:
    return f"table_{next(_numbers)}"


@pytest.fixture
def rows(odps: Any) -> Callable[..., list[tuple[Any, ...]]]:
    """Runs a query and gives its rows, sorted unless it says otherwise."""

    def run(query: str, *, ordered: bool = False) -> list[tuple[Any, ...]]:
        with odps.execute_sql(query).open_reader(tunnel=True) as reader:
            found = [tuple(record.values) for record in reader]
        return found if ordered else sorted(found, key=repr)

    return run
