"""Rows into Tablestore: the writing task against the official SDK, on a server that answers and stores nothing."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from upsert_platform.tablestore.settings import TablestoreTable
from upsert_platform_tests.bench.measure import row, watch_memory
from upsert_platform_tests.local.tablestore.server import ServerHandle, tablestore_server
from upsert_platform_tests.tablestore.declared import change_batch, table_on

ROWS = 200_000
PROCESSES = 2
REPEATS = 3
COLUMNS = {
    "user_id": "STRING NOT NULL",
    "name": "STRING",
    "region": "STRING",
    "score": "DOUBLE",
    "visits": "BIGINT",
    "active": "BOOLEAN",
}
_BATCH = 20_000


def bench_rows(start: int, stop: int) -> list[dict[str, Any]]:
    """Rows of six columns, about 200 bytes each on the wire."""
    return [
        {
            "user_id": f"user-{number:012}",
            "name": f"name of user {number}",
            "region": f"cn-region-{number % 17}",
            "score": number / 7,
            "visits": number,
            "active": number % 2 == 0,
        }
        for number in range(start, stop)
    ]


def run(*, rows: int = ROWS) -> Iterator[dict[str, Any]]:
    """Measures `tablestore_writer`: both clients in as many processes, in turn, the best of each compared."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tablestore_server(Path(folder), drop=True) as server,
    ):
        table = _created(server)
        ours, theirs = [], []
        for _ in range(REPEATS):
            theirs.append(_measure(_sdk_process, server, table, rows))
            with watch_memory() as peak:
                ours.append((_measure(_writer_process, server, table, rows), peak))
        seconds, peak = min(ours, key=lambda item: item[0])
        yield row(
            "tablestore_writer",
            rows=rows,
            seconds=seconds,
            memory=peak.workers,
            ratio=min(theirs) / seconds,
            ratio_to="SDK BatchWriteRow of 200 rows, default logging",
            goal=">= 3 (aim 5)",
            sdk_rows_per_s=round(rows / min(theirs)),
            processes=PROCESSES,
        )


def _created(server: ServerHandle) -> TablestoreTable:
    from upsert_platform.tablestore.client import Client
    from upsert_platform.tablestore.schema import prepare_table

    table = table_on(server, COLUMNS, ["user_id"], {"max.concurrency": "2"})
    client = Client.of(table.settings)
    prepare_table(client, table)
    client.close()
    return table


def _measure(target: Callable[..., None], server: ServerHandle, table: TablestoreTable, rows: int) -> float:
    """Seconds from the first process that starts writing to the last that ends."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(PROCESSES)
    results = context.Queue()
    share = rows // PROCESSES
    address = (server.endpoint, server.access_key_id, server.access_key_secret, server.instance)
    processes = [
        context.Process(target=target, args=(address, table, number * share, share, ready, results))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    spans = [results.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    return max(end for _, end in spans) - min(start for start, _ in spans)


def _writer_process(
    address: tuple[str, ...], table: TablestoreTable, start: int, count: int, ready: Any, results: Any
) -> None:
    from upsert_platform.tablestore.task import TaskStats
    from upsert_platform.tablestore.writer import writing_task

    batches = [
        change_batch(table, bench_rows(first, min(first + _BATCH, start + count)))
        for first in range(start, start + count, _BATCH)
    ]
    task = writing_task(table, epoch=1, expires=time.time() + 600)
    ready.wait()
    began = time.time()
    outcomes = [outcome for batch in task(iter(batches)) for outcome in batch.to_pylist()]
    results.put((began, time.time()))
    assert [TaskStats.from_json(outcome["stats"]).puts for outcome in outcomes] == [count]


def _sdk_process(
    address: tuple[str, ...], table: TablestoreTable, start: int, count: int, ready: Any, results: Any
) -> None:
    from upsert_platform.tablestore.sdk import silence_sdk

    silence_sdk()  # of its imports only: the client's own logger stays as it comes
    from tablestore import OTSClient
    from tablestore.metadata import BatchWriteRowRequest, PutRowItem, Row, TableInBatchWriteRowItem

    client = OTSClient(*address)
    rows = [([("user_id", found.pop("user_id"))], list(found.items())) for found in bench_rows(start, start + count)]
    ready.wait()
    began = time.time()
    for first in range(0, count, 200):
        items = [PutRowItem(Row(*found), None) for found in rows[first : first + 200]]
        request = BatchWriteRowRequest()
        request.add(TableInBatchWriteRowItem(table.table_name, items))
        assert client.batch_write_row(request).is_all_succeed()
    results.put((began, time.time()))
