"""Rows of a table, read by tasks: all by ranges of pages, those of keys, or values as the server holds them.

Runs in Spark workers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa

from upsert_platform.core.connector import KeysInTask
from upsert_platform.core.errors import DestinationError
from upsert_platform.core.types import LogicalType
from upsert_platform.formats.columns import schema_of
from upsert_platform.postgres.client import Session, connected
from upsert_platform.postgres.copy import given_rows, query_rows
from upsert_platform.postgres.options import PostgresSettings
from upsert_platform.postgres.schema import prepare_table
from upsert_platform.postgres.sql import Found, casts_of, changes_values, created_type, literal, quote, same_values
from upsert_platform.postgres.table import PostgresTable
from upsert_platform.writing.blocks import blocks, by_halves

Batches = Iterator[pa.RecordBatch]
_PAGES: Final = 8192
"""Pages of 8 KB of a range: 64 MB."""
_MOST_RANGES: Final = 1024
_IS_NO_VALUE: Final = re.compile(r"SQLSTATE 22\w{3}:")
_MOST_KEYS: Final = 100_000
"""Keys that are looked up at once."""


def page_ranges(session: Session, table: PostgresTable) -> Sequence[tuple[int, int]]:
    """Ranges of pages of a table: of the first and the page after the last; (0, -1) for a table that has none itself.

    A partitioned table's rows are in its partitions, a view has no pages, and Hologres no places of rows: those are
    read as one.
    """
    (row,) = session.rows(
        "SELECT relkind = 'r' AND NOT relhassubclass AND current_setting('server_version_num')::int >= 140000,"
        " pg_relation_size(oid) / 8192 FROM pg_class WHERE oid = to_regclass(%s)",
        (table.place.sql,),
    )
    if table.settings.is_hologres or not row[0] or not row[1]:
        return [(0, -1)]
    step = max(_PAGES, -(-row[1] // _MOST_RANGES))
    bounds = list(range(0, row[1], step))
    # The last range has no end: rows may come meanwhile.
    return [(first, first + step) for first in bounds[:-1]] + [(bounds[-1], -1)]


def first_rows(table: PostgresTable, limit: int) -> pa.Table:
    """The first rows of a table, by key, in declared types."""
    order = ", ".join(f"t.{quote(name)}" for name in table.primary_key)
    return pa.Table.from_batches(_selected(table, f" ORDER BY {order} LIMIT {limit}"), table.schema)


def _selected(table: PostgresTable, rest: str, *, snapshot: str = "") -> Batches:
    own = {
        name: f"NULL::{created_type(logical)}" if name in table.absent else f"t.{quote(name)}"
        for name, logical in table.types.items()
    }
    with connected(table.settings) as connection, connection.transaction():
        if snapshot:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")
        yield from query_rows(connection, own, f"FROM {table.place.sql} AS t{rest}", table.types)


@dataclass(frozen=True)
class RangeRows:
    """A function for ``mapInArrow`` from numbers of ranges to their rows; of a `snapshot` where one is exported."""

    table: PostgresTable
    ranges: Sequence[tuple[int, int]]
    snapshot: str = ""

    def __call__(self, numbers: Batches) -> Batches:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                first, last = self.ranges[number]
                clauses = [f"t.ctid >= '({first},0)'"] * (first > 0) + [f"t.ctid < '({last},0)'"] * (last >= 0)
                where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
                yield from _selected(self.table, where, snapshot=self.snapshot)


@dataclass(frozen=True)
class KeyRows:
    """A function for ``mapInArrow`` from keys to the rows that have them; `found`: types as the server has them."""

    table: PostgresTable
    found: Mapping[str, Found]

    def __call__(self, batches: Batches) -> Batches:
        key = {name: self.table.types[name] for name in self.table.primary_key}
        same = same_values(casts_of(key, self.found))

        def having(keys: pa.RecordBatch) -> list[pa.RecordBatch]:
            return list(_selected(self.table, f" JOIN {given_rows(keys, key)} ON {same}"))

        for block in blocks(batches, rows=_MOST_KEYS):
            for _, rows in by_halves(block, having, _is_no_value):
                # A key that no value of the column's type can be has no row.
                yield from rows if isinstance(rows, list) else ()


def _is_no_value(error: Exception) -> bool:
    return isinstance(error, ValueError) or bool(_IS_NO_VALUE.search(str(error)))


@dataclass(frozen=True, slots=True)
class PostgresKeyReader(KeysInTask):
    """Rows for lookups by key: sends keys to the server, which joins them with the table."""

    table: PostgresTable

    def fetching(self) -> KeyRows:
        """Compares the table with its declaration; each question has a connection of its own."""
        with closing(Session(self.table.settings)) as session:
            found = prepare_table(session, self.table, written=False, keyed=False)
        return KeyRows(self.table, found.columns)


@dataclass(frozen=True)
class HeldRows:
    """A function for ``mapInArrow`` from change rows to the same as the table holds them: jsonb orders members, uuid is
    in lower case.

    The server is asked, in bulk. A value that it does not take stays as it is: its row is refused.

    Attributes:
        types: of the columns whose values the server may give back in another form than they were written.
        found: their types as the server has them.
    """

    settings: PostgresSettings
    types: Mapping[str, LogicalType]
    found: Mapping[str, Found]

    @classmethod
    def of(cls, table: PostgresTable, found: Mapping[str, Found]) -> Self | None:
        """Return the function for the columns that are there, or None if each value is held unchanged."""
        types = {
            name: kind for name, kind in table.types.items() if name in found and changes_values(kind, found[name])
        }
        return cls(table.settings, types, found) if types else None

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            for part, held in by_halves(batch, self._asked, _is_refusal):
                yield part if isinstance(held, Exception) else held

    def _asked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        source = f"FROM {given_rows(batch, self.types)}"
        with connected(self.settings) as connection:
            # A function in FROM gives its rows in their order.
            found = query_rows(connection, casts_of(self.types, self.found), source, self.types)
            rows = pa.Table.from_batches(found, schema_of([*self.types.items()])).combine_chunks()
        for name in self.types:
            index = batch.schema.get_field_index(name)
            batch = batch.set_column(index, batch.schema.field(index), rows.column(name).combine_chunks())
        return batch


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, (DestinationError, ArithmeticError, ValueError))
