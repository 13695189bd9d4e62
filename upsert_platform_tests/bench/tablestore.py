"""Rows into Tablestore: the writing task against the official SDK, its memory, and a warm session into our server."""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from upsert_platform.sync.leased import LEASE
from upsert_platform.tablestore.table import TablestoreTable
from upsert_platform_tests.bench.measure import row, watch_memory
from upsert_platform_tests.local.tablestore.server import ServerHandle, tablestore_server
from upsert_platform_tests.tablestore.declared import change_batch, table_on
from upsert_platform_tests.writing.leases import terms

ROWS = 200_000
SESSION_ROWS = 400_000
MEMORY_ROWS = (1_000_000, 10_000_000)
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
    """Measures `tablestore_writer`, `tablestore_memory` and `tablestore_session`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tablestore_server(Path(folder), drop=True) as server,
    ):
        table = _created(server)
        yield _writer(server, table, rows)
        yield _memory(server, table)
    yield _session()


def _writer(server: ServerHandle, table: TablestoreTable, rows: int) -> dict[str, Any]:
    """Both clients in as many processes, in turn, the best of each compared; the server stores nothing."""
    ours, theirs = [], []
    for _ in range(REPEATS):
        theirs.append(_measure(_sdk_process, server, table, rows)[0])
        with watch_memory() as peak:
            ours.append((_measure(_writer_process, server, table, rows)[0], peak))
    seconds, peak = min(ours, key=lambda item: item[0])
    return row(
        "tablestore_writer",
        rows=rows,
        seconds=seconds,
        memory=peak.workers,
        ratio=min(theirs) / seconds,
        ratio_to="SDK BatchWriteRow of 200 rows, default logging",
        goal=">= 5",
        sdk_rows_per_s=round(rows / min(theirs)),
        processes=PROCESSES,
    )


def _memory(server: ServerHandle, table: TablestoreTable) -> dict[str, Any]:
    """Peak memory of a writing process, of few rows and of ten times as many."""
    few, many = MEMORY_ROWS
    _, at_few = _measure(_stream_process, server, table, few)
    seconds, at_many = _measure(_stream_process, server, table, many)
    return row(
        "tablestore_memory",
        rows=many,
        seconds=seconds,
        memory=at_many,
        ratio=at_many / at_few,
        ratio_to=f"peak memory of a writing process at {few} rows, {at_few:.0f} MB",
        goal="<= 1.2",
        processes=PROCESSES,
    )


def _session() -> dict[str, Any]:
    """A batch written by a warm Spark session into a server that stores and syncs it, on the same cores."""
    from upsert_platform.core.destination import BatchSpan
    from upsert_platform.spark.session import open_session
    from upsert_platform.tablestore.destination import TablestoreDestination

    spark = open_session({"spark.master": f"local[{PROCESSES}]"})
    seconds = []
    with tempfile.TemporaryDirectory() as folder, tablestore_server(Path(folder)) as server:
        destination = TablestoreDestination(table_on(server, COLUMNS, ["user_id"]))
        destination.prepare()
        for batch in range(1, REPEATS + 2):  # the first one warms the session up
            count = SESSION_ROWS if batch > 1 else SESSION_ROWS // 10
            changes = spark.range(0, count, 1, 2 * PROCESSES).selectExpr(
                "concat('user-', lpad(id, 12, '0')) AS user_id", "concat('name of user ', id) AS name",
                "concat('cn-region-', id % 17) AS region", "id / 7 AS score", f"id + {batch} AS visits",
                "id % 2 = 0 AS active", "'U' AS _op", f"{batch}L AS _seq",
            )  # fmt: skip
            with destination.lease(owner="bench", duration=LEASE) as lease:
                started = time.monotonic()
                report = destination.write(changes, span=BatchSpan(batch - 1, batch, "bench", "bench"), lease=lease)
                seconds.append(time.monotonic() - started)
            assert report.upserts == count
        destination.close()
    spark.stop()
    return row(
        "tablestore_session",
        rows=SESSION_ROWS,
        seconds=min(seconds[1:]),
        goal=">= 20,000 rows/s into the local server",
        first_seconds=round(seconds[1], 3),  # the table was nearly empty; later ones replace every row
    )


def _created(server: ServerHandle) -> TablestoreTable:
    from upsert_platform.tablestore.client import Client
    from upsert_platform.tablestore.schema import prepare_table

    table = table_on(server, COLUMNS, ["user_id"], {"max.concurrency": "2"})
    client = Client.of(table.settings)
    prepare_table(client, table)
    client.close()
    return table


def _measure(
    target: Callable[..., None], server: ServerHandle, table: TablestoreTable, rows: int
) -> tuple[float, float]:
    """Seconds from the first process that starts writing to the last that ends, and the peak memory of one in MB."""
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
    found = [results.get(timeout=900) for _ in processes]
    for process in processes:
        process.join()
    return max(end for _, end, _ in found) - min(start for start, _, _ in found), max(peak for *_, peak in found)


def _peak_memory() -> float:
    """Of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _writer_process(
    address: tuple[str, ...], table: TablestoreTable, start: int, count: int, ready: Any, results: Any
) -> None:
    import tablestore  # noqa: F401 - what the writer loads of the SDK at its first row, as the SDK's process has it

    from upsert_platform.tablestore.task import TaskStats
    from upsert_platform.tablestore.writer import writing_task

    batches = [
        change_batch(table, bench_rows(first, min(first + _BATCH, start + count)))
        for first in range(start, start + count, _BATCH)
    ]
    task = writing_task(table, terms=terms())
    ready.wait()
    began = time.time()
    outcomes = [outcome for batch in task(iter(batches)) for outcome in batch.to_pylist()]
    results.put((began, time.time(), _peak_memory()))
    assert [TaskStats.from_json(outcome["stats"]).puts for outcome in outcomes] == [count]


def _stream_process(
    address: tuple[str, ...], table: TablestoreTable, start: int, count: int, ready: Any, results: Any
) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    from upsert_platform.tablestore.task import TaskStats
    from upsert_platform.tablestore.writer import writing_task

    model = change_batch(table, bench_rows(0, _BATCH))

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(start, start + count, _BATCH):
            numbers = pc.cast(pa.array(range(first, min(first + _BATCH, start + count))), pa.string())
            keys = pc.binary_join_element_wise("user-", pc.utf8_lpad(numbers, 12, "0"), "")
            yield model.slice(0, len(keys)).set_column(0, "user_id", keys)

    task = writing_task(table, terms=terms(1800))
    ready.wait()
    began = time.time()
    outcomes = [outcome for batch in task(batches()) for outcome in batch.to_pylist()]
    results.put((began, time.time(), _peak_memory()))
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
    results.put((began, time.time(), _peak_memory()))
