"""Rows of a table, read by tasks: all by ranges of pages, or those of some keys. Runs in Spark workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from upsert_platform.postgres.client import Session, transaction
from upsert_platform.postgres.decode import query_rows
from upsert_platform.postgres.names import quote
from upsert_platform.postgres.schema import FoundTable
from upsert_platform.postgres.stage import copy_into, create_stage
from upsert_platform.postgres.table import PostgresTable
from upsert_platform.postgres.types import Found, cast_of, text_of
from upsert_platform.types import arrow_type

RANGES_DDL: Final = "first BIGINT, last BIGINT"
_KEYS: Final = '"_upsert_keys"'
_PAGES: Final = 8192
"""Pages of 8 KB of a range: 64 MB."""
_MOST_RANGES: Final = 1024
MOST_KEYS: Final = 100_000
"""Keys that are looked up at once."""


def table_types(table: PostgresTable) -> dict[str, Found]:
    """Types of the columns as the server has them."""
    session = Session(table.settings)
    try:
        return FoundTable(session, table).columns
    finally:
        session.close()


def page_ranges(session: Session, table: PostgresTable) -> list[tuple[int, int]]:
    """Ranges of pages of a table: of the first and the page after the last; (0, -1) for a table that has none itself.

    A partitioned table's rows are in its partitions, and a view has no pages: those are read as one.
    """
    (row,) = session.rows(
        "SELECT relkind = 'r' AND NOT relhassubclass AND current_setting('server_version_num')::int >= 140000,"
        " pg_relation_size(oid) / 8192 FROM pg_class WHERE oid = to_regclass(%s)",
        (table.place.sql,),
    )
    if not row[0] or not row[1]:
        return [(0, -1)]
    step = max(_PAGES, -(-row[1] // _MOST_RANGES))
    bounds = list(range(0, row[1], step))
    # The last range has no end: rows may come meanwhile.
    return [(first, first + step) for first in bounds[:-1]] + [(bounds[-1], -1)]


@dataclass(frozen=True)
class RangeRows:
    """A function for ``mapInArrow`` from ranges of pages to rows."""

    table: PostgresTable

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for bounds in batch.to_pylist():
                yield from rows_between(self.table, bounds["first"], bounds["last"])


def first_rows(table: PostgresTable, limit: int) -> pa.Table:
    """The first rows of a table, by key, in declared types."""
    fields = [pa.field(name, arrow_type(logical)) for name, logical in zip(table.names, table.types, strict=True)]
    order = ", ".join(f"t.{quote(name)}" for name in table.primary_key)
    sql = f"SELECT {_texts(table)} FROM {table.place.sql} AS t ORDER BY {order} LIMIT {limit}"
    with transaction(table.settings) as connection:
        return pa.Table.from_batches(query_rows(connection, sql, table.names, table.types), schema=pa.schema(fields))


def rows_between(table: PostgresTable, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range of pages."""
    clauses = [f"t.ctid >= '({first},0)'"] if first > 0 else []
    clauses += [f"t.ctid < '({last},0)'"] if last >= 0 else []
    where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
    sql = f"SELECT {_texts(table)} FROM {table.place.sql} AS t{where}"
    with transaction(table.settings) as connection:
        yield from query_rows(connection, sql, table.names, table.types)


@dataclass(frozen=True)
class KeyRows:
    """A function for ``mapInArrow`` from keys to the rows that have them.

    Attributes:
        found: types of the columns as the server has them.
    """

    table: PostgresTable
    found: dict[str, Found]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in range(0, batch.num_rows, MOST_KEYS):
                keys = [batch.column(name).slice(start, MOST_KEYS) for name in self.table.primary_key]
                yield from self._rows(keys)

    def _rows(self, keys: Sequence[pa.Array]) -> Iterator[pa.RecordBatch]:
        table, types = self.table, list(self.table.key_types)
        same = " AND ".join(
            f"t.{quote(name)} = {cast_of(f's.c{place}', logical, self.found[name])}"
            for place, (name, logical) in enumerate(zip(table.primary_key, types, strict=True))
        )
        sql = f"SELECT {_texts(table)} FROM {table.place.sql} AS t JOIN {_KEYS} AS s ON {same}"
        with transaction(table.settings) as connection:
            create_stage(connection, _KEYS, types, kind="TEMP")
            copy_into(connection, _KEYS, list(keys), types)
            connection.execute(f"ANALYZE {_KEYS}")
            yield from query_rows(connection, sql, table.names, table.types)


def rows_of_keys(table: PostgresTable, found: dict[str, Found], most: int, keys: pa.Table) -> pa.Table | None:
    """The rows of few keys, in declared types; None of more keys than `most`."""
    if keys.num_rows > most:
        return None
    fields = [pa.field(name, arrow_type(logical)) for name, logical in zip(table.names, table.types, strict=True)]
    batches = KeyRows(table, found)(iter(keys.combine_chunks().to_batches()))
    return pa.Table.from_batches(batches, schema=pa.schema(fields))


def _texts(table: PostgresTable) -> str:
    return ", ".join(
        text_of(f"t.{quote(name)}", logical) for name, logical in zip(table.names, table.types, strict=True)
    )
