"""One transaction: staged rows into the table, the position and the lease into the control row.

Deletes come before puts, so that a value of a unique column can pass from one key to another. Rows that the server
refuses are found by halves, each tried behind a savepoint: a statement that fails leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg
import pyarrow as pa

from upsert_platform.core.destination import OPERATION, OPERATION_DELETE, OPERATION_UPSERT, RefusedRow
from upsert_platform.core.errors import DestinationError
from upsert_platform.postgres.decode import query_rows
from upsert_platform.postgres.names import quote
from upsert_platform.postgres.stage import StageStats, reason_of, rejected
from upsert_platform.postgres.table import PostgresTable
from upsert_platform.postgres.types import Found, casts_of, same_values
from upsert_platform.writing.refused_output import too_many_refused

_PER_PAGE: Final = 512
"""More rows than a page of 8 KB holds."""
_SORT_MEMORY: Final = "64MB"
_OF_ROWS: Final = ("22", "23", "44")
"""Classes of SQLSTATE that a row has a part in: data, constraints, views' checks."""


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
                sql = "SELECT pg_relation_size(%s::regclass) / current_setting('block_size')::int"
                ((pages,),) = self._connection.execute(sql, (stage,)).fetchall()
                self._apply(stage, 0, pages * _PER_PAGE, delete=delete)
        if not plain:
            self._connection.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def _apply(self, stage: str, start: int, end: int, *, delete: bool, whole: bool = True) -> None:
        """Applies rows from one place of a staged table to another."""
        places = "" if whole else f" AND s.ctid >= '{_tid(start)}' AND s.ctid < '{_tid(end)}'"
        try:
            with self._connection.transaction():
                self._connection.execute(self._statement(stage, places, delete=delete))
        except psycopg.Error as error:
            if (error.sqlstate or "")[:2] not in _OF_ROWS:
                raise
            if end - start == 1:
                self._refuse(stage, places, delete=delete, reason=reason_of(error))
                return
            # Pages first: within one there are few rows, and places without any.
            step = _PER_PAGE if end - start > _PER_PAGE else 1
            middle = start + (end - start) // step // 2 * step
            self._apply(stage, start, middle, delete=delete, whole=False)
            self._apply(stage, middle, end, delete=delete, whole=False)

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
