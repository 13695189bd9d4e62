"""Rows of a PostgreSQL table for queries that find them by their keys as others arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from upsert_platform.connector import KeyReader
from upsert_platform.postgres.client import Session
from upsert_platform.postgres.schema import prepare_table
from upsert_platform.postgres.table import PostgresTable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class PostgresKeyReader(KeyReader):
    """Sends keys to the server, which joins them with the table."""

    table: PostgresTable

    @contextmanager
    def open(self) -> Iterator[Callable[[pa.Table], Iterator[pa.RecordBatch]]]:
        """Compares the table with its declaration; each question has a connection of its own."""
        from upsert_platform.postgres.reader import KeyRows

        session = Session(self.table.settings)
        try:
            settings = self.table.settings.model_copy(update={"auto_create": False})
            found = prepare_table(session, replace(self.table, settings=settings))
        finally:
            session.close()
        fetch = KeyRows(self.table, found.columns)
        yield lambda keys: fetch(iter(keys.to_batches()))
