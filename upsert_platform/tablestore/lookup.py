"""Rows of a Tablestore table for queries that find them by their keys as others arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from upsert_platform.core.connector import KeysInTask
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.schema import check_table
from upsert_platform.tablestore.table import TablestoreTable


@dataclass(frozen=True, slots=True)
class TablestoreKeyReader(KeysInTask):
    """Reads 100 rows per request, several requests at a time; what passes by itself is tried again."""

    table: TablestoreTable

    def fetching(self) -> Callable[[Any], Any]:
        """Compares the table with its declaration; requests have connections of their own."""
        from upsert_platform.tablestore.reader import fetching_task

        client = Client.of(self.table.settings)
        try:
            check_table(client, self.table)
        finally:
            client.close()
        return fetching_task(self.table)
