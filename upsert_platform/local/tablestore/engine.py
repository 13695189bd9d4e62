"""Rows in an embedded database: one SQLite file in WAL mode, one table of rows per Tablestore table.

A row is (sortable key, time of the last write, data size, encoded row). A transaction of the database holds every
request that arrived together; a request that fails is undone by its savepoint.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from upsert_platform.local.data_lock import lock_data
from upsert_platform.local.tablestore.messages import pb
from upsert_platform.local.tablestore.table import Index, Table

_EXACT_ROWS = 10_000


class Stored(NamedTuple):
    """A stored row: encoded without header, when it was last written (milliseconds), and its data size in bytes."""

    row: bytes
    written: int
    size: int


class Rows(Protocol):
    """Rows by sortable key, to be changed: the engine, a batch's buffer, or a local transaction's view."""

    def read(self, table: Table, key: bytes) -> Stored | None: ...

    def write(self, table: Table, key: bytes, row: bytes, size: int, now: int) -> None: ...

    def remove(self, table: Table, key: bytes) -> None: ...


class ScannedRows(Rows, Protocol):
    """Rows that can be read in order of key as well."""

    def scan(
        self, table: Table, low: bytes, high: bytes, *, reverse: bool
    ) -> Generator[tuple[bytes, Stored, int], None, None]: ...


class Engine:
    """The store of one instance.

    Args:
        directory: where the database lies; created when missing. ``OSError`` while another server uses it.
        synchronous: ``FULL`` syncs the log at each commit, so an answered write survives a power cut; ``NORMAL``
            survives the end of the process only.
    """

    def __init__(self, directory: Path, *, synchronous: str = "FULL") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = lock_data(directory)
        self.path = directory / "tablestore.db"
        self.connection = sqlite3.connect(
            self.path, isolation_level=None, cached_statements=512, check_same_thread=False
        )
        run = self.connection.execute
        run("PRAGMA journal_mode = WAL")
        run(f"PRAGMA synchronous = {synchronous}")
        run("PRAGMA cache_size = -131072")
        run("PRAGMA wal_autocheckpoint = 8000")
        run("PRAGMA temp_store = MEMORY")
        run(
            "CREATE TABLE IF NOT EXISTS catalog (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,"
            " description BLOB NOT NULL, created INTEGER NOT NULL, stored_versions INTEGER NOT NULL)"
        )
        self.tables: dict[str, Table] = {}
        self.load_catalog()

    def load_catalog(self) -> None:
        """Reads the tables; also after a change of them was undone."""
        self._catalog_changed = False
        generated = {table.id: table.last_generated for table in self.tables.values()}
        self.tables.clear()
        for id_, description, created, stored in self.connection.execute(
            "SELECT id, description, created, stored_versions FROM catalog ORDER BY name"
        ):
            table = Table(
                id_, pb.DescribeTableResponse.FromString(description), created=created, stored_versions=stored
            )
            table.last_generated = generated.get(id_, 0)
            self.tables[table.name] = table
        for table in list(self.tables.values()):
            for meta in table.description.index_metas:
                _link(table, meta, self.tables[meta.name])

    def create_table(self, description: Any, now: int) -> Table:
        """Adds a table and its rows; the name must be free."""
        self._catalog_changed = True
        cursor = self.connection.execute(
            "INSERT INTO catalog (name, description, created, stored_versions) VALUES (?, ?, ?, ?)",
            (
                description.table_meta.table_name,
                description.SerializeToString(),
                now,
                description.table_options.max_versions,
            ),
        )
        table = Table(
            int(cursor.lastrowid or 0),
            description,
            created=now,
            stored_versions=description.table_options.max_versions,
        )
        self.connection.execute(
            f"CREATE TABLE {table.rows} (key BLOB PRIMARY KEY, written INTEGER NOT NULL, size INTEGER NOT NULL,"
            " row BLOB NOT NULL)"
        )
        self.tables[table.name] = table
        return table

    def save_table(self, table: Table) -> None:
        """Keeps a changed description."""
        self._catalog_changed = True
        table.read_options()
        self.connection.execute(
            "UPDATE catalog SET description = ?, stored_versions = ? WHERE id = ?",
            (table.description.SerializeToString(), table.stored_versions, table.id),
        )

    def create_index(self, main: Table, meta: Any, description: Any, now: int, *, with_rows: bool) -> None:
        """Adds an index to a table, with entries of the rows that are there if wanted."""
        main.description.index_metas.add().CopyFrom(meta)
        self.save_table(main)
        index = _link(main, meta, self.create_table(description, now))
        if with_rows:
            for row, written in self.connection.execute(f"SELECT row, written FROM {main.rows}").fetchall():
                if entry := index.entry(row):
                    self.write(index.table, entry.sortable, entry.row, entry.size, written)

    def drop_index(self, main: Table, name: str) -> None:
        """Drops an index of a table."""
        kept = [meta for meta in main.description.index_metas if meta.name != name]
        del main.description.index_metas[:]
        main.description.index_metas.extend(kept)
        self.save_table(main)
        self.drop_table(next(index.table for index in main.indexes if index.name == name))
        main.indexes = [index for index in main.indexes if index.name != name]

    def drop_table(self, table: Table) -> None:
        """Drops a table with its indexes."""
        self._catalog_changed = True
        for index in table.indexes:
            self.drop_table(index.table)
        self.connection.execute("DELETE FROM catalog WHERE id = ?", (table.id,))
        self.connection.execute(f"DROP TABLE {table.rows}")
        del self.tables[table.name]

    def read(self, table: Table, key: bytes) -> Stored | None:
        found = self.connection.execute(f"SELECT row, written, size FROM {table.rows} WHERE key = ?", (key,)).fetchone()
        return Stored(*found) if found is not None else None

    def write(self, table: Table, key: bytes, row: bytes, size: int, now: int) -> None:
        self._follow(table, [(key, row, now)])
        self.connection.execute(_upsert(table), (key, now, size, row))

    def _follow(self, table: Table, changes: Iterable[tuple[bytes, bytes | None, int]]) -> None:
        """Brings a table's indexes up to changes that are about to be made: (key, row or None, written)."""
        if not table.indexes:
            return
        for key, row, written in changes:
            stored = self.read(table, key)
            for index in table.indexes:
                before = index.entry(stored.row) if stored is not None else None
                after = index.entry(row) if row is not None else None
                if before is not None and (after is None or after.sortable != before.sortable):
                    self.remove(index.table, before.sortable)
                if after is not None:
                    self.write(index.table, after.sortable, after.row, after.size, written)

    def read_many(self, table: Table, keys: list[bytes]) -> dict[bytes, Stored]:
        """The rows that are there, of so many keys."""
        marks = ",".join("?" * len(keys))
        found = self.connection.execute(
            f"SELECT key, row, written, size FROM {table.rows} WHERE key IN ({marks})", keys
        )
        return {key: Stored(*stored) for key, *stored in found}

    def write_many(self, table: Table, rows: list[tuple[bytes, int, int, bytes]]) -> None:
        """Writes rows of (key, written, size, row)."""
        self._follow(table, [(key, row, written) for key, written, _, row in rows])
        self.connection.executemany(_upsert(table), rows)

    def remove_many(self, table: Table, keys: list[bytes]) -> None:
        self._follow(table, [(key, None, 0) for key in keys])
        self.connection.executemany(f"DELETE FROM {table.rows} WHERE key = ?", [(key,) for key in keys])

    def remove(self, table: Table, key: bytes) -> None:
        self._follow(table, [(key, None, 0)])
        self.connection.execute(f"DELETE FROM {table.rows} WHERE key = ?", (key,))

    def scan(
        self, table: Table, low: bytes, high: bytes, *, reverse: bool
    ) -> Generator[tuple[bytes, Stored, int], None, None]:
        """Rows with low <= key < high in key order (or its reverse) as (key, row, data size)."""
        order = "DESC" if reverse else "ASC"
        cursor = self.connection.execute(
            f"SELECT key, row, written, size FROM {table.rows} WHERE key >= ? AND key < ? ORDER BY key {order}",
            (low, high),
        )
        try:
            for key, row, written, size in cursor:
                yield key, Stored(row, written, size), size
        finally:
            cursor.close()

    def data_size(self, table: Table) -> tuple[int, int]:
        """Number of rows and their data size in bytes."""
        rows, size = self.connection.execute(f"SELECT count(*), coalesce(sum(size), 0) FROM {table.rows}").fetchone()
        return rows, size

    def split_keys(self, table: Table, wanted: int) -> Iterator[bytes]:
        """Keys of rows before which about so many bytes lie since the one before; of a large table by estimate."""
        run, rows = self.connection.execute, table.rows
        if len(run(f"SELECT 1 FROM {rows} LIMIT ?", (_EXACT_ROWS,)).fetchall()) < _EXACT_ROWS:
            gathered = 0
            for key, size in run(f"SELECT key, size FROM {rows} ORDER BY key"):
                if gathered >= wanted:
                    yield key
                    gathered = 0
                gathered += size
            return
        (average,) = run(f"SELECT avg(size) FROM (SELECT size FROM {rows} LIMIT ?)", (_EXACT_ROWS,)).fetchone()
        step = max(1, round(wanted / max(1.0, average)))
        # Steps through the index of keys alone: the rows of a large table would take too long.
        found = run(f"SELECT key FROM {rows} ORDER BY key LIMIT 1 OFFSET ?", (step,)).fetchone()
        while found:
            yield found[0]
            query = f"SELECT key FROM {rows} WHERE key >= ? ORDER BY key LIMIT 1 OFFSET ?"
            found = run(query, (found[0], step)).fetchone()

    def begin(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self.connection.execute("COMMIT")

    def rollback(self) -> None:
        """Undoes the open transaction, if there is one."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        self.load_catalog()

    def savepoint(self) -> None:
        self._catalog_changed = False
        self.connection.execute("SAVEPOINT request")

    def release(self) -> None:
        self.connection.execute("RELEASE request")

    def undo(self) -> None:
        """Undoes what happened since the savepoint."""
        self.connection.execute("ROLLBACK TO request")
        self.connection.execute("RELEASE request")
        if self._catalog_changed:
            self.load_catalog()

    def close(self) -> None:
        self.connection.close()
        self._lock.close()


def _link(main: Table, meta: Any, table: Table) -> Index:
    index = Index(meta, table)
    table.main = main
    main.indexes.append(index)
    return index


def _upsert(table: Table) -> str:
    return (
        f"INSERT INTO {table.rows} (key, written, size, row) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET"
        " written = excluded.written, size = excluded.size, row = excluded.row"
    )
