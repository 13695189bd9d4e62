"""Rows in an embedded database: one SQLite file in WAL mode, one table of rows per Tablestore table.

A row is (sortable key, time of the last write, data size, encoded row). A transaction of the database holds every
request that arrived together; a request that fails is undone by its savepoint.
"""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from upsert_platform.local.tablestore.messages import pb
from upsert_platform.local.tablestore.table import Table

_EXACT_ROWS = 10_000


class Stored(NamedTuple):
    """A stored row: encoded without header, and when it was last written (milliseconds)."""

    row: bytes
    written: int


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
        self._lock = _lock(directory)
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
        """Reads the tables; also after a rollback, which may have undone a change of them."""
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

    def create_table(self, description: Any, now: int) -> Table:
        """Adds a table and its rows; the name must be free."""
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
        table.read_options()
        self.connection.execute(
            "UPDATE catalog SET description = ?, stored_versions = ? WHERE id = ?",
            (table.description.SerializeToString(), table.stored_versions, table.id),
        )

    def drop_table(self, table: Table) -> None:
        self.connection.execute("DELETE FROM catalog WHERE id = ?", (table.id,))
        self.connection.execute(f"DROP TABLE {table.rows}")
        del self.tables[table.name]

    def read(self, table: Table, key: bytes) -> Stored | None:
        found = self.connection.execute(f"SELECT row, written FROM {table.rows} WHERE key = ?", (key,)).fetchone()
        return Stored(*found) if found is not None else None

    def write(self, table: Table, key: bytes, row: bytes, size: int, now: int) -> None:
        self.connection.execute(_upsert(table), (key, now, size, row))

    def read_many(self, table: Table, keys: list[bytes]) -> dict[bytes, Stored]:
        """The rows that are there, of so many keys."""
        marks = ",".join("?" * len(keys))
        found = self.connection.execute(f"SELECT key, row, written FROM {table.rows} WHERE key IN ({marks})", keys)
        return {key: Stored(row, written) for key, row, written in found}

    def write_many(self, table: Table, rows: list[tuple[bytes, int, int, bytes]]) -> None:
        """Writes rows of (key, written, size, row)."""
        self.connection.executemany(_upsert(table), rows)

    def remove_many(self, table: Table, keys: list[bytes]) -> None:
        self.connection.executemany(f"DELETE FROM {table.rows} WHERE key = ?", [(key,) for key in keys])

    def remove(self, table: Table, key: bytes) -> None:
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
                yield key, Stored(row, written), size
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
        self.connection.execute("SAVEPOINT request")

    def release(self) -> None:
        self.connection.execute("RELEASE request")

    def undo(self) -> None:
        """Undoes what happened since the savepoint."""
        self.connection.execute("ROLLBACK TO request")
        self.connection.execute("RELEASE request")

    def close(self) -> None:
        self.connection.close()
        self._lock.close()


class Buffer:
    """The rows of one batch on one table: read at once before, written at once after."""

    def __init__(self, engine: Engine, table: Table, keys_to_read: list[bytes]) -> None:
        self._engine = engine
        self._table = table
        self._stored = engine.read_many(table, keys_to_read) if keys_to_read else {}
        self._changed: dict[bytes, tuple[bytes, int, int, bytes] | None] = {}

    def read(self, table: Table, key: bytes) -> Stored | None:
        """A row as earlier writes of the batch left it; ``key`` must be one of those that were announced."""
        if key in self._changed:
            changed = self._changed[key]
            return Stored(changed[3], changed[1]) if changed is not None else None
        return self._stored.get(key)

    def write(self, table: Table, key: bytes, row: bytes, size: int, now: int) -> None:
        self._changed[key] = (key, now, size, row)

    def remove(self, table: Table, key: bytes) -> None:
        self._changed[key] = None

    def flush(self) -> None:
        """Hands the changes to the engine."""
        written = [row for row in self._changed.values() if row is not None]
        if written:
            self._engine.write_many(self._table, written)
        if len(written) < len(self._changed):
            self._engine.remove_many(self._table, [key for key, row in self._changed.items() if row is None])


def _lock(directory: Path) -> IO[bytes]:
    """Keeps a second server away from the data; the lock ends with the process, however that ends."""
    file = (directory / "lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise OSError(f"another server uses the data in {directory}; stop it, or take another directory") from None
    return file


def _upsert(table: Table) -> str:
    return (
        f"INSERT INTO {table.rows} (key, written, size, row) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET"
        " written = excluded.written, size = excluded.size, row = excluded.row"
    )
