"""Staged rows: an unlogged table per task, filled by binary COPY. Runs in Spark workers.

A temporary table would end with its session; a pooler may give each transaction another one. A task that is tried again
fills a table of its own, and only tables that a task's result names are merged. A write drops them
at its end; those of a killed one are dropped by the next holder of the lease.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.destination import OPERATION, OPERATION_DELETE
from upsert_platform.core.errors import RecordError
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.postgres.client import Session, connected
from upsert_platform.postgres.control import ControlTable
from upsert_platform.postgres.encode import HEADER, TRAILER, copy_rows
from upsert_platform.postgres.names import literal
from upsert_platform.postgres.table import PostgresTable
from upsert_platform.postgres.types import wire_type
from upsert_platform.writing.lease import LeaseGuard, Terms
from upsert_platform.writing.outcomes import TaskStats
from upsert_platform.writing.refused_output import KEEP_ASIDE, OpenFile, RefusedOutput
from upsert_platform.writing.row_text import refused_row

if TYPE_CHECKING:
    import psycopg

_IS_DELETE = LogicalType(TypeName.BOOLEAN)


@dataclass(slots=True)
class StageStats(TaskStats):
    """Counts of one task; `stage` is the table that it filled, empty where it had no row."""

    upserts: int = 0
    deletes: int = 0
    bytes: int = 0
    stage: str = ""


def _new_stage(table: PostgresTable) -> str:
    return f"{_prefix(table)}{uuid.uuid4().hex[:16]}"


def _prefix(table: PostgresTable) -> str:
    return f"_upsert_{hashlib.sha256(table.place.table.encode()).hexdigest()[:12]}_"


def drop_stages(session: Session, table: PostgresTable) -> None:
    """Drops what writes left."""
    prefix = _prefix(table)
    found = session.rows(
        f"SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind = 'r' AND nspname ="
        f" {literal(table.place.schema)} AND left(relname, {len(prefix)}) = {literal(prefix)}"
    )
    for (name,) in found:
        session.rows(f"DROP TABLE IF EXISTS {table.place.beside(name).sql}")


def _create(connection: psycopg.Connection[Any], stage: str, types: Sequence[LogicalType], head: str, end: str) -> None:
    columns = ", ".join(f"c{place} {wire_type(logical)}" for place, logical in enumerate(types))
    connection.execute(f"CREATE {head}TABLE {stage} ({columns}){end}")


def _copy(
    connection: psycopg.Connection[Any], stage: str, columns: Sequence[pa.Array], types: Sequence[LogicalType]
) -> int:
    """Copies rows into a staged table; returns the bytes that were sent."""
    rows = copy_rows(columns, types)
    with connection.cursor().copy(f"COPY {stage} FROM STDIN (FORMAT binary)") as copy:
        copy.write(HEADER)
        copy.write(memoryview(rows))
        copy.write(TRAILER)
    return rows.size


@contextmanager
def beside_rows(
    table: PostgresTable, columns: Mapping[str, pa.Array], types: Mapping[str, LogicalType]
) -> Iterator[tuple[psycopg.Connection[Any], str]]:
    """A connection, and the name of a table ``c0``, ``c1``, ... that holds rows for as long as the block.

    A temporary one of a transaction; Hologres has none, so it is one of a name of its own there.
    """
    kinds = [types[name] for name in columns]
    with connected(table.settings) as connection:
        if table.settings.is_hologres:
            stage = table.place.beside(_new_stage(table)).sql
            _create(connection, stage, kinds, "", "")
            try:
                _copy(connection, stage, [*columns.values()], kinds)
                yield connection, stage
            finally:
                connection.execute(f"DROP TABLE {stage}")
            return
        with connection.transaction():
            _create(connection, stage := '"_upsert_rows"', kinds, "TEMP ", " ON COMMIT DROP")
            _copy(connection, stage, [*columns.values()], kinds)
            connection.execute(f"ANALYZE {stage}")
            yield connection, stage


def staging_task(
    table: PostgresTable, *, terms: Terms, open_file: OpenFile | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` that stages a change frame under a lease; it yields `OUTCOME_SCHEMA`."""
    return partial(_staged, table, terms, open_file)


def _staged(
    table: PostgresTable, terms: Terms, open_file: OpenFile | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    task = _StagingTask(table, terms, open_file)
    try:
        yield from task.run(batches)
    finally:
        task.close()


class _StagingTask:
    """Fills one table, a block per COPY."""

    def __init__(self, table: PostgresTable, terms: Terms, open_file: OpenFile | None) -> None:
        settings = table.settings
        self._table = table
        self._types = [*table.types.values(), _IS_DELETE]
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
        blocks = _blocks(batches, self._table.settings.flush_rows)
        first = next(blocks, None)
        if first is not None:
            with connected(self._table.settings) as connection:
                self._guard.check()
                stage = self._table.place.beside(_new_stage(self._table))
                end = " WITH (autovacuum_enabled = false)"
                plain = self._table.settings.is_hologres
                _create(connection, stage.sql, self._types, "" if plain else "UNLOGGED ", "" if plain else end)
                self._stats.stage = stage.table
                yield from self._copied(connection, stage.sql, first)
                for block in blocks:
                    self._guard.check()
                    yield from self._copied(connection, stage.sql, block)
        yield self._output.end(self._stats.to_json())

    def _copied(
        self, connection: psycopg.Connection[Any], stage: str, batch: pa.RecordBatch
    ) -> Iterator[pa.RecordBatch]:
        """Copies a block; of one that is refused each half, down to the rows for which it is."""
        import psycopg

        is_delete = pc.equal(batch.column(OPERATION), OPERATION_DELETE)
        columns = [batch.column(name) for name in self._table.names]
        try:
            self._stats.bytes += _copy(connection, stage, [*columns, is_delete], self._types)
        except (psycopg.DataError, ArithmeticError, ValueError) as error:
            if batch.num_rows > 1:
                for half in halves(batch):
                    yield from self._copied(connection, stage, half)
                return
            names = self._table.names
            row = refused_row(batch, 0, columns=names, key=self._table.primary_key, reason=reason_of(error))
            refuse_if_asked(self._table, row)
            self._stats.refused += 1
            yield from self._output.add([row])
        else:
            deletes = pc.sum(is_delete).as_py() or 0
            self._stats.deletes += deletes
            self._stats.upserts += batch.num_rows - deletes


def halves(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The halves of a block."""
    middle = batch.num_rows // 2
    return batch.slice(0, middle), batch.slice(middle)


def refuse_if_asked(table: PostgresTable, row: Any) -> None:
    """Raises RecordError at a row that the server will not take, where ``on-error`` is ``fail``."""
    if table.settings.on_error == "fail":
        shown = table.mask.told(row)
        raise RecordError(
            f"table '{table.name}': PostgreSQL does not take the row {shown}. Mend the row or its source{KEEP_ASIDE}"
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


def _blocks(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """The rows in blocks of as many; Arrow's own ones are a tenth of what a COPY should have."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        while sum(part.num_rows for part in held) >= most:
            whole = pa.Table.from_batches(held).combine_chunks()
            yield whole.slice(0, most).to_batches()[0]
            held = whole.slice(most).to_batches()
    if sum(part.num_rows for part in held):
        yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]
