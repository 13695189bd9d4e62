"""Inserts that fill a key from a column that may be null: their rows are set aside where it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Project, Table
from upsert_platform.sync.column_lineage import lineage_of_insert

_GUARDED: Final = re.compile(r"\b(COALESCE|IFNULL|NVL|CASE|IF|GREATEST|LEAST|VALUES|IS\s+NOT\s+NULL)\b", re.IGNORECASE)
"""Of a statement with one of these nobody can tell by its columns alone whether a key may be null."""

_GENERATED: Final = ("faker", "datagen")
"""Connectors whose columns are null only where an option says so."""


def nullable_key_problems(project: Project) -> Iterator[Problem]:
    """Yield a warning for every key column that an insert fills from a column which may be null."""
    for insert in project.inserts:
        target = project.tables.get(insert.target)
        if target is None or not target.primary_key or _GUARDED.search(insert.sql):
            continue
        made_of = lineage_of_insert(insert, target)
        for name in target.primary_key:
            for table_name, column_name in made_of.get(name, ()):
                if not _may_be_null(project.tables, table_name, column_name):
                    continue
                yield Problem(
                    f"INSERT INTO {target.name}: primary key column '{name}' is filled from column '{column_name}' of"
                    f" '{table_name}', which may be null: such rows are set aside as refused. Write"
                    f" COALESCE({column_name}, ...) to give them a key, WHERE {column_name} IS NOT NULL to leave them"
                    " out, or declare the column NOT NULL",
                    insert.location,
                    severity="warning",
                )
                break


def _may_be_null(tables: Mapping[str, Table], table: str, column: str) -> bool:
    """Return whether a declared column may be null; of a watermark none is: windows take no row without a time."""
    declared = tables.get(table)
    if declared is None or column in declared.primary_key or declared.connector in _GENERATED:
        return False
    found = next((item for item in declared.columns if item.name == column), None)
    if found is None or found.type is None or not found.type.nullable:
        return False
    return declared.watermark is None or column not in declared.watermark
