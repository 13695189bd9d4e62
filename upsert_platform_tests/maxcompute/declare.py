"""Declarations of tables, short enough for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.types import parse_type

BASE = {
    "connector": "maxcompute",
    "odps.project.name": "p",
    "odps.access.id": "an-id",
    "odps.access.key": "a-secret-key",
    "odps.end.point": "http://127.0.0.1:1/api",
    "table.name": "t",
}
USERS = {"id": "BIGINT", "name": "STRING"}


def declare(
    columns: Mapping[str, str] = USERS,
    *,
    key: Sequence[str] = (),
    partitioned_by: Sequence[str] = (),
    options: Mapping[str, str | None] | None = None,
    name: str = "users",
) -> Table:
    """A table; an option given as None is left out of the base options."""
    values = {**BASE, **(options or {})}
    return Table(
        name=name,
        columns=tuple(Column(column, parse_type(text)) for column, text in columns.items()),
        primary_key=tuple(key),
        options=Options({option: value for option, value in values.items() if value is not None}),
        location=SourceLocation("tables.sql", 3),
        partitioned_by=tuple(partitioned_by),
    )
