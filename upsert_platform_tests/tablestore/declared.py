"""Declarations and data for the tests of this room."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from upsert_platform.core.destination import OPERATION, SEQUENCE
from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.types import arrow_type, parse_type
from upsert_platform.tablestore.table import TablestoreTable, read_tablestore_table
from upsert_platform_tests.local.tablestore.server import ServerHandle

PLACE = SourceLocation("tables.sql", 7)
ADDRESS = {
    "connector": "tablestore",
    "tablestore.endpoint": "http://127.0.0.1:1",
    "tablestore.instance.name": "local",
    "tablestore.access.key.id": "test-id",
    "tablestore.access.key.secret": "test-secret",
}


def declare(
    columns: Mapping[str, str], key: Sequence[str], options: Mapping[str, str] | None = None, *, name: str = "users"
) -> Table:
    """A declared table; the address options are given."""
    return Table(
        name=name,
        columns=tuple(Column(column, parse_type(kind)) for column, kind in columns.items()),
        primary_key=tuple(key),
        options=Options({**ADDRESS, **(options or {})}),
        location=PLACE,
    )


def table_on(
    server: ServerHandle | None,
    columns: Mapping[str, str],
    key: Sequence[str],
    options: Mapping[str, str] | None = None,
    *,
    name: str = "",
) -> TablestoreTable:
    """A table of the server with a name of its own, created automatically."""
    address = {} if server is None else {"tablestore.endpoint": server.endpoint}
    unique = name or f"t_{uuid.uuid4().hex[:12]}"
    given = {"auto.create": "true", "retry.deadline": "20 s", "control.table": f"control_{unique}", **address}
    table, problems = read_tablestore_table(declare(columns, key, {**given, **(options or {})}, name=unique))
    assert table is not None, problems
    return table


def change_batch(table: TablestoreTable, rows: Sequence[Mapping[str, Any]], *, sequence: int = 1) -> pa.RecordBatch:
    """A change frame: rows of declared columns, with ``_op`` (``U`` unless given)."""
    arrays = [
        pa.array([row.get(column.name) for row in rows], arrow_type(column.type))
        for column in table.columns
        if column.type is not None
    ]
    operations = pa.array([row.get(OPERATION, "U") for row in rows])
    numbers = pa.array([row.get(SEQUENCE, sequence) for row in rows], pa.int64())
    names = [*(column.name for column in table.columns), OPERATION, SEQUENCE]
    return pa.RecordBatch.from_arrays([*arrays, operations, numbers], names=names)
