"""Declarations and data for the tests of this room."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from upsert_platform.core.destination import OPERATION, SEQUENCE, BatchSpan, KeepRefused, WriteReport, drop_nothing
from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.types import arrow_type, parse_type
from upsert_platform.postgres.connector import PostgresConnector
from upsert_platform.postgres.destination import PostgresDestination
from upsert_platform.postgres.table import PostgresTable
from upsert_platform_tests.task_rows import task_rows

PLACE = SourceLocation("tables.sql", 7)
ADDRESS = {
    "connector": "postgres",
    "url": "jdbc:postgresql://127.0.0.1:1/postgres",
    "username": "writer",
    "password": "of-the-writer",
}
MINUTE = timedelta(seconds=60)


def declare(
    columns: Mapping[str, str], key: Sequence[str] = ("id",), *, name: str = "users", **options: str
) -> tuple[PostgresTable | None, list[Problem]]:
    """A declared table as it is read; names of options are given with ``__`` for ``.``."""
    given = {option.replace("__", "."): value for option, value in options.items()}
    declared = Table(
        name=name,
        columns=tuple(Column(column, parse_type(kind)) for column, kind in columns.items()),
        primary_key=tuple(key),
        options=Options({**ADDRESS, **given}),
        location=PLACE,
    )
    return PostgresConnector().check(declared)


def table_on(
    server: str, columns: Mapping[str, str], key: Sequence[str] = ("id",), *, name: str = "", **options: str
) -> PostgresTable:
    """A table of a server with a name of its own, created automatically."""
    parts = urlsplit(server)
    assert parts.username is not None
    assert parts.password is not None
    address = {
        "url": f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}",
        "username": parts.username,
        "password": parts.password,
    }
    unique = name or f"t_{uuid.uuid4().hex[:12]}"
    table, problems = declare(columns, key, name=unique, **{"auto__create": "true", **address, **options})
    assert table is not None, problems
    return table


def changes(columns: Mapping[str, str], *rows: tuple[Any, ...]) -> pa.Table:
    """A change frame: rows of declared columns and ``_op``."""
    kinds = [arrow_type(parse_type(kind)) for kind in columns.values()]
    values = list(zip(*rows, strict=True))
    arrays = [pa.array(value, kind) for value, kind in zip(values, [*kinds, pa.string()], strict=True)]
    return pa.table([*arrays, pa.array([1] * len(rows))], names=[*columns, OPERATION, SEQUENCE])


def write(
    table: PostgresTable,
    rows: pa.Table,
    upto: int = 1,
    *,
    keep: KeepRefused = drop_nothing,
    prepare: bool = True,
) -> WriteReport:
    """Writes rows as the batch `upto`."""
    destination = PostgresDestination(table)
    try:
        if prepare:
            destination.prepare()
        with destination.lease(owner=f"run-{upto}", duration=MINUTE) as lease:
            return destination.write(
                task_rows(rows), span=BatchSpan(upto - 1, upto, "changelog", "run"), lease=lease, keep_refused=keep
            )
    finally:
        destination.close()


def found_rows(table: PostgresTable, keys: pa.Table) -> pa.Table:
    """The rows of keys, in the order of the first column."""
    destination = PostgresDestination(table)
    try:
        found = destination.key_reader(since=0, most=1000)(keys)
    finally:
        destination.close()
    assert found is not None
    return found.sort_by(table.names[0])
