"""A writing task on a table of a server, run to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.schema import prepare_table
from upsert_platform.tablestore.table import TablestoreTable
from upsert_platform.tablestore.task import TaskStats
from upsert_platform.tablestore.writer import writing_task
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.writing.leases import terms

COLUMNS = {"id": "STRING NOT NULL", "name": "STRING", "score": "DOUBLE", "visits": "BIGINT"}
Stored = Callable[[ServerHandle, TablestoreTable], dict[Any, Any]]


def prepared(table: TablestoreTable) -> TablestoreTable:
    client = Client.of(table.settings)
    prepare_table(client, table)
    client.close()
    return table


def run_task(
    table: TablestoreTable, *batches: pa.RecordBatch, left: float | None = None
) -> tuple[TaskStats, list[dict[str, Any]]]:
    task = writing_task(table, terms=terms(600 if left is None else left))
    outcomes = [row for batch in task(iter(batches)) for row in batch.to_pylist()]
    stats = [TaskStats.from_json(row["stats"]) for row in outcomes if row["stats"] is not None]
    assert len(stats) == 1
    return stats[0], [row for row in outcomes if row["stats"] is None]


def rows_of(count: int) -> list[dict[str, Any]]:
    return [{"id": f"k{row:05}", "name": f"name {row}", "score": row / 2, "visits": row} for row in range(count)]


def cells_of(rows: Sequence[Mapping[str, Any]]) -> dict[Any, Any]:
    return {
        (row["id"],): {name: value for name, value in row.items() if name != "id" and value is not None} for row in rows
    }
