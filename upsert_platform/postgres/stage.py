"""Staged rows: an unlogged table per task, filled by binary COPY. Runs in Spark workers.

A temporary table would end with its session; a pooler may give each transaction another one. A task that is tried again
fills a table of its own, and only tables that a task's result names are merged. A write drops them
at its end; those of a killed one are dropped by the next holder of the lease.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.destination import OPERATION, OPERATION_DELETE, RefusedRow
from upsert_platform.core.errors import RecordError
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.postgres.client import Session, connected
from upsert_platform.postgres.control import ControlTable
from upsert_platform.postgres.encode import HEADER, TRAILER, copy_rows
from upsert_platform.postgres.names import literal
from upsert_platform.postgres.table import PostgresTable
from upsert_platform.postgres.types import wire_type
from upsert_platform.writing.blocks import blocks, halves
from upsert_platform.writing.lease import LeaseGuard, Terms
from upsert_platform.writing.outcomes import TaskStats
from upsert_platform.writing.refused_output import KEEP_ASIDE, OpenFile, RefusedOutput
from upsert_platform.writing.row_text import refused_row

if TYPE_CHECKING:
    import psycopg

_IS_DELETE = LogicalType(TypeName.BOOLEAN)
_BLOCK_BYTES: Final = 64 << 20


@dataclass(slots=True)
class StageStats(TaskStats):
    """Counts of one task; `stage` is the table that it filled, empty where it had no row."""

    upserts: int = 0
    deletes: int = 0
    bytes: int = 0
    stage: str = ""


def _prefix(table: PostgresTable) -> str:
    return f"_upsert_{hashlib.sha256(table.place.table.encode()).hexdigest()[:12]}_"


def drop_stages(session: Session, table: PostgresTable, *, write: str = "") -> None:
    """Drops what a write left, or all writes: only the holder of the lease may do that."""
    prefix = f"{_prefix(table)}{write}"
    found = session.rows(
        f"SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind = 'r' AND nspname ="
        f" {literal(table.place.schema)} AND left(relname, {len(prefix)}) = {literal(prefix)}"
    )
    for (name,) in found:
        session.rows(f"DROP TABLE IF EXISTS {table.place.beside(name).sql}")


def staging_task(
    table: PostgresTable, *, terms: Terms, open_file: OpenFile | None, write: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` that stages a change frame under a lease; it yields `OUTCOME_SCHEMA`.

    Args:
        write: begins the names of the tables, so that `drop_stages` knows them.
    """
    return partial(_staged, table, terms, open_file, write)


def _staged(
    table: PostgresTable, terms: Terms, open_file: OpenFile | None, write: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    what, most = f"table '{table.name}'", table.settings.max_refused_rows
    output = RefusedOutput(what, open_file=open_file, most=most, mask=table.mask)
    with closing(output), closing(Session(table.settings)) as session:
        guard = LeaseGuard(terms, ControlTable(session, table).tenure)
        yield from _StagingTask(table, guard, output, write).run(batches)


class _StagingTask:
    """Fills one table, a block per COPY."""

    def __init__(self, table: PostgresTable, guard: LeaseGuard, output: RefusedOutput, write: str) -> None:
        self._table, self._guard, self._output = table, guard, output
        self._types = [*table.types.values(), _IS_DELETE]
        self._place = table.place.beside(f"{_prefix(table)}{write}{uuid.uuid4().hex[:16]}")
        self._stats = StageStats()

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = blocks(batches, rows=self._table.settings.flush_rows, size=_BLOCK_BYTES)
        first = next(found, None)
        if first is not None:
            with connected(self._table.settings) as connection:
                self._guard.check()
                self._create(connection)
                yield from self._copied(connection, first)
                for block in found:
                    self._guard.check()
                    yield from self._copied(connection, block)
        yield self._output.end(self._stats.to_json())

    def _create(self, connection: psycopg.Connection[Any]) -> None:
        columns = ", ".join(f"c{place} {wire_type(logical)}" for place, logical in enumerate(self._types))
        sql = f"TABLE {self._place.sql} ({columns})"
        if self._table.settings.is_hologres:
            connection.execute(f"CREATE {sql}")
        else:
            connection.execute(f"CREATE UNLOGGED {sql} WITH (autovacuum_enabled = false)")
        self._stats.stage = self._place.table

    def _copied(self, connection: psycopg.Connection[Any], batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Copies a block; of one that is refused each half, down to the rows for which it is."""
        import psycopg

        table = self._table
        unkeyed = _without_key(batch, table.primary_key)
        if unkeyed is not None:
            # A unique index takes any number of rows whose key is null, and a delete finds none of them.
            yield from self._refused(batch.filter(unkeyed), "a column of its primary key is null")
            batch = batch.filter(pc.invert(unkeyed))
        if not batch.num_rows:
            return
        is_delete = pc.equal(batch.column(OPERATION), OPERATION_DELETE)
        try:
            rows = copy_rows([*(batch.column(name) for name in table.names), is_delete], self._types)
            with connection.cursor().copy(f"COPY {self._place.sql} FROM STDIN (FORMAT binary)") as copy:
                for piece in (HEADER, memoryview(rows), TRAILER):
                    copy.write(piece)
        except (psycopg.DataError, ArithmeticError, ValueError) as error:
            if batch.num_rows > 1:
                for half in halves(batch):
                    yield from self._copied(connection, half)
                return
            yield from self._refused(batch, reason_of(error))
        else:
            deletes = pc.sum(is_delete).as_py() or 0
            self._stats.bytes += rows.size
            self._stats.deletes += deletes
            self._stats.upserts += batch.num_rows - deletes

    def _refused(self, batch: pa.RecordBatch, reason: str) -> Iterator[pa.RecordBatch]:
        table = self._table
        for place in range(batch.num_rows):
            row = refused_row(batch, place, columns=table.names, key=table.primary_key, reason=reason)
            refuse_if_asked(table, row)
            self._stats.refused += 1
            yield from self._output.add([row])


def _without_key(batch: pa.RecordBatch, key: Sequence[str]) -> pa.Array | None:
    """Return which rows have a null in their key; None where none has."""
    nulls = [column.is_null() for name in key if (column := batch.column(name)).null_count]
    return reduce(pc.or_, nulls) if nulls else None


def refuse_if_asked(table: PostgresTable, row: RefusedRow) -> None:
    """Raises RecordError at a row that the server will not take, where ``on-error`` is ``fail``."""
    if table.settings.on_error == "fail":
        raise RecordError(
            f"table '{table.name}': PostgreSQL does not take the row {table.mask.told(row)}. Mend the row or its source"
            f"{KEEP_ASIDE}"
        )


def reason_of(error: Exception) -> str:
    """Return the reason for a rejected row: SQLSTATE, the server's message, and its column and constraint."""
    import psycopg

    if not isinstance(error, psycopg.Error):
        return f"SQLSTATE {'22008' if isinstance(error, ArithmeticError) else '22P02'}: {error}"
    found = error.diag
    constraint = found.constraint_name and f"constraint '{found.constraint_name}'"
    parts = [found.message_primary or str(error), found.message_detail, constraint]
    return f"SQLSTATE {error.sqlstate}: {'; '.join(part for part in parts if part)}"
