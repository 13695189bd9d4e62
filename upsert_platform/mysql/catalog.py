"""Tables as a server's ``information_schema`` describes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.columns import MySqlColumn, MySqlTable, read_elements
from upsert_platform.mysql.names import TableSelection

if TYPE_CHECKING:
    from upsert_platform.mysql.connection import Connection

_SYSTEM: Final = ("information_schema", "mysql", "performance_schema", "sys")
_VERSIONED: Final = "SYSTEM VERSIONED"
_LENGTH: Final = re.compile(r"\((\d+)\)")
_NAMES: Final = (
    "SELECT table_schema, table_name FROM information_schema.tables"
    " WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY table_schema, table_name"
)
_KIND: Final = "SELECT table_type FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
_COLUMNS: Final = (
    "SELECT column_name, data_type, column_type, character_maximum_length, numeric_precision, numeric_scale,"
    " datetime_precision, character_set_name, is_nullable, collation_name FROM information_schema.columns"
    " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"
)
_KEYS: Final = (
    "SELECT index_name, column_name, sub_part FROM information_schema.statistics WHERE non_unique = 0"
    " AND table_schema = %s AND table_name = %s ORDER BY index_name, seq_in_index"
)
_CASCADES: Final = (
    "SELECT constraint_name FROM information_schema.referential_constraints WHERE constraint_schema = %s"
    " AND table_name = %s AND (delete_rule IN ('CASCADE', 'SET NULL') OR update_rule IN ('CASCADE', 'SET NULL'))"
    " ORDER BY constraint_name"
)


def list_tables(connection: Connection, selection: TableSelection) -> list[tuple[str, str]]:
    """Schema and name of every table that a selection names; views and the server's own tables are left out."""
    return [
        (schema, name)
        for schema, name in connection.query(_NAMES)
        if schema.lower() not in _SYSTEM and selection.has(schema, name)
    ]


def versioned_problem(connection: Connection, schema: str, name: str) -> str | None:
    """Return why a table with system versioning (MariaDB) cannot be followed, or None for another table."""
    if connection.query(_KIND, (schema, name)) != [(_VERSIONED,)]:
        return None
    return (
        f"table {schema}.{name} is system-versioned: the log tells of its earlier rows as of rows that are there;"
        " leave it out by 'tables.exclude', or take the versions away (ALTER TABLE ... DROP SYSTEM VERSIONING)"
    )


def require_one_row_per_key(connection: Connection, schema: str, name: str) -> None:
    """Stops where a table keeps its earlier rows.

    Raises:
        ReplicationError: it is system-versioned.
    """
    problem = versioned_problem(connection, schema, name)
    if problem is not None:
        raise ReplicationError(problem)


def read_table(connection: Connection, schema: str, name: str) -> MySqlTable | None:
    """A table with its columns and its primary key; None if it is not there."""
    found = connection.query(_COLUMNS, (schema, name))
    if not found:
        return None
    parts = connection.query(_KEYS, (schema, name))
    columns = tuple(_column(row[:-1]) for row in found)
    key = tuple(column for index, column, _ in parts if index == "PRIMARY")
    return MySqlTable(schema, name, columns, key, tuple(_unique(found, parts).values()))


def unique_indexes(connection: Connection, schema: str, name: str) -> dict[str, tuple[str, ...]]:
    """The unique indexes of a table, as `MySqlTable` has them, by their lower-case names."""
    found, parts = (connection.query(query, (schema, name)) for query in (_COLUMNS, _KEYS))
    return {index.casefold(): told for index, told in _unique(found, parts).items()}


def _unique(columns: Iterable[Sequence[Any]], parts: Iterable[Sequence[Any]]) -> dict[str, tuple[str, ...]]:
    collations = {row[0]: row[-1] for row in columns}
    unique: dict[str, list[str]] = {}
    for index, column, prefix in parts:
        # A part without a column is an expression, which may be another one tomorrow.
        part = f"{column}({prefix})" if prefix else str(column or f"expression of {index}")
        collation = collations.get(column)
        unique.setdefault(index, []).append(f"{part} {collation}" if collation else part)
    return {index: tuple(told) for index, told in unique.items()}


def _column(row: Iterable[Any]) -> MySqlColumn:
    name, kind, declared, length, precision, scale, fraction, charset, nullable = row
    kind, declared = str(kind).lower(), str(declared)
    words = declared.lower().split()
    if kind in ("bit", "tinyint"):
        shown = _LENGTH.search(declared)
        length = int(shown[1]) if shown else precision
    if kind in ("time", "datetime", "timestamp"):
        scale = fraction
    return MySqlColumn(
        name=name,
        kind=kind,
        declared=declared,
        unsigned="unsigned" in words and precision is not None,
        length=int(length) if length is not None else None,
        precision=int(precision) if precision is not None else None,
        fraction=int(scale or 0),
        charset=charset,
        elements=read_elements(declared) if kind in ("enum", "set") else (),
        nullable=nullable == "YES",
    )


def key_problem(table: MySqlTable) -> str | None:
    """Return why the rows of a table cannot be followed, or None if they can."""
    if not table.primary_key:
        return (
            f"table {table.full_name} has no primary key, and without one nobody can tell which row a change is of;"
            " add one, or leave the table out by 'tables.exclude'"
        )
    return None


def cascades(connection: Connection, table: MySqlTable) -> list[str]:
    """Foreign keys by which a change of another table changes rows of this one, without a row in the log."""
    return [str(name) for (name,) in connection.query(_CASCADES, (table.schema, table.name))]
