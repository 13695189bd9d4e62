"""Values as the server holds them: jsonb orders members, uuid is in lower case. Runs in Spark workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from upsert_platform.postgres.client import transaction
from upsert_platform.postgres.decode import query_rows
from upsert_platform.postgres.stage import copy_into, create_stage
from upsert_platform.postgres.table import PostgresTable
from upsert_platform.postgres.types import Found, cast_of, changes_values, text_of
from upsert_platform.types import LogicalType, TypeName

_STAGE = '"_upsert_values"'
_PLACE = LogicalType(TypeName.BIGINT)


def changed_columns(table: PostgresTable, found: dict[str, Found]) -> dict[str, LogicalType]:
    """Columns whose values the server may give back in another form than they were written."""
    pairs = zip(table.names, table.types, strict=True)
    return {name: logical for name, logical in pairs if changes_values(logical, found[name])}


@dataclass(frozen=True)
class HeldRows:
    """A function from change rows to the same as the table holds them: the server is asked, in bulk.

    A value that the server does not take stays as it is: its row is refused.
    """

    table: PostgresTable
    found: dict[str, Found]

    def __call__(self, changes: pa.Table) -> pa.Table:
        """Return a table of change rows."""
        return pa.Table.from_batches(self.in_batches(iter(changes.to_batches())), schema=changes.schema)

    def in_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function for ``mapInArrow``."""
        for batch in batches:
            yield from self._held(batch)

    def _held(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        from upsert_platform.errors import DestinationError

        try:
            yield self._asked(batch)
        except (DestinationError, ArithmeticError, ValueError):
            if batch.num_rows == 1:
                yield batch
                return
            middle = batch.num_rows // 2
            yield from self._held(batch.slice(0, middle))
            yield from self._held(batch.slice(middle))

    def _asked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = changed_columns(self.table, self.found)
        types = [_PLACE, *columns.values()]
        places = pa.array(range(batch.num_rows), pa.int64())
        texts = ", ".join(
            text_of(f"({cast_of(f's.c{place}', logical, self.found[name])})", logical)
            for place, (name, logical) in enumerate(columns.items(), 1)
        )
        with transaction(self.table.settings) as connection:
            create_stage(connection, _STAGE, types, kind="TEMP")
            copy_into(connection, _STAGE, [places, *(batch.column(name) for name in columns)], types)
            sql = f"SELECT {texts} FROM {_STAGE} AS s ORDER BY s.c0"
            rows = pa.Table.from_batches(query_rows(connection, sql, list(columns), types[1:])).combine_chunks()
        for name in columns:
            index = batch.schema.get_field_index(name)
            batch = batch.set_column(index, batch.schema.field(index), rows.column(name).combine_chunks())
        return batch
