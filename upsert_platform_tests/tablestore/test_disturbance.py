"""A disturbed server, 50,000 rows: every one arrives, once and right, and the counts add up (1 M: the soak tests)."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.schema import prepare_table
from upsert_platform.tablestore.table import TablestoreTable
from upsert_platform.tablestore.task import TaskStats
from upsert_platform.tablestore.writer import writing_task
from upsert_platform_tests.local.tablestore.server import ServerHandle, tablestore_server
from upsert_platform_tests.tablestore.declared import change_batch, table_on
from upsert_platform_tests.tablestore.disturbance import FAULTS, killing_between
from upsert_platform_tests.writing.leases import terms

pytestmark = pytest.mark.whole_runs

ROWS = 50_000
TASKS = 2
BATCH = 2_500
LONGEST_SECONDS = 240


def test_50_000_rows_arrive_through_faults_and_restarts(
    tmp_path: Path, stored: Callable[[ServerHandle, TablestoreTable], dict[Any, Any]]
) -> None:
    with tablestore_server(tmp_path, faults=FAULTS, arguments=["--synchronous", "normal", "--seed", "5"]) as server:
        table = table_on(server, {"id": "BIGINT NOT NULL", "name": "STRING"}, ["id"], {"retry.deadline": "4 min"})
        client = Client.of(table.settings)
        prepare_table(client, table)
        client.close()

        def batches(task: int) -> list[pa.RecordBatch]:
            starts = range(task * ROWS // TASKS, (task + 1) * ROWS // TASKS, BATCH)
            return [
                change_batch(table, [{"id": n, "name": f"n{n}"} for n in range(start, start + BATCH)])
                for start in starts
            ]

        def write(task: int) -> TaskStats:
            # The first task's batches are handed out as fast as they are taken, so both tasks are in the middle.
            found = killing_between(batches(task), server, at=(3, 7)) if task == 0 else iter(batches(task))
            outcomes = writing_task(table, terms=terms())(found)
            rows = [row for batch in outcomes for row in batch.to_pylist()]
            assert [row["reason"] for row in rows if row["stats"] is None] == []
            return TaskStats.from_json(rows[-1]["stats"])

        killed = server.process
        started = time.monotonic()
        total = TaskStats()
        with ThreadPoolExecutor(TASKS) as threads:
            for stats in threads.map(write, range(TASKS)):
                total.add(stats)
        seconds = time.monotonic() - started
        assert server.process is not killed
        assert (total.puts, total.updates, total.deletes, total.refused) == (ROWS, 0, 0, 0)
        assert total.retried_rows > ROWS // 10
        assert total.throttled > 0
        assert total.requests > ROWS // 200
        assert seconds < LONGEST_SECONDS
        server.faults()
        assert stored(server, table) == {(n,): {"name": f"n{n}"} for n in range(ROWS)}
