"""Rows of a Tablestore table for queries that find them by their keys as others arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.core.connector import KeyReader
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.schema import check_table
from upsert_platform.tablestore.table import TablestoreTable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TablestoreKeyReader(KeyReader):
    """Reads 100 rows per request, several requests at a time; what passes by itself is tried again."""

    table: TablestoreTable

    @contextmanager
    def open(self) -> Iterator[Callable[[pa.Table], Iterator[pa.RecordBatch]]]:
        """Compares the table with its declaration; requests have connections of their own."""
        from upsert_platform.tablestore.reader import fetching_task

        client = Client.of(self.table.settings)
        try:
            check_table(client, self.table)
        finally:
            client.close()
        fetch = fetching_task(self.table)
        yield lambda keys: fetch(iter(keys.to_batches()))
