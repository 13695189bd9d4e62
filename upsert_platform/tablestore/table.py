"""A declared Tablestore table: which column is kept in which cell, and the checks of the declaration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Column, Table
from upsert_platform.core.options import read_settings
from upsert_platform.tablestore import limits
from upsert_platform.tablestore.options import InsertMode, TablestoreSettings
from upsert_platform.tablestore.types import StoredType, primary_key_type, stored_type
from upsert_platform.writing.declared import WrittenTable, column_problems, control_problem

_KEY_TYPES: Final = (
    "a Tablestore key is STRING, INTEGER or BINARY. Use a character, integer, decimal, date, time or binary type"
)


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A declared column and the cell that holds it."""

    column: Column
    stored: StoredType

    @property
    def name(self) -> str:
        """The name of the column and of the cell, kept as declared."""
        return self.column.name


@dataclass(frozen=True, slots=True, kw_only=True)
class TablestoreTable(WrittenTable[TablestoreSettings]):
    """A declared Tablestore table.

    Attributes:
        table_name: in the instance.
        primary_key: in the order of the PRIMARY KEY clause, which is the order of the table's keys.
        attributes: the other columns.
    """

    table_name: str
    primary_key: tuple[StoredColumn, ...]
    attributes: tuple[StoredColumn, ...]


_CONNECT_NAMES: Final = (
    "buffer.size", "bucket.count", "max.thread.count", "flush.Interval", "insert.order.enable", "event.parse.class",
    "table.name.format", "topics", "topics.regex", "topics.assign.tables", "primarykey.mode", "json.field.conversion",
    "auto.increment.repeated-rows", "tablestore.mode", "tasks.max", "consumer.thread.concurrency", "transforms",
    "predicates", "connector.class",
)  # fmt: skip
_CONNECT_PREFIXES: Final = (
    "key.converter", "value.converter", "header.converter", "errors.", "runtime.error.", "transforms.", "predicates.",
    "consumer.override.", "producer.override.", "tablestore.timeseries.",
)  # fmt: skip
_CONNECT_SUFFIXES: Final = (
    ".primarykey.name", ".primarykey.type", ".columns.whitelist.name", ".columns.whitelist.type",
    ".search.timestamp.type",
)  # fmt: skip


def _is_of_connect(name: str) -> bool:
    """Return whether an option is one of the sink connector that a declared table does not have."""
    per_table = name.startswith("tablestore.") and name.endswith(_CONNECT_SUFFIXES)
    return name in _CONNECT_NAMES or name.startswith(_CONNECT_PREFIXES) or per_table


def read_tablestore_table(table: Table) -> tuple[TablestoreTable | None, list[Problem]]:
    """Reads a declared table of this connector.

    Returns:
        The table, or None when a problem is an error, and every problem found.
    """
    subject = f"table '{table.name}'"
    elsewhere = [name for name in table.options if _is_of_connect(name)]
    settings, problems = read_settings(
        TablestoreSettings, table.options, subject=subject, location=table.location, ignore=_is_of_connect
    )
    problems.extend(
        Problem(
            f"{subject}: option '{name}' belongs to a configuration file of Kafka Connect (*.properties or *.json in"
            " the folder of declarations), or to a table of connector 'tablestore-connect'",
            table.options.location(name) or table.location,
        )
        for name in elsewhere
    )
    problems.extend(_check_columns(table, settings))
    if settings is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    stored = {
        column.name: StoredColumn(column, stored_type(column.type))
        for column in table.physical_columns
        if column.type is not None
    }
    checked = TablestoreTable.of(
        table,
        settings,
        table_name=settings.table_name or table.name,
        primary_key=tuple(stored[name] for name in table.primary_key),
        attributes=tuple(column for name, column in stored.items() if name not in table.primary_key),
    )
    return checked, problems


def _name_problem(name: str) -> str | None:
    rule = "Tablestore takes a letter or '_', then letters, digits and '_', 255 characters at most"
    return None if limits.is_valid_name(name) else rule


def _check_columns(table: Table, settings: TablestoreSettings | None) -> Iterator[Problem]:
    subject = f"table '{table.name}'"
    names = [column.name for column in table.physical_columns]
    if settings is not None and not settings.table_name and not limits.is_valid_name(table.name):
        yield Problem(
            f"{subject}: Tablestore takes a name of a letter or '_', then letters, digits and '_'; set 'table.name'",
            table.location,
        )
    if settings is not None:
        yield from control_problem(table, control=settings.control_table, stored=settings.table_name or table.name)
    if not 1 <= len(table.primary_key) <= limits.MAX_PRIMARY_KEYS:
        yield Problem(
            f"{subject}: a Tablestore table has 1 to {limits.MAX_PRIMARY_KEYS} primary key columns, not"
            f" {len(table.primary_key)}; declare PRIMARY KEY (...) NOT ENFORCED with them",
            table.location,
        )
    yield from column_problems(
        table,
        system="a Tablestore",
        name_problem=_name_problem,
        is_key_type=lambda kind: primary_key_type(kind) is not None,
        key_types=_KEY_TYPES,
    )
    attributes = [name for name in names if name not in table.primary_key]
    version = settings.version_column if settings is not None else None
    if len(attributes) + (version is not None) > limits.MAX_COLUMNS_PER_ROW:
        yield Problem(
            f"{subject}: {len(attributes)} columns beside the primary key; Tablestore writes"
            f" {limits.MAX_COLUMNS_PER_ROW} per row, the version column included. Split the table",
            table.location,
        )
    if version is not None and version in names:
        yield Problem(
            f"{subject}: option 'version.column': '{version}' is a declared column; name one that is not",
            table.options.location("version.column") or table.location,
        )
    if settings is not None:
        yield from _check_modes(table, settings, attributes)


def _check_modes(table: Table, settings: TablestoreSettings, attributes: list[str]) -> Iterator[Problem]:
    subject = f"table '{table.name}'"
    place = table.options.location("delete.mode") or table.options.location("insert.mode") or table.location
    if settings.insert_mode is InsertMode.UPDATE and not attributes:
        yield Problem(
            f"{subject}: option 'insert.mode' = 'update' needs a column beside the primary key, because Tablestore"
            " refuses an update without columns; use 'put'",
            place,
        )
    if not settings.delete_mode.deletes_rows:
        left = "refused" if settings.insert_mode is InsertMode.UPDATE else "a row with its primary key alone"
        if settings.insert_mode is InsertMode.UPDATE and settings.delete_mode.deletes_columns:
            left = "a row with its primary key and undeclared columns"
        yield Problem(
            f"{subject}: option 'delete.mode' = '{settings.delete_mode}': a deleted key leaves {left}, so the table"
            " does not equal its topic; 'row' or 'row_and_column' delete it",
            place,
            severity="warning",
        )
    if settings.insert_mode is InsertMode.UPDATE and not settings.delete_mode.deletes_columns:
        yield Problem(
            f"{subject}: option 'delete.mode' = '{settings.delete_mode}': with 'insert.mode' = 'update' a column that"
            " becomes null keeps its old value; 'row_and_column' deletes it",
            place,
            severity="warning",
        )
