"""The writing task: open its stream version, send bodies, close it, report. Runs in Spark's workers.

A task's stream is named after its partition of the frame and versioned after its attempt, so attempts never mix: the
driver commits the versions that successful attempts reported, and no other. A task needs no lease deadline for that
reason; what it sends is not visible before the driver, which holds the lease, commits.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa

from upsert_platform.core.destination import RefusedRow
from upsert_platform.maxcompute.connection import Connection, ServiceError, backoff_seconds, may_pass
from upsert_platform.maxcompute.maxstorage import MaxStorage, WriteSession, WriteStream
from upsert_platform.maxcompute.names import TableName
from upsert_platform.maxcompute.rows import WirePlan, encode_rows, slices, value_column_ids, with_value_columns
from upsert_platform.maxcompute.task_result import TaskResult, write_all
from upsert_platform.writing.refused_output import OpenFile


@dataclass(frozen=True, slots=True)
class WriteJob:
    """The picklable inputs of every task of a write.

    Attributes:
        endpoint: of the tunnel.
        body_bytes: uncompressed size at which a body is sent; two are in memory at most.
        compression: of the Arrow bodies; None sends them as they are.
        repeat_unsure: whether a body may be sent again when nobody knows if the first one arrived. True where a row
            sent twice is one row (`upsert`).
    """

    connection: Connection
    endpoint: str
    target: TableName
    session: WriteSession
    plan: WirePlan
    body_bytes: int
    compression: str | None
    repeat_unsure: bool


def stream_version(task_attempt_id: int) -> int:
    """The version of an attempt's stream, from 1: later attempts have greater ones.

    `TaskContext.taskAttemptId` numbers all attempts of a Spark application, those of a repeated stage included, which
    PySpark does not tell apart otherwise.
    """
    return task_attempt_id + 1


class TaskWriter:
    """One attempt of one task."""

    def __init__(self, job: WriteJob, *, stream_id: str, version: int) -> None:
        self._job = job
        self._stream_id = stream_id
        self._version = version
        self._storage: MaxStorage | None = None
        self._stream: WriteStream | None = None
        self._buffer: list[pa.RecordBatch] = []
        self._buffered = 0
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="maxcompute-body")
        self._sending: Future[None] | None = None
        self.result = TaskResult(version=version)

    def add(self, changes: pa.RecordBatch) -> Sequence[RefusedRow]:
        """Takes a batch of the change frame; sends a body when enough has come together. Gives the refused rows.

        Raises:
            ServiceError: rows could not be sent.
        """
        ready = encode_rows(changes, self._job.plan)
        self.result.count(ready)
        for part in slices(ready.rows, self._job.body_bytes):
            if self._buffered and self._buffered + part.nbytes > self._job.body_bytes:
                self._flush()
            self._buffer.append(part)
            self._buffered += part.nbytes
        if self._buffered >= self._job.body_bytes:
            self._flush()
        return ready.refused

    def finish(self) -> None:
        """Sends what is left and closes the stream.

        Raises:
            ServiceError: rows could not be sent, or the stream not closed.
        """
        self._flush()
        self._wait()
        if self._storage is not None and self._stream is not None:
            self._storage.close_stream(self._job.session, self._stream)
            self.result.stream_id = self._stream_id
            self.result.requests += 1

    def close(self) -> None:
        """Gives up threads and connections, after success and failure alike."""
        self._sender.shutdown(wait=True, cancel_futures=True)
        if self._storage is not None:
            self._storage.close()

    def _flush(self) -> None:
        if not self._buffer:
            return
        batches, self._buffer, self._buffered = self._buffer, [], 0
        self._wait()
        self._sending = self._sender.submit(self._send, batches)

    def _wait(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.result()

    def _send(self, batches: list[pa.RecordBatch]) -> None:
        job = self._job
        if self._storage is None:
            self._storage = MaxStorage(job.connection, job.endpoint, job.target)
        if self._stream is None:
            self._stream = self._storage.open_stream(job.session, self._stream_id, self._version)
            self.result.requests += 1
        if job.plan.partial:
            ids = value_column_ids(job.plan, self._stream.column_ids)
            batches = [with_value_columns(batch, ids) for batch in batches]
        body = _body(batches, job.compression)
        rows = sum(batch.num_rows for batch in batches)
        attempt = 0
        while True:
            try:
                self.result.requests += 1
                self._storage.write(job.session, self._stream, body, rows=rows)
            except ServiceError as error:
                attempt += 1
                again = may_pass(error) and (error.sure or job.repeat_unsure)
                if not again or attempt > job.connection.retries:
                    raise
                self.result.retries += 1
                time.sleep(backoff_seconds(attempt))
                continue
            self.result.bytes += len(body)
            return


def _body(batches: list[pa.RecordBatch], compression: str | None) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return memoryview(sink.getvalue())


@dataclass(frozen=True, slots=True)
class Attempt:
    """The writing task and its attempt.

    Attributes:
        task: from 0.
        version: of its stream.
    """

    task: int
    version: int


ONLY_ATTEMPT = Attempt(0, stream_version(0))
"""Of the process that writes a session by itself."""


def attempt_of_task() -> Attempt:
    """Return the attempt of the calling Spark task; a process that is no Spark worker has only one."""
    module = sys.modules.get("pyspark")  # a process that writes by itself need not load it
    context = None if module is None else module.TaskContext.get()
    if context is None:
        return ONLY_ATTEMPT
    return Attempt(context.partitionId(), stream_version(context.taskAttemptId()))


def write_task(
    batches: Iterator[pa.RecordBatch],
    job: WriteJob,
    *,
    attempt: Attempt,
    sessions: Sequence[WriteSession] = (),
    open_file: OpenFile | None = None,
) -> Iterator[pa.RecordBatch]:
    """The function of `mapInArrow`: writes a task's rows, yields outcomes (none without rows).

    Args:
        attempt: names and versions the stream.
        open_file: opens a file for refused rows; without it they are yielded.
        sessions: one for each task, by its number, where they do not share the job's.
    """
    if sessions:
        job = replace(job, session=sessions[attempt.task])
    writer = TaskWriter(job, stream_id=str(attempt.task), version=attempt.version)
    yield from write_all(batches, writer, target=job.target, connection=job.connection, open_file=open_file)
