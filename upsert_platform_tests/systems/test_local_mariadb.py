"""Servers of one kind that run side by side."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from upsert_platform.local.database import Database
from upsert_platform.mysql.connection import Connection
from upsert_platform_tests.systems.servers import server_of

pytestmark = pytest.mark.systems


def start_and_look(start: Callable[..., Database], folder: Path) -> tuple[str, str]:
    """Directories of a new server: its data and its temporary tables."""
    with start(folder) as database, Connection(server_of(database)) as connection:
        ((data, scratch),) = connection.query("SELECT @@datadir, @@tmpdir")
    return data, scratch


def test_servers_that_start_together_share_no_directory(start: Callable[..., Database], tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(3)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(partial(start_and_look, start), folders))
    for folder, directories in zip(folders, found, strict=True):
        assert all(Path(directory).is_relative_to(folder) for directory in directories), directories
