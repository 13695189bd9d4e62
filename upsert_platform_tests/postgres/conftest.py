"""A PostgreSQL server for the tests that need one; those carry the mark `systems`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import psycopg
import pytest

from upsert_platform.postgres.table import PostgresTable
from upsert_platform_tests.postgres.declared import table_on
from upsert_platform_tests.systems.postgres import postgres

Tables = Callable[..., PostgresTable]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a server, for the whole session."""
    with postgres() as url:
        yield url


@pytest.fixture
def postgres_tables(postgres_server: str) -> Tables:
    """Declares tables of the server: columns, key and options."""

    def declare(columns: Mapping[str, str], *key: str, **options: str) -> PostgresTable:
        named = {name.replace(".", "__"): value for name, value in options.items()}
        return table_on(postgres_server, columns, key or ("id",), **named)

    return declare


@pytest.fixture
def ask(postgres_server: str) -> Callable[..., list[tuple[Any, ...]]]:
    """Runs a statement by the client's own means: what is in a table is not asked of the code under test."""
    return partial(_ask, postgres_server)


def _ask(server: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(server, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []
