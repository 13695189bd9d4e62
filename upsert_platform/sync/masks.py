"""The masked columns of a project: declared ones, and those derived from them by inserts and queries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from upsert_platform.core.masking import Mask
from upsert_platform.core.model import Column, Insert, Project, Table
from upsert_platform.core.plan import Query
from upsert_platform.engine.lineage import lineage

_RECORDS: Final = "tablestore-connect"
"""The connector whose rows follow from records by rules of its own: nobody can tell what becomes of a column."""


def masked_tables(project: Project) -> tuple[dict[str, Table], dict[str, tuple[str, ...]]]:
    """The tables of a project with what each of them masks beside its own, and the masked columns of queries."""
    tables = dict(project.tables)
    if not any(Mask.of(table) for table in tables.values()):
        return tables, {}
    for name, table in tables.items():
        tables[name] = _with(table, _computed(table, Mask.of(table).columns))
    queries = {query.name: _of_query(query, tables) for query in project.queries()}
    for insert in project.inserts:
        if insert.target not in tables:
            continue
        target = tables[insert.target]
        read = tables[insert.source] if insert.query is None else None
        hidden = queries[insert.source] if read is None else tuple(Mask.of(read).columns)
        tables[insert.target] = _with(target, _written(insert, target, set(hidden)))
    return tables, queries


def _with(table: Table, more: Collection[str]) -> Table:
    return replace(table, masked=tuple(sorted({*table.masked, *more}))) if more else table


def _computed(table: Table, hidden: Collection[str]) -> set[str]:
    """Computed columns that are made of masked ones."""
    return {column.name for column in table.columns if column.expression and _reads(column.expression) & {*hidden}}


def _of_query(query: Query, tables: Mapping[str, Table]) -> tuple[str, ...]:
    masks = {name: Mask.of(tables[name]) for name in (*query.tables, *query.lookups) if name in tables}
    found = lineage(query.plan)
    return tuple(
        name
        for name, columns in found.items()
        if any(table in masks and column in masks[table].columns for table, column in columns)
    )


def _written(insert: Insert, target: Table, hidden: set[str]) -> set[str]:
    """Columns of a table that an insert makes of masked ones."""
    if target.connector == _RECORDS:
        every = (column.name for column in target.columns)
        return {*every, "key", "value"} if hidden or Mask.of(target) else set()
    return {column.name for column, text in _pairs(insert, target) if _reads(text) & hidden} if hidden else set()


def _pairs(insert: Insert, target: Table) -> Iterator[tuple[Column, str]]:
    # An insert that is refused may have another number of them.
    return zip(target.physical_columns, insert.projections, strict=False)


def _reads(expression: str) -> set[str]:
    """The columns in an expression of Spark SQL."""
    import sqlglot

    return {item.name for item in sqlglot.parse_one(expression, dialect="spark").find_all(sqlglot.exp.Column)}
