"""Tests against servers beside the usual ones. The mark `systems` on a test makes it one of them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from upsert_platform.changelog.lake import OPTIONS_VARIABLE
from upsert_platform.local.database import Database, start_database
from upsert_platform.local.mariadb import mariadb_server
from upsert_platform.local.mysql import mysql_server
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform_tests.graph.conftest import make_stack, stack, variables
from upsert_platform_tests.s3 import S3, start_s3
from upsert_platform_tests.systems.followed import Followed
from upsert_platform_tests.systems.installed import Installed, install_wheel
from upsert_platform_tests.systems.servers import KINDS, Kind, server_of

__all__ = ["make_stack", "s3", "s3_server", "stack", "variables"]


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """An S3 server, for the whole session."""
    with start_s3(tmp_path_factory.mktemp("s3"), die_with_parent=True) as server:
        yield server


@pytest.fixture
def s3(spark: SparkSession, s3_server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A lake of one's own on the S3 server; the workers of the session, which has begun, do not know its options."""
    monkeypatch.setenv(OPTIONS_VARIABLE, str(s3_server.options))
    return f"{s3_server.uri}/{tmp_path.name}"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The platform's wheel, built and installed into an environment of its own."""
    return install_wheel(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="session")
def archive(installed: Installed) -> Path:
    """What `upsert-platform package` makes of that environment."""
    path = installed.folder / "upsert-platform.tar.gz"
    done = installed.run("upsert-platform", "package", str(path), cwd=installed.folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"spark.archives={path}#environment\n"
    return path


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A MariaDB server; `.ci/run` installs one, and without one these tests fail."""
    with start_database(mariadb_server, tmp_path_factory.mktemp("mariadb"), die_with_parent=True) as server:
        yield server


@pytest.fixture(scope="session")
def mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A MySQL server."""
    with start_database(mysql_server, tmp_path_factory.mktemp("mysql"), die_with_parent=True) as server:
        yield server


@pytest.fixture(params=list(KINDS.values()), ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    """MariaDB and MySQL, one after the other: what one of them does, the other has to do."""
    found: Kind = request.param
    return found


@pytest.fixture
def start(kind: Kind) -> Callable[..., Database]:
    """Starts a server of one's own, of that kind, on a data directory."""
    return partial(kind.start, die_with_parent=True)


@pytest.fixture
def server(kind: Kind, request: pytest.FixtureRequest) -> Server:
    """Where the session's server of that kind is, and its user of all rights."""
    return server_of(request.getfixturevalue(kind.name))


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    """A connection of that user."""
    with Connection(server) as opened:
        yield opened


@pytest.fixture
def schema(connection: Connection) -> str:
    """A schema of one's own."""
    name = f"s_{secrets.token_hex(4)}"
    connection.query(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    return name


@pytest.fixture
def follow(spark: SparkSession, server: Server, schema: str, tmp_path: Path) -> Callable[..., Followed]:
    """Follows a table of the schema: its name and options, with ``__`` for ``.`` and ``_`` for ``-``."""

    def made(name: str = "t", **more: str) -> Followed:
        given = {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}
        return Followed(spark, server, schema, name, tmp_path, given)

    return made


_ON_MYSQL: Final = ("test_mysql_pipeline.py", "test_mysql_proofs.py")
"""Files whose tests are whole runs: on MySQL in each run, on MariaDB, whose log the others read, in `make soak`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name in _ON_MYSQL and "[mariadb" in item.name:
            item.add_marker(pytest.mark.soak)
