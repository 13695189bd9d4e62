"""Rows into MaxCompute: both writing tasks against the SDK's upsert stream, on a server that stores nothing."""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from upsert_platform.maxcompute.table import MaxComputeTable, read_maxcompute_table
from upsert_platform.maxcompute.tunnel_writer import TunnelJob
from upsert_platform.maxcompute.writer import WriteJob
from upsert_platform_tests.bench.measure import row
from upsert_platform_tests.local.maxcompute.server import ServerHandle, maxcompute_server
from upsert_platform_tests.maxcompute.conftest import options_for
from upsert_platform_tests.maxcompute.declare import declare
from upsert_platform_tests.maxcompute.sending import open_job, open_tunnel_job

ROWS = 200_000
MEMORY_ROWS = (1_000_000, 10_000_000)
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
_SDK = "SDK upsert stream, row by row, one session of 16 buckets"
Job = WriteJob | TunnelJob


def run(*, rows: int = ROWS, memory_rows: tuple[int, int] = MEMORY_ROWS) -> Iterator[dict[str, Any]]:
    """Measures three clients in as many processes each, in turn, the best of each compared; then memory."""
    with _bench_server() as (server, table):
        write_job, _, _ = open_job(table)
        address = (server.access_id, server.access_key, server.project, server.endpoint)
        seconds: dict[str, list[tuple[float, float]]] = {"sdk": [], "maxstorage": [], "tunnel": []}
        for _ in range(REPEATS):
            seconds["sdk"].append(_measure(_sdk_process, (address, _session_id(server)), rows))
            seconds["maxstorage"].append(_measure(_writer_process, write_job, rows))
            seconds["tunnel"].append(_measure(_writer_process, _tunnel_job(table), rows))
        best = {client: min(measured) for client, measured in seconds.items()}
        sdk, _ = best["sdk"]
        for name, client, goal in (
            ("maxcompute_writer", "maxstorage", ">= 5"),
            ("maxcompute_tunnel_writer", "tunnel", ">= 1.5"),
        ):
            taken, memory = best[client]
            yield row(
                name,
                rows=rows,
                seconds=taken,
                memory=memory,
                ratio=sdk / taken,
                ratio_to=_SDK,
                goal=goal,
                sdk_rows_per_s=round(rows / sdk),
                processes=PROCESSES,
            )
        for name, job, part in (
            ("maxcompute_memory", write_job, 1),
            ("maxcompute_tunnel_memory", _tunnel_job(table), 4),
        ):
            few, many = (number // part for number in memory_rows)
            _, memory_few = _measure(_writer_process, job, few, processes=1)
            taken, memory_many = _measure(_writer_process, job, many, processes=1)
            yield row(
                name,
                rows=many,
                seconds=taken,
                memory=memory_many,
                ratio=memory_many / memory_few,
                ratio_to=f"peak memory of the task with {few} rows",
                goal="<= 1.2",
                processes=1,
            )


@contextmanager
def _bench_server() -> Iterator[tuple[ServerHandle, MaxComputeTable]]:
    with tempfile.TemporaryDirectory() as folder, maxcompute_server(Path(folder), drop=True) as server:
        more = {"sink.operation": "upsert", "auto.create": "true", "upsert.write.bucket.num": "16"}
        options = {**options_for(server, "bench"), **more}
        table, problems = read_maxcompute_table(declare(COLUMNS, key=["user_id"], options=options))
        assert table is not None, problems
        yield server, table


def _tunnel_job(table: MaxComputeTable) -> TunnelJob:
    """With what the options are when they are not given."""
    settings = table.settings
    job, tunnel = open_tunnel_job(
        table,
        bucket_bytes=settings.bucket_buffer,
        buffer_bytes=settings.writer_buffer,
        concurrency=settings.flush_concurrency,
        compression=settings.compression.value,
    )
    tunnel.close()
    return job


def _session_id(server: ServerHandle) -> str:
    """A fresh upsert session, which all processes of the SDK share."""
    from odps.tunnel import TableTunnel

    odps = server.odps()
    return str(TableTunnel(odps).create_upsert_session(odps.get_table("bench")).id)


def bench_batch(start: int, stop: int) -> pa.RecordBatch:
    """Rows of a change frame with six columns."""
    import pyarrow.compute as pc

    numbers = pa.array(range(start, stop), pa.int64())
    texts = pc.cast(numbers, pa.string())
    regions = pc.cast(pa.array((number % 17 for number in range(start, stop)), pa.int64()), pa.string())
    columns = {
        "user_id": pc.binary_join_element_wise("user", pc.utf8_lpad(texts, 12, "0"), "-"),
        "name": pc.binary_join_element_wise("name of user", texts, " "),
        "region": pc.binary_join_element_wise("cn-region", regions, "-"),
        "score": pc.divide(pc.cast(numbers, pa.float64()), 7.0),
        "visits": numbers,
        "active": pa.array((number % 2 == 0 for number in range(start, stop)), pa.bool_()),
        "_op": pa.array(["U"] * (stop - start)),
        "_seq": numbers,
    }
    return pa.RecordBatch.from_pydict(columns)


def _measure(target: Callable[..., None], reach: Any, rows: int, *, processes: int = PROCESSES) -> tuple[float, float]:
    """Seconds from the first process that starts writing to the last that ends, and their peak memory in MB."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(processes)
    results = context.Queue()
    share = rows // processes
    started = [
        context.Process(target=target, args=(reach, number, share, ready, results)) for number in range(processes)
    ]
    for process in started:
        process.start()
    spans = [results.get(timeout=600) for _ in started]
    for process in started:
        process.join()
    seconds = max(end for _, end, _ in spans) - min(start for start, _, _ in spans)
    return seconds, sum(memory for _, _, memory in spans)


def _writer_process(job: Job, number: int, count: int, ready: Any, results: Any) -> None:
    from upsert_platform.maxcompute.maxstorage import MaxStorage
    from upsert_platform.maxcompute.tunnel_writer import TunnelTaskWriter
    from upsert_platform.maxcompute.writer import TaskWriter

    MaxStorage(job.connection, job.endpoint, job.target).close()  # imports PyODPS, as a reused worker has done before
    first = number * count
    spans = [(start, min(start + _BATCH, first + count)) for start in range(first, first + count, _BATCH)]
    # What is measured for speed is made before; of what is measured for memory no two batches are held at once.
    batches: Any = [bench_batch(*span) for span in spans] if count <= ROWS else (bench_batch(*span) for span in spans)
    writer: TaskWriter | TunnelTaskWriter
    if isinstance(job, TunnelJob):
        writer = TunnelTaskWriter(job)
    else:
        writer = TaskWriter(job, stream_id=str(number), version=time.time_ns() // 1000)
    ready.wait()
    began = time.time()
    for rows in batches:
        writer.add(rows)
    writer.finish()
    results.put((began, time.time(), _peak_memory()))
    writer.close()
    assert writer.result.rows == count


def _sdk_process(reach: tuple[tuple[str, ...], str], number: int, count: int, ready: Any, results: Any) -> None:
    from odps import ODPS
    from odps.tunnel import TableTunnel

    (access_id, access_key, project, endpoint), session_id = reach
    odps = ODPS(access_id, access_key, project, endpoint=endpoint)
    session = TableTunnel(odps).create_upsert_session(odps.get_table("bench"), upsert_id=session_id)
    made = bench_batch(number * count, (number + 1) * count).select(list(COLUMNS))
    rows = list(zip(*(column.to_pylist() for column in made.columns), strict=True))
    stream = session.open_upsert_stream()
    ready.wait()
    began = time.time()
    for values in rows:
        stream.upsert(session.new_record(values))
    stream.flush()
    results.put((began, time.time(), _peak_memory()))


def _peak_memory() -> float:
    """Of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
