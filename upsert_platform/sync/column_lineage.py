"""Column lineage of inserts: the columns of declared tables from which each column of a written table is computed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from upsert_platform.core.model import Insert, Table
from upsert_platform.core.plan import scans
from upsert_platform.engine.lineage import lineage
from upsert_platform.sql.insert import written_columns

_READ: Final = re.compile(r"`((?:[^`]|``)*)`")
"""A column in a projection or a predicate."""

Columns = tuple[tuple[str, str], ...]
"""Pairs of table and column."""


def lineage_of_insert(insert: Insert, target: Table) -> Mapping[str, Columns]:
    """Return the source columns of each column of a written table: name to (table, column)."""
    result = lineage(insert.query.plan) if insert.query is not None else None
    found: dict[str, Columns] = {}
    for column, projection in zip(written_columns(target), insert.projections, strict=False):
        read = _names(projection)
        if result is None:
            found[column.name] = tuple((insert.source, name) for name in read)
        else:
            found[column.name] = tuple(pair for name in read for pair in result.get(name, ()))
    return found


def columns_read(insert: Insert, target: Table) -> Mapping[str, frozenset[str]]:
    """Return every column that an insert reads, those of filters, joins and groups among them: table to columns."""
    found: dict[str, set[str]] = {}
    for table, name in (pair for pairs in lineage_of_insert(insert, target).values() for pair in pairs):
        found.setdefault(table, set()).add(name)
    if insert.query is None:
        found.setdefault(insert.source, set()).update(_names(insert.predicate or ""))
    else:
        for scan in scans(insert.query.plan):
            found.setdefault(scan.table, set()).update(item.name for item in scan.columns)
    return {table: frozenset(names) for table, names in found.items()}


def _names(text: str) -> list[str]:
    return [name.replace("``", "`") for name in _READ.findall(text)]
