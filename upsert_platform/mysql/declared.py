"""A table of a server as one that a project declares."""

from __future__ import annotations

from dataclasses import replace

from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import Column
from upsert_platform.mysql.columns import MySqlTable, TypeRules, declared_type


def declared_columns(
    table: MySqlTable, rules: TypeRules, *, location: SourceLocation | None = None
) -> tuple[tuple[Column, ...], list[str]]:
    """The columns with their SQL types, and those that the platform does not read, as texts."""
    columns: list[Column] = []
    unread = []
    for column in table.columns:
        key = column.name in table.primary_key
        kind = declared_type(column, rules, key=key)
        if kind is None:
            unread.append(f"column '{column.name}' has the type {column.declared or column.kind}, which is not read")
        else:
            columns.append(Column(column.name, replace(kind, nullable=kind.nullable and not key), location=location))
    return tuple(columns), unread
