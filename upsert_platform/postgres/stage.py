"""Staged rows: an unlogged table per task, filled by binary COPY. Runs in Spark workers.

A temporary table would end with its session; a pooler may give each transaction another one. A task that is tried again
fills a table of its own, and only tables that a task's result names are merged. Tables that a killed write left are
dropped by the next holder of the lease.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.destination import OPERATION, OPERATION_DELETE
from upsert_platform.errors import RecordError
from upsert_platform.postgres.client import Session, connect, translated
from upsert_platform.postgres.control import ControlTable
from upsert_platform.postgres.encode import HEADER, TRAILER, copy_rows
from upsert_platform.postgres.names import Name, literal
from upsert_platform.postgres.table import PostgresTable
from upsert_platform.postgres.types import wire_type
from upsert_platform.types import LogicalType, TypeName
from upsert_platform.writing.lease import LeaseGuard, Terms
from upsert_platform.writing.outcomes import TaskStats
from upsert_platform.writing.refused_output import KEEP_ASIDE, OpenFile, RefusedOutput
from upsert_platform.writing.row_text import refused_row

if TYPE_CHECKING:
    import psycopg

_IS_DELETE = LogicalType(TypeName.BOOLEAN)


@dataclass(slots=True)
class StageStats(TaskStats):
    """Counts of one task.

    Attributes:
        stage: the table that it filled; empty where it had no row.
    """

    upserts: int = 0
    deletes: int = 0
    bytes: int = 0
    stage: str = ""


def stage_prefix(table: PostgresTable) -> str:
    """Return the common prefix of the names of a table's staged tables."""
    return f"_upsert_{hashlib.sha256(table.place.table.encode()).hexdigest()[:12]}_"


def drop_stages(session: Session, table: PostgresTable) -> None:
    """Drops what earlier writes left."""
    prefix = stage_prefix(table)
    found = session.rows(
        f"SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind = 'r' AND nspname ="
        f" {literal(table.place.schema)} AND left(relname, {len(prefix)}) = {literal(prefix)}"
    )
    for (name,) in found:
        session.rows(f"DROP TABLE IF EXISTS {table.place.beside(name).sql}")


def create_stage(connection: psycopg.Connection[Any], stage: str, types: list[LogicalType], *, kind: str) -> None:
    """Creates a table of columns ``c0``, ``c1``, ... for staged values.

    Args:
        stage: its name, quoted.
        kind: ``UNLOGGED`` or ``TEMP``, which ends with the transaction.
    """
    columns = ", ".join(f"c{place} {wire_type(logical)}" for place, logical in enumerate(types))
    end = " ON COMMIT DROP" if kind == "TEMP" else " WITH (autovacuum_enabled = false)"
    connection.execute(f"CREATE {kind} TABLE {stage} ({columns}){end}")


def copy_into(
    connection: psycopg.Connection[Any], stage: str, columns: list[pa.Array], types: list[LogicalType]
) -> int:
    """Copies rows into a staged table; returns the bytes that were sent.

    Raises:
        psycopg.Error: the server refuses them.
        ArithmeticError, ValueError: see `encode.copy_rows`.
    """
    rows = copy_rows(columns, types)
    with connection.cursor().copy(f"COPY {stage} FROM STDIN (FORMAT binary)") as copy:
        copy.write(HEADER)
        copy.write(memoryview(rows))
        copy.write(TRAILER)
    return rows.size


def staging_task(
    table: PostgresTable, *, terms: Terms, open_file: OpenFile | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` that stages a change frame under a lease.

    It yields batches of `upsert_platform.writing.refused_output.OUTCOME_SCHEMA`.
    """

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = _StagingTask(table, terms, open_file)
        try:
            yield from task.run(batches)
        finally:
            task.close()

    return stage


class _StagingTask:
    """Fills one table, in one transaction."""

    def __init__(self, table: PostgresTable, terms: Terms, open_file: OpenFile | None) -> None:
        settings = table.settings
        self._table = table
        self._types = [*table.types, _IS_DELETE]
        self._session = Session(settings)
        self._guard = LeaseGuard(terms, ControlTable(self._session, table).tenure)
        self._stats = StageStats()
        self._output = RefusedOutput(
            f"table '{table.name}'", open_file=open_file, most=settings.max_refused_rows, mask=table.mask
        )

    def close(self) -> None:
        self._output.close()
        self._session.close()

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table, settings = self._table, self._table.settings
        stage: Name | None = None
        connection: psycopg.Connection[Any] | None = None
        try:
            for batch in _blocks(batches, settings.flush_rows):
                self._guard.check()
                with translated(settings):
                    if connection is None:
                        connection = connect(settings)
                        connection.autocommit = False
                        stage = table.place.beside(f"{stage_prefix(table)}{uuid.uuid4().hex[:16]}")
                        create_stage(connection, stage.sql, self._types, kind="UNLOGGED")
                        self._stats.stage = stage.table
                    assert stage is not None
                    yield from self._copied(connection, stage.sql, batch)
            if connection is not None:
                self._guard.check()
                with translated(settings):
                    connection.commit()
        finally:
            if connection is not None:
                connection.close()
        yield self._output.end(self._stats.to_json())

    def _copied(
        self, connection: psycopg.Connection[Any], stage: str, batch: pa.RecordBatch
    ) -> Iterator[pa.RecordBatch]:
        """Copies a block; of one that is refused each half, down to the rows for which it is."""
        import psycopg

        is_delete = pc.equal(batch.column(OPERATION), OPERATION_DELETE)
        columns = [batch.column(name) for name in self._table.names]
        try:
            with connection.transaction():
                self._stats.bytes += copy_into(connection, stage, [*columns, is_delete], self._types)
        except (psycopg.DataError, ArithmeticError, ValueError) as error:
            if batch.num_rows > 1:
                middle = batch.num_rows // 2
                yield from self._copied(connection, stage, batch.slice(0, middle))
                yield from self._copied(connection, stage, batch.slice(middle))
                return
            yield from self._refused(batch, reason_of(error))
        else:
            deletes = pc.sum(is_delete).as_py() or 0
            self._stats.deletes += deletes
            self._stats.upserts += batch.num_rows - deletes

    def _refused(self, batch: pa.RecordBatch, reason: str) -> Iterator[pa.RecordBatch]:
        table = self._table
        row = refused_row(batch, 0, columns=table.names, key=table.primary_key, reason=reason)
        refuse_if_asked(table, row)
        self._stats.refused += 1
        yield from self._output.add([row])


def refuse_if_asked(table: PostgresTable, row: Any) -> None:
    """Ends a write at a row that the server will not take, where ``on-error`` is ``fail``.

    Raises:
        RecordError: it is.
    """
    if table.settings.on_error == "fail":
        raise RecordError(
            f"table '{table.name}': PostgreSQL does not take the row {table.mask.told(row)}. Mend the row or its source"
            f"{KEEP_ASIDE}"
        )


def reason_of(error: Exception) -> str:
    """Return the reason for a rejected row: SQLSTATE, the server's message, and its column and constraint."""
    import psycopg

    if not isinstance(error, psycopg.Error):
        return f"SQLSTATE 22008: {error}" if isinstance(error, ArithmeticError) else f"SQLSTATE 22P02: {error}"
    told = error.diag
    parts = [
        told.message_primary or str(error),
        told.message_detail,
        told.constraint_name and f"constraint '{told.constraint_name}'",
    ]
    return f"SQLSTATE {error.sqlstate}: {'; '.join(part for part in parts if part)}"


def _blocks(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """The rows in blocks of as many; Arrow's own ones are a tenth of what a COPY should have."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        while count >= most:
            whole = pa.Table.from_batches(held).combine_chunks()
            yield whole.slice(0, most).to_batches()[0]
            left = whole.slice(most)
            held, count = left.to_batches(), left.num_rows
    if count:
        yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]
