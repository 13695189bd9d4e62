"""The writing task of the upsert tunnel: sort rows into buckets, send each bucket's records. In workers.

Every key comes once per session, so bodies may arrive twice and in any order: a repeated body, or one of an attempt
that died, sets the same rows. Sessions are closed by nobody but the driver.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.destination import RefusedRow
from upsert_platform.core.internal_columns import internal
from upsert_platform.maxcompute.connection import Connection, ServiceError, backoff_seconds, may_pass
from upsert_platform.maxcompute.encode import encode
from upsert_platform.maxcompute.hashing import buckets_of
from upsert_platform.maxcompute.names import TableName
from upsert_platform.maxcompute.records import encode_records, footer
from upsert_platform.maxcompute.rows import OPERATION_COLUMN, WirePlan, encode_rows, value_column_ids
from upsert_platform.maxcompute.task_result import TaskResult, write_all
from upsert_platform.maxcompute.tunnel import UpsertSession, UpsertTunnel
from upsert_platform.writing.refused_output import OpenFile


@dataclass(frozen=True, slots=True)
class TunnelJob:
    """The picklable inputs of every task of a tunnel write.

    Attributes:
        endpoint: of the tunnel.
        sessions: by the values of the dynamic partition columns (empty without them).
        bucket_bytes: encoded size at which a bucket is sent.
        buffer_bytes: encoded size of all buckets at which all are sent.
        concurrency: bodies sent at once.
        compression: of bodies; None sends them as they are.
    """

    connection: Connection
    endpoint: str
    target: TableName
    sessions: tuple[tuple[tuple[str, ...], UpsertSession], ...]
    plan: WirePlan
    bucket_bytes: int
    buffer_bytes: int
    concurrency: int
    compression: str | None


@dataclass(slots=True)
class _Bucket:
    """Records that wait to be sent."""

    rows: int = 0
    size: int = 0
    records: list[bytes] = field(default_factory=list)
    checksums: list[bytes] = field(default_factory=list)

    def body(self) -> bytes:
        return b"".join(self.records) + footer(self.rows, b"".join(self.checksums))


class TunnelTaskWriter:
    """One attempt of one task."""

    def __init__(self, job: TunnelJob) -> None:
        self._job = job
        self._sessions = dict(job.sessions)
        self._tunnel = UpsertTunnel(job.connection, job.endpoint, job.target)
        self._waiting: dict[tuple[tuple[str, ...], int], _Bucket] = {}
        self._buffered = 0
        self._sender = ThreadPoolExecutor(job.concurrency, thread_name_prefix="maxcompute-bucket")
        self._sending: set[Future[tuple[int, int]]] = set()
        self.result = TaskResult()

    def add(self, changes: pa.RecordBatch) -> Sequence[RefusedRow]:
        """Takes a batch of the change frame; sends buckets that are full. Gives the refused rows.

        Raises:
            ServiceError: rows could not be sent.
        """
        ready = encode_rows(changes, self._job.plan)
        self.result.count(ready)
        for partition, rows in self._by_partition(ready.rows):
            self._add_rows(partition, rows)
        for place in [place for place, bucket in self._waiting.items() if bucket.size > self._job.bucket_bytes]:
            self._send(place)
        if self._buffered >= self._job.buffer_bytes:
            self._send_all()
        return ready.refused

    def finish(self) -> None:
        """Sends what is left, and waits until all is there.

        Raises:
            ServiceError: rows could not be sent.
        """
        self._send_all()
        self._collect(0)

    def close(self) -> None:
        """Gives up threads and connections, after success and failure alike."""
        self._sender.shutdown(wait=True, cancel_futures=True)
        self._tunnel.close()

    def _by_partition(self, rows: pa.RecordBatch) -> Iterator[tuple[tuple[str, ...], pa.RecordBatch]]:
        names = self._job.plan.partitions
        if not names or rows.num_rows == 0:
            if rows.num_rows:
                yield (), rows
            return
        found = pa.table({name: rows.column(name) for name in names}).group_by(list(names)).aggregate([])
        for values in found.select(list(names)).to_pylist():
            chosen = np.ones(rows.num_rows, dtype=bool)
            for name in names:
                chosen &= np.asarray(pc.equal(rows.column(name), values[name]))
            yield tuple(values[name] for name in names), rows.filter(pa.array(chosen))

    def _add_rows(self, partition: tuple[str, ...], rows: pa.RecordBatch) -> None:
        session, plan = self._sessions[partition], self._job.plan
        kinds = {column.name: column.kind for column in plan.columns}
        keys = [rows.column(name) for name in session.hash_key]
        numbers = buckets_of(keys, [kinds[name] for name in session.hash_key], session.buckets, hasher=session.hasher)
        order = np.argsort(numbers, kind="stable")
        rows, numbers = rows.take(pa.array(order)), numbers[order]
        columns = [rows.column(column.name) for column in plan.columns]
        ids = value_column_ids(plan, session.column_ids) if plan.partial else ()
        kinds_in_order = [column.kind for column in plan.columns]
        block = encode_records(columns, kinds_in_order, rows.column(OPERATION_COLUMN), value_columns=ids)
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=True):
            records, checksums = block.part(int(start), int(stop))
            bucket = self._waiting.setdefault((partition, int(numbers[start])), _Bucket())
            bucket.rows += int(stop - start)
            bucket.size += len(records)
            bucket.records.append(records)
            bucket.checksums.append(checksums)
            self._buffered += len(records)

    def _send_all(self) -> None:
        for place in list(self._waiting):
            self._send(place)

    def _send(self, place: tuple[tuple[str, ...], int]) -> None:
        bucket = self._waiting.pop(place)
        self._buffered -= bucket.size
        self._collect(self._job.concurrency - 1)
        self._sending.add(self._sender.submit(self._put, place, bucket))

    def _collect(self, most: int) -> None:
        """Waits until at most so many bodies are under way."""
        while len(self._sending) > most:
            done, self._sending = wait(self._sending, return_when=FIRST_COMPLETED)
            for future in done:
                size, retries = future.result()
                self.result.bytes += size
                self.result.retries += retries
                self.result.requests += 1 + retries

    def _put(self, place: tuple[tuple[str, ...], int], bucket: _Bucket) -> tuple[int, int]:
        partition, number = place
        body, retries = bucket.body(), 0
        while True:
            session = self._sessions[partition]
            try:
                self._tunnel.put(session, number, body, rows=bucket.rows, compression=self._job.compression)
            except ServiceError as error:
                retries += 1
                if not may_pass(error) or retries > self._job.connection.retries:
                    raise
                time.sleep(backoff_seconds(retries))
                self._reload(partition)
                continue
            return len(body), retries

    def _reload(self, partition: tuple[str, ...]) -> None:
        """Asks where the session's slots are now; the number of buckets must be what rows were sorted by."""
        old = self._sessions[partition]
        try:
            new = self._tunnel.load(old.partition, old.session_id)
        except ServiceError as error:
            if may_pass(error):
                return
            raise
        if new.buckets != old.buckets:
            text = f"the table has {new.buckets} buckets now, rows were sorted into {old.buckets}"
            raise ServiceError(text, status=409, code="BucketsChanged", sure=True)
        self._sessions[partition] = new


def add_bucket(batches: Iterator[pa.RecordBatch], plan: WirePlan, session: UpsertSession) -> Iterator[pa.RecordBatch]:
    """Adds the bucket (int32) to batches of a change frame; rows whose key is refused get bucket 0."""

    by_name = {column.name: column for column in plan.columns}
    keys = [by_name[name] for name in session.hash_key]
    for batch in batches:
        columns = []
        for key in keys:
            assert key.source is not None
            assert key.declared is not None
            columns.append(encode(batch.column(key.source), key.declared, key.kind).values)
        numbers = buckets_of(columns, [key.kind for key in keys], session.buckets, hasher=session.hasher)
        yield batch.append_column(internal("bucket"), pa.array(numbers, pa.int32()))


def write_tunnel_task(
    batches: Iterator[pa.RecordBatch], job: TunnelJob, *, open_file: OpenFile | None = None
) -> Iterator[pa.RecordBatch]:
    """The function of `mapInArrow`: sends a task's rows, yields outcomes (none without rows).

    Args:
        open_file: opens a file for refused rows; without it they are yielded.
    """
    writer = TunnelTaskWriter(job)
    yield from write_all(batches, writer, target=job.target, connection=job.connection, open_file=open_file)
