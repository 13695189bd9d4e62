"""MariaDB servers that run side by side."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from upsert_platform.local.mariadb import USER, start_mariadb
from upsert_platform.mysql.connection import Connection, Server

pytestmark = pytest.mark.systems


def start_and_look(folder: Path) -> tuple[str, str]:
    """Directories of a new server: its data and its temporary tables."""
    with (
        start_mariadb(folder, die_with_parent=True) as mariadb,
        Connection(Server("127.0.0.1", mariadb.port, USER, mariadb.password)) as connection,
    ):
        ((data, scratch),) = connection.query("SELECT @@datadir, @@tmpdir")
    return data, scratch


def test_servers_that_start_together_share_no_directory(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(3)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(start_and_look, folders))
    for folder, directories in zip(folders, found, strict=True):
        assert all(Path(directory).is_relative_to(folder) for directory in directories), directories
