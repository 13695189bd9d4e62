"""Staged rows: an unlogged table per task, filled by binary COPY, and merged into the table by one transaction.

A temporary table would end with its session; a pooler may give each transaction another one. A task, which runs in a
Spark worker, fills a table of its own when it is tried again, and only tables that a task's result names are merged. A
write drops them at its end; those of a killed one are dropped by the next holder of the lease.

Deletes come before puts, so that a value of a unique column can pass from one key to another. Rows that the server
refuses are found by halves, each tried behind a savepoint: a statement that fails leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.destination import OPERATION, OPERATION_DELETE, OPERATION_UPSERT, RefusedRow
from upsert_platform.core.errors import DestinationError, RecordError
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.postgres.client import Session, connected
from upsert_platform.postgres.control import ControlTable
from upsert_platform.postgres.copy import HEADER, TRAILER, copy_rows, query_rows
from upsert_platform.postgres.sql import Found, casts_of, literal, quote, same_values, staged_columns
from upsert_platform.postgres.table import PostgresTable
from upsert_platform.writing.blocks import blocks, by_halves
from upsert_platform.writing.lease import LeaseGuard, Terms
from upsert_platform.writing.outcomes import TaskStats
from upsert_platform.writing.refused_output import KEEP_ASIDE, OpenFile, RefusedOutput, too_many_refused
from upsert_platform.writing.row_text import refused_row

if TYPE_CHECKING:
    import psycopg

_IS_DELETE = LogicalType(TypeName.BOOLEAN)
_BLOCK_BYTES: Final = 64 << 20
_PER_PAGE: Final = 512
"""More rows than a page of 8 KB holds."""
_SORT_MEMORY: Final = "64MB"
_OF_ROWS: Final = ("22", "23", "44")
"""Classes of SQLSTATE that a row has a part in: data, constraints, views' checks."""


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


@dataclass(frozen=True)
class StagingTask:
    """A function for ``mapInArrow`` that stages a change frame under a lease; it yields `OUTCOME_SCHEMA`.

    Attributes:
        write: begins the names of the tables, so that `drop_stages` knows them.
    """

    table: PostgresTable
    terms: Terms
    open_file: OpenFile | None
    write: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table, settings = self.table, self.table.settings
        what, most = f"table '{table.name}'", settings.max_refused_rows
        output = RefusedOutput(what, open_file=self.open_file, most=most, mask=table.mask)
        stage = _Stage(table, self.write, output)
        found = blocks(batches, rows=settings.flush_rows, size=_BLOCK_BYTES)
        with closing(output), closing(Session(settings)) as session:
            guard = LeaseGuard(self.terms, ControlTable(session, table).tenure)
            first = next(found, None)
            if first is not None:
                with connected(settings) as connection:
                    for block in chain((first,), found):
                        guard.check()
                        yield from stage.copy(connection, block)
            yield output.end(stage.stats.to_json())


class _Stage:
    """The table of a task, which its first block creates."""

    def __init__(self, table: PostgresTable, write: str, output: RefusedOutput) -> None:
        self._table, self._output = table, output
        self._types = [*table.types.values(), _IS_DELETE]
        self._place = table.place.beside(f"{_prefix(table)}{write}{uuid.uuid4().hex[:16]}")
        self.stats = StageStats()

    def copy(self, connection: psycopg.Connection[Any], batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Copies a block, a COPY for each part of it that the server takes; yields what is refused of it."""
        if not self.stats.stage:
            self._create(connection)
        unkeyed = _without_key(batch, self._table.primary_key)
        if unkeyed is not None:
            # A unique index takes any number of rows whose key is null, and a delete finds none of them.
            yield from self._refused(batch.filter(unkeyed), "a column of its primary key is null")
            batch = batch.filter(pc.invert(unkeyed))
        if not batch.num_rows:
            return
        for part, size in by_halves(batch, partial(self._copied, connection), is_of_rows):
            if isinstance(size, Exception):
                yield from self._refused(part, reason_of(size))
                continue
            deletes = pc.sum(_deleted(part)).as_py() or 0
            self.stats.bytes += size
            self.stats.deletes += deletes
            self.stats.upserts += part.num_rows - deletes

    def _create(self, connection: psycopg.Connection[Any]) -> None:
        sql = f"TABLE {self._place.sql} ({staged_columns(self._types)})"
        if self._table.settings.is_hologres:
            connection.execute(f"CREATE {sql}")
        else:
            connection.execute(f"CREATE UNLOGGED {sql} WITH (autovacuum_enabled = false)")
        self.stats.stage = self._place.table

    def _copied(self, connection: psycopg.Connection[Any], part: pa.RecordBatch) -> int:
        """Copies rows, all or none, and returns how many bytes they are."""
        columns = [part.column(name) for name in self._table.names]
        rows = copy_rows([*columns, _deleted(part)], self._types)
        with connection.cursor().copy(f"COPY {self._place.sql} FROM STDIN (FORMAT binary)") as copy:
            for piece in (HEADER, memoryview(rows), TRAILER):
                copy.write(piece)
        return rows.size

    def _refused(self, batch: pa.RecordBatch, reason: str) -> Iterator[pa.RecordBatch]:
        for place in range(batch.num_rows):
            row = rejected(self._table, batch, place, reason)
            self.stats.refused += 1
            yield from self._output.add([row])


def _deleted(batch: pa.RecordBatch) -> pa.Array:
    return pc.equal(batch.column(OPERATION), OPERATION_DELETE)


def _without_key(batch: pa.RecordBatch, key: Sequence[str]) -> pa.Array | None:
    """Return which rows have a null in their key; None where none has."""
    nulls = [column.is_null() for name in key if (column := batch.column(name)).null_count]
    return reduce(pc.or_, nulls) if nulls else None


def is_of_rows(error: Exception) -> bool:
    """Return whether rows have a part in an error."""
    import psycopg

    if isinstance(error, psycopg.Error):
        return (error.sqlstate or "")[:2] in _OF_ROWS
    return isinstance(error, (ArithmeticError, ValueError))


def rejected(table: PostgresTable, rows: pa.RecordBatch, place: int, reason: str) -> RefusedRow:
    """Return the change row of a place, which the server will not take. Raises RecordError where ``on-error`` is
    ``fail``.
    """
    row = refused_row(rows, place, columns=table.names, key=table.primary_key, reason=reason)
    if table.settings.on_error == "fail":
        raise RecordError(
            f"table '{table.name}': PostgreSQL does not take the row {table.mask.told(row)}. Mend the row or its source"
            f"{KEEP_ASIDE}"
        )
    return row


def reason_of(error: Exception) -> str:
    """Return the reason for a rejected row: SQLSTATE, the server's message, and its column and constraint."""
    import psycopg

    if not isinstance(error, psycopg.Error):
        return f"SQLSTATE {'22008' if isinstance(error, ArithmeticError) else '22P02'}: {error}"
    found = error.diag
    constraint = found.constraint_name and f"constraint '{found.constraint_name}'"
    parts = [found.message_primary or str(error), found.message_detail, constraint]
    return f"SQLSTATE {error.sqlstate}: {'; '.join(part for part in parts if part)}"


class Merge:
    """Merges staged tables in an open transaction.

    Attributes:
        refused: rows that the server does not take, with SQLSTATE and message.
        stats: their number; as many upserts and deletes as they are have to be taken from what was staged.
    """

    def __init__(self, connection: psycopg.Connection[Any], table: PostgresTable, found: Mapping[str, Found]) -> None:
        self._connection = connection
        self._table = table
        self._casts = casts_of(table.types, found)
        self._deleted = f"s.c{len(table.names)}"
        self.refused: list[RefusedRow] = []
        self.stats = StageStats()

    def take(self, parts: Sequence[StageStats]) -> None:
        """Merges staged tables.

        Args:
            parts: tables and numbers of their rows, as the tasks that filled them report.

        Raises:
            DestinationError: more rows are refused than may be, or the server has lost staged rows.
            RecordError: a row is refused, and ``on-error`` is ``fail``.
            psycopg.Error: the server refuses what no row is the reason of.
        """
        staged = {self._table.place.beside(part.stage).sql: part.upserts + part.deletes for part in parts}
        for stage, rows in staged.items():
            ((found,),) = self._connection.execute(f"SELECT count(*) FROM {stage}").fetchall()
            if found != rows:
                # Unlogged tables are empty after a crash of the server, and at a standby that takes over.
                raise DestinationError(
                    f"table '{self._table.name}': {rows} rows were staged in {stage}, which has {found} now: PostgreSQL"
                    f" {self._table.settings.address} has restarted meanwhile. Nothing was recorded as applied; run it"
                    " again"
                )
        plain = self._table.settings.is_hologres  # without savepoints, places of rows and deferred constraints
        if not plain:
            self._connection.execute(f"SET LOCAL work_mem = '{_SORT_MEMORY}'")
        for delete in (True, False) if any(part.deletes for part in parts) else (False,):
            for stage in staged:
                if plain:
                    self._connection.execute(self._statement(stage, "", delete=delete))
                    continue
                self._apply(stage, delete=delete)
        if not plain:
            self._connection.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def _apply(self, stage: str, *, delete: bool) -> None:
        """Applies the rows of a staged table but for those that the server refuses."""
        sql = "SELECT pg_relation_size(%s::regclass) / current_setting('block_size')::int"
        ((pages,),) = self._connection.execute(sql, (stage,)).fetchall()
        whole = range(pages * _PER_PAGE)

        def within(places: range) -> str:
            first, end = _tid(places.start), _tid(places.stop)
            return f" AND s.ctid >= '{first}' AND s.ctid < '{end}'" if places != whole else ""

        def apply(places: range) -> None:
            with self._connection.transaction():
                self._connection.execute(self._statement(stage, within(places), delete=delete))

        for places, error in by_halves(whole, apply, is_of_rows):
            if error is not None:
                self._refuse(stage, within(places), delete=delete, reason=reason_of(error))

    def _statement(self, stage: str, places: str, *, delete: bool) -> str:
        table, casts, key = self._table.place.sql, self._casts, self._table.primary_key
        if delete:
            same = same_values({name: casts[name] for name in key})
            return f"DELETE FROM {table} AS t USING {stage} AS s WHERE {self._deleted} AND {same}{places}"
        changes = ", ".join(f"{quote(name)} = EXCLUDED.{quote(name)}" for name in casts if name not in key)
        return (
            f"INSERT INTO {table} ({', '.join(map(quote, casts))}) SELECT {', '.join(casts.values())}"
            f" FROM {stage} AS s WHERE NOT {self._deleted}{places}"
            # In the order of the index each of its pages is touched once.
            f" ORDER BY {', '.join(casts[name] for name in key)} ON CONFLICT ({', '.join(map(quote, key))})"
            f" DO {f'UPDATE SET {changes}' if changes else 'NOTHING'}"
        )

    def _refuse(self, stage: str, places: str, *, delete: bool, reason: str) -> None:
        """Takes the staged row of a place, if there is one, for one that the server refuses."""
        table, kind = self._table, OPERATION_DELETE if delete else OPERATION_UPSERT
        staged = {name: f"s.c{place}" for place, name in enumerate(table.names)}
        source = f"FROM {stage} AS s WHERE {self._deleted} = {delete}{places}"
        for batch in query_rows(self._connection, staged, source, table.types):
            whole = batch.append_column(OPERATION, pa.array([kind], pa.string()))
            self.refused.append(rejected(table, whole, 0, reason))
            self.stats.refused += 1
            self.stats.deletes -= delete
            self.stats.upserts -= not delete
        most = table.settings.max_refused_rows
        if most is not None and len(self.refused) > most:
            example = table.mask.told(self.refused[0])
            raise too_many_refused(f"table '{table.name}'", most, len(self.refused), example)


def _tid(place: int) -> str:
    return f"({place // _PER_PAGE},{place % _PER_PAGE})"
