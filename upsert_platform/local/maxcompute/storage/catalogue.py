"""The catalogue: schemas, tables, partitions, segments, versions and sessions, in one SQLite file.

One connection, one lock: statements are short. What must survive a power cut runs inside `durable()`, which syncs at
its end; the rest survives a killed process all the same.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from upsert_platform.local.maxcompute.errors import is_a_view, no_such_table
from upsert_platform.local.maxcompute.schema import Partition, Table, dump_columns, load_columns

_SCHEMA = """
CREATE TABLE IF NOT EXISTS schemas (name TEXT PRIMARY KEY, created REAL NOT NULL);
CREATE TABLE IF NOT EXISTS tables (
    table_id TEXT PRIMARY KEY, schema TEXT NOT NULL, name TEXT NOT NULL, columns TEXT NOT NULL,
    partition_keys TEXT NOT NULL, primary_key TEXT NOT NULL, properties TEXT NOT NULL, lifecycle INTEGER NOT NULL,
    comment TEXT NOT NULL, owner TEXT NOT NULL, created REAL NOT NULL, last_ddl REAL NOT NULL,
    last_modified REAL NOT NULL, version INTEGER NOT NULL, schema_version INTEGER NOT NULL,
    query TEXT NOT NULL DEFAULT '', UNIQUE (schema, name));
CREATE TABLE IF NOT EXISTS partitions (
    partition_id INTEGER PRIMARY KEY AUTOINCREMENT, table_id TEXT NOT NULL, spec TEXT NOT NULL,
    created REAL NOT NULL, modified REAL NOT NULL, first_version INTEGER NOT NULL DEFAULT 0, UNIQUE (table_id, spec));
CREATE TABLE IF NOT EXISTS segments (
    segment_id INTEGER PRIMARY KEY AUTOINCREMENT, table_id TEXT NOT NULL, partition_id INTEGER NOT NULL,
    version INTEGER NOT NULL, resets INTEGER NOT NULL, compacted INTEGER NOT NULL, rows INTEGER NOT NULL,
    bytes INTEGER NOT NULL, path TEXT NOT NULL, columns TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS segments_by_partition ON segments (partition_id, version);
CREATE TABLE IF NOT EXISTS versions (
    table_id TEXT NOT NULL, version INTEGER NOT NULL, committed REAL NOT NULL, operation TEXT NOT NULL,
    PRIMARY KEY (table_id, version));
CREATE TABLE IF NOT EXISTS sessions (
    session_id TEXT PRIMARY KEY, kind TEXT NOT NULL, table_id TEXT NOT NULL, status TEXT NOT NULL,
    created REAL NOT NULL, state TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS streams (
    session_id TEXT NOT NULL, stream TEXT NOT NULL, version INTEGER NOT NULL, closed INTEGER NOT NULL,
    rows INTEGER NOT NULL, PRIMARY KEY (session_id, stream, version));
CREATE TABLE IF NOT EXISTS staged (
    ordinal INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, stream TEXT NOT NULL,
    stream_version INTEGER NOT NULL, spec TEXT NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL,
    path TEXT NOT NULL, columns TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS staged_by_session ON staged (session_id);
"""
_TABLE_COLUMNS = (
    "table_id, schema, name, columns, partition_keys, primary_key, properties, lifecycle, comment, owner, created,"
    " last_ddl, last_modified, version, schema_version, query"
)
_PARTITION_COLUMNS = "partition_id, table_id, spec, created, modified, first_version"
DEFAULT_SCHEMA = "default"


class Catalogue:
    """Everything about tables except their rows."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._lock = threading.RLock()
        self._depth = 0
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.executescript(_SCHEMA)
        if "query" not in [row[1] for row in self.execute("PRAGMA table_info(tables)")]:
            # Of a directory that was made when there were no views.
            self.execute("ALTER TABLE tables ADD COLUMN query TEXT NOT NULL DEFAULT ''")
        self.execute("INSERT OR IGNORE INTO schemas VALUES (?, ?)", DEFAULT_SCHEMA, time.time())

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Runs one statement and returns its rows."""
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    @contextmanager
    def durable(self) -> Iterator[None]:
        """A transaction that is on disk when the block has ended, and undone if it raised."""
        with self._lock, self._transaction(synchronous="FULL"):
            yield

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """A transaction that is undone if the block raised; a power cut may undo it later."""
        with self._lock, self._transaction(synchronous="NORMAL"):
            yield

    @contextmanager
    def _transaction(self, *, synchronous: str) -> Iterator[None]:
        if self._depth:
            yield
            return
        self._depth += 1
        try:
            self._connection.execute(f"PRAGMA synchronous={synchronous}")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        finally:
            self._depth -= 1
            self._connection.execute("PRAGMA synchronous=NORMAL")

    # Schemas

    def schema_names(self) -> list[str]:
        return [row[0] for row in self.execute("SELECT name FROM schemas ORDER BY name")]

    # Tables

    def find_table(self, schema: str, name: str) -> Table | None:
        rows = self.execute(
            f"SELECT {_TABLE_COLUMNS} FROM tables WHERE schema = ? AND name = ?", schema.lower(), name.lower()
        )
        return _table(rows[0]) if rows else None

    def relation(self, schema: str, name: str) -> Table:
        """The table or view of that name.

        Raises:
            ServiceError: NoSuchTable.
        """
        found = self.find_table(schema, name)
        if found is None:
            raise no_such_table(name if schema == DEFAULT_SCHEMA else f"{schema}.{name}")
        return found

    def table(self, schema: str, name: str) -> Table:
        """The table of that name.

        Raises:
            ServiceError: NoSuchTable, or it is a view, which has no rows to write or to read as they are.
        """
        found = self.relation(schema, name)
        if found.query:
            raise is_a_view(found.name)
        return found

    def table_by_id(self, table_id: str) -> Table | None:
        rows = self.execute(f"SELECT {_TABLE_COLUMNS} FROM tables WHERE table_id = ?", table_id)
        return _table(rows[0]) if rows else None

    def tables(self, schema: str) -> list[Table]:
        rows = self.execute(f"SELECT {_TABLE_COLUMNS} FROM tables WHERE schema = ? ORDER BY name", schema.lower())
        return [_table(row) for row in rows]

    def put_table(self, table: Table) -> None:
        self.execute(
            f"INSERT OR REPLACE INTO tables ({_TABLE_COLUMNS}) VALUES ({', '.join('?' * 16)})",
            table.table_id,
            table.schema,
            table.name,
            dump_columns(table.columns),
            dump_columns(table.partition_keys),
            json.dumps(table.primary_key),
            json.dumps(table.properties),
            table.lifecycle,
            table.comment,
            table.owner,
            table.created,
            table.last_ddl,
            table.last_modified,
            table.version,
            table.schema_version,
            table.query,
        )

    def add_version(self, table: Table, operation: str) -> Table:
        """Raises the table's version by one and notes when and by what."""
        now = time.time()
        raised = replace(table, version=table.version + 1, last_modified=now)
        self.execute(
            "UPDATE tables SET version = ?, last_modified = ? WHERE table_id = ?", raised.version, now, table.table_id
        )
        self.execute("INSERT INTO versions VALUES (?, ?, ?, ?)", table.table_id, raised.version, now, operation)
        return raised

    def versions(self, table_id: str) -> list[tuple[int, float, str]]:
        """Version, time of commit and operation, oldest first."""
        return self.execute(
            "SELECT version, committed, operation FROM versions WHERE table_id = ? ORDER BY version", table_id
        )

    # Partitions

    def find_partition(self, table_id: str, spec: str) -> Partition | None:
        rows = self.execute(
            f"SELECT {_PARTITION_COLUMNS} FROM partitions WHERE table_id = ? AND spec = ?",
            table_id,
            spec,
        )
        return Partition(*rows[0]) if rows else None

    def partitions(self, table_id: str) -> list[Partition]:
        rows = self.execute(
            f"SELECT {_PARTITION_COLUMNS} FROM partitions WHERE table_id = ? ORDER BY spec",
            table_id,
        )
        return [Partition(*row) for row in rows]

    def add_partition(self, table_id: str, spec: str) -> Partition:
        """The partition of that spec, added when it is not there."""
        now = time.time()
        self.execute(
            "INSERT OR IGNORE INTO partitions (table_id, spec, created, modified) VALUES (?, ?, ?, ?)",
            table_id,
            spec,
            now,
            now,
        )
        found = self.find_partition(table_id, spec)
        assert found is not None
        return found


def _table(row: tuple[Any, ...]) -> Table:
    return Table(
        table_id=row[0],
        schema=row[1],
        name=row[2],
        columns=load_columns(row[3]),
        partition_keys=load_columns(row[4]),
        primary_key=tuple(json.loads(row[5])),
        properties=json.loads(row[6]),
        lifecycle=row[7],
        comment=row[8],
        owner=row[9],
        created=row[10],
        last_ddl=row[11],
        last_modified=row[12],
        version=row[13],
        schema_version=row[14],
        query=row[15],
    )
