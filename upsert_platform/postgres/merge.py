"""One transaction: staged rows into the table, the position and the lease into the control row.

Deletes come before puts, so that a value of a unique column can pass from one key to another. Rows that the server
refuses are found by halves, each tried behind a savepoint: a statement that fails leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.destination import OPERATION, OPERATION_DELETE, OPERATION_UPSERT, RefusedRow
from upsert_platform.postgres.names import quote
from upsert_platform.postgres.schema import FoundTable
from upsert_platform.postgres.stage import reason_of, refuse_if_asked
from upsert_platform.postgres.table import PostgresTable
from upsert_platform.postgres.types import cast_of, text_of

if TYPE_CHECKING:
    import psycopg

_PER_PAGE: Final = 512
"""More rows than a page of 8 KB holds."""
_PAGE: Final = 8192
_SORT_MEMORY: Final = "64MB"
_OF_ROWS: Final = ("22", "23", "44")
"""Classes of SQLSTATE that a row has a part in: data, constraints, views' checks."""
AGAIN: Final = ("40001", "40P01")
"""A serialization failure, a deadlock."""


class Merge:
    """Merges staged tables in an open transaction.

    Attributes:
        refused: rows that the server does not take, with SQLSTATE and message.
        upserts: of them, and `deletes`.
    """

    def __init__(self, connection: psycopg.Connection[Any], table: PostgresTable, found: FoundTable) -> None:
        self._connection = connection
        self._table = table
        self._found = found
        self.refused: list[RefusedRow] = []
        self.upserts = self.deletes = 0

    def empty(self) -> None:
        """Deletes every row."""
        self._connection.execute(f"DELETE FROM {self._table.place.sql}")

    def take(self, stages: Sequence[str], *, deletes: bool) -> None:
        """Merges tables, and drops them.

        Args:
            deletes: whether there are deletes among the rows.

        Raises:
            DestinationError: more rows are refused than may be.
            RecordError: a row is refused, and ``on-error`` is ``fail``.
            psycopg.Error: the server refuses what no row is the reason of.
        """
        self._connection.execute(f"SET LOCAL work_mem = '{_SORT_MEMORY}'")
        for delete in (True, False) if deletes else (False,):
            for stage in stages:
                size = self._connection.execute("SELECT pg_relation_size(%s::regclass)", (self._sql(stage),)).fetchone()
                assert size is not None
                self._apply(stage, 0, -(-size[0] // _PAGE) * _PER_PAGE, delete=delete)
        self._connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for stage in stages:
            self._connection.execute(f"DROP TABLE {self._sql(stage)}")

    def _sql(self, stage: str) -> str:
        return self._table.place.beside(stage).sql

    def _apply(self, stage: str, start: int, end: int, *, delete: bool, whole: bool = True) -> None:
        """Applies rows from one place of a staged table to another."""
        import psycopg

        places = "" if whole else f" AND s.ctid >= '{_tid(start)}' AND s.ctid < '{_tid(end)}'"
        statement = self._delete(stage, places) if delete else self._put(stage, places)
        try:
            with self._connection.transaction():
                self._connection.execute(statement)
            return
        except psycopg.Error as error:
            if (error.sqlstate or "")[:2] not in _OF_ROWS:
                raise
            reason = reason_of(error)
        if end - start > 1:
            # Pages first: within one there are few rows, and places without any.
            step = _PER_PAGE if end - start > _PER_PAGE else 1
            middle = start + (end - start) // step // 2 * step
            self._apply(stage, start, middle, delete=delete, whole=False)
            self._apply(stage, middle, end, delete=delete, whole=False)
            return
        for row in self._rows(stage, places, delete=delete, reason=reason):
            refuse_if_asked(self._table, row)
            self.refused.append(row)
            self.deletes += delete
            self.upserts += not delete
        most = self._table.settings.max_refused_rows
        if most is not None and len(self.refused) > most:
            from upsert_platform.writing.refused_output import too_many_refused

            example = self._table.mask.told(self.refused[0])
            raise too_many_refused(f"table '{self._table.name}'", most, len(self.refused), example)

    def _casts(self) -> Iterator[tuple[str, str]]:
        """Each column, and its staged value as the table takes it."""
        for place, (name, logical) in enumerate(zip(self._table.names, self._table.types, strict=True)):
            yield name, cast_of(f"s.c{place}", logical, self._found.columns[name])

    def _delete(self, stage: str, places: str) -> str:
        casts = dict(self._casts())
        same = " AND ".join(f"t.{quote(name)} = {casts[name]}" for name in self._table.primary_key)
        return (
            f"DELETE FROM {self._table.place.sql} AS t USING {self._sql(stage)} AS s"
            f" WHERE s.c{len(self._table.names)} AND {same}{places}"
        )

    def _put(self, stage: str, places: str) -> str:
        casts = dict(self._casts())
        names = ", ".join(map(quote, casts))
        key = ", ".join(map(quote, self._table.primary_key))
        others = [name for name in casts if name not in self._table.primary_key]
        changes = ", ".join(f"{quote(name)} = EXCLUDED.{quote(name)}" for name in others)
        then = f"UPDATE SET {changes}" if others else "NOTHING"
        return (
            f"INSERT INTO {self._table.place.sql} ({names}) SELECT {', '.join(casts.values())}"
            f" FROM {self._sql(stage)} AS s WHERE NOT s.c{len(casts)}{places}"
            # In the order of the index each of its pages is touched once.
            f" ORDER BY {', '.join(casts[name] for name in self._table.primary_key)}"
            f" ON CONFLICT ({key}) DO {then}"
        )

    def _rows(self, stage: str, places: str, *, delete: bool, reason: str) -> Iterator[RefusedRow]:
        """The staged rows of a place, with the reason."""
        import pyarrow as pa

        from upsert_platform.postgres.decode import query_rows
        from upsert_platform.writing.row_text import refused_row

        table = self._table
        texts = ", ".join(text_of(f"s.c{place}", logical) for place, logical in enumerate(table.types))
        sql = f"SELECT {texts} FROM {self._sql(stage)} AS s WHERE s.c{len(table.names)} = {delete}{places}"
        for batch in query_rows(self._connection, sql, table.names, table.types):
            kind = OPERATION_DELETE if delete else OPERATION_UPSERT
            whole = batch.append_column(OPERATION, pa.array([kind] * batch.num_rows, pa.string()))
            for row in range(batch.num_rows):
                yield refused_row(whole, row, columns=table.names, key=table.primary_key, reason=reason)


def _tid(place: int) -> str:
    return f"({place // _PER_PAGE},{place % _PER_PAGE})"
