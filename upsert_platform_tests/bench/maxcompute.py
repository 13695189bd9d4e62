"""Rows into MaxCompute: the writing task against the SDK's upsert stream, on a server that stores nothing."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from upsert_platform.maxcompute.settings import MaxComputeTable, read_maxcompute_table
from upsert_platform.maxcompute.writer import WriteJob
from upsert_platform_tests.bench.measure import row, watch_memory
from upsert_platform_tests.local.maxcompute.server import ServerHandle, maxcompute_server
from upsert_platform_tests.maxcompute.conftest import options_for
from upsert_platform_tests.maxcompute.declare import declare
from upsert_platform_tests.maxcompute.sending import batch, open_job

ROWS = 200_000
PROCESSES = 2
REPEATS = 3
COLUMNS = {
    "user_id": "STRING",
    "name": "STRING",
    "region": "STRING",
    "score": "DOUBLE",
    "visits": "BIGINT",
    "active": "BOOLEAN",
}
_BATCH = 20_000


def bench_rows(start: int, stop: int) -> list[tuple[Any, ...]]:
    """Rows of six columns."""
    return [
        (
            f"user-{number:012}",
            f"name of user {number}",
            f"cn-region-{number % 17}",
            number / 7,
            number,
            number % 2 == 0,
        )
        for number in range(start, stop)
    ]


def run(*, rows: int = ROWS) -> Iterator[dict[str, Any]]:
    """Measures `maxcompute_writer`: both clients in as many processes, in turn, the best of each compared."""
    with (
        tempfile.TemporaryDirectory() as folder,
        maxcompute_server(Path(folder), drop=True) as server,
    ):
        table, problems = read_maxcompute_table(
            declare(
                COLUMNS,
                key=["user_id"],
                options={
                    **options_for(server, "bench"),
                    "sink.operation": "upsert",
                    "auto.create": "true",
                    "upsert.write.bucket.num": "16",
                },
            )
        )
        assert table is not None, problems
        job, _, _ = open_job(table)
        address = (server.access_id, server.access_key, server.project, server.endpoint)
        ours, theirs = [], []
        for _ in range(REPEATS):
            theirs.append(_measure(_sdk_process, (address, _session_id(server)), table, rows))
            with watch_memory() as peak:
                ours.append((_measure(_writer_process, job, table, rows), peak))
        seconds, peak = min(ours, key=lambda item: item[0])
        yield row(
            "maxcompute_writer",
            rows=rows,
            seconds=seconds,
            memory=peak.workers,
            ratio=min(theirs) / seconds,
            ratio_to="SDK upsert stream, row by row, one session of 16 buckets",
            goal=">= 3 (aim 5)",
            sdk_rows_per_s=round(rows / min(theirs)),
            processes=PROCESSES,
        )


def _session_id(server: ServerHandle) -> str:
    """A fresh upsert session, which all processes of the SDK share."""
    from odps.tunnel import TableTunnel

    odps = server.odps()
    return str(TableTunnel(odps).create_upsert_session(odps.get_table("bench")).id)


def _measure(target: Callable[..., None], reach: Any, table: MaxComputeTable, rows: int) -> float:
    """Seconds from the first process that starts writing to the last that ends."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(PROCESSES)
    results = context.Queue()
    share = rows // PROCESSES
    processes = [
        context.Process(target=target, args=(reach, table, number, share, ready, results))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    spans = [results.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    return max(end for _, end in spans) - min(start for start, _ in spans)


def _writer_process(job: WriteJob, table: MaxComputeTable, number: int, count: int, ready: Any, results: Any) -> None:
    from upsert_platform.maxcompute.maxstorage import MaxStorage
    from upsert_platform.maxcompute.writer import TaskWriter

    MaxStorage(job.connection, job.endpoint, job.target).close()  # imports PyODPS, as a reused worker has done before
    first = number * count
    batches = [
        batch(table, [("U", values) for values in bench_rows(start, min(start + _BATCH, first + count))])
        for start in range(first, first + count, _BATCH)
    ]
    writer = TaskWriter(job, stream_id=str(number), version=time.time_ns() // 1000)
    ready.wait()
    began = time.time()
    for rows in batches:
        writer.add(rows)
    writer.finish()
    results.put((began, time.time()))
    writer.close()
    assert writer.result.rows == count


def _sdk_process(
    reach: tuple[tuple[str, ...], str], table: MaxComputeTable, number: int, count: int, ready: Any, results: Any
) -> None:
    from odps import ODPS
    from odps.tunnel import TableTunnel

    (access_id, access_key, project, endpoint), session_id = reach
    odps = ODPS(access_id, access_key, project, endpoint=endpoint)
    session = TableTunnel(odps).create_upsert_session(odps.get_table(table.target.table), upsert_id=session_id)
    rows = bench_rows(number * count, (number + 1) * count)
    stream = session.open_upsert_stream()
    ready.wait()
    began = time.time()
    for values in rows:
        stream.upsert(session.new_record(values))
    stream.flush()
    results.put((began, time.time()))
