"""Applies one batch: changes to partitions, partitions to tasks, tasks to one commit."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.destination import BatchSpan, KeepRefused, RefusedRow, WriteReport, drop_nothing
from upsert_platform.errors import DestinationError, RecordError
from upsert_platform.maxcompute.client import TableState
from upsert_platform.maxcompute.compaction import WHOLE_TABLE
from upsert_platform.maxcompute.connection import ServiceError, explain
from upsert_platform.maxcompute.control import Pending
from upsert_platform.maxcompute.lease import ControlLease
from upsert_platform.maxcompute.maxstorage import MaxStorage, WriteSession
from upsert_platform.maxcompute.names import quote
from upsert_platform.maxcompute.options import Compression, OnError
from upsert_platform.maxcompute.partition_spec import Spec, spec_text
from upsert_platform.maxcompute.partitions import distinct_specs, partition_columns, with_moves, with_partitions
from upsert_platform.maxcompute.recovery import MAXSTORAGE, commit_recorded
from upsert_platform.maxcompute.settings import MaxComputeTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from upsert_platform.maxcompute.rows import WirePlan
    from upsert_platform.maxcompute.writer import WriteJob

_LOGGER = logging.getLogger(__name__)
_ERROR_LINE = "ServiceError: "


@dataclass(frozen=True, slots=True)
class _Sent:
    """What the tasks did together."""

    streams: tuple[tuple[str, int], ...]
    rows: int
    deletes: int
    refused_count: int
    refused: tuple[RefusedRow, ...]
    metrics: dict[str, int | float]


def apply_batch(
    changes: DataFrame,
    *,
    span: BatchSpan,
    lease: ControlLease,
    table: MaxComputeTable,
    actual: TableState,
    storage: MaxStorage,
    read: Callable[[DataFrame], DataFrame],
    keep_refused: KeepRefused = drop_nothing,
) -> WriteReport:
    """Writes a change frame in one session, commits it and records the batch as applied.

    Args:
        actual: the table as it is.
        read: keys to a frame of these keys and the partitions that hold them (`with_moves`).
        keep_refused: is given every refused row before the commit.

    Raises:
        DestinationError, RecordError, EndpointError, LeaseHeldError: as `Destination.write` says.
    """
    started = time.monotonic()
    lease.check()
    frame = with_partitions(changes, table)
    dynamic = bool(table.partitions.dynamic)
    if dynamic:
        frame = frame.persist()
    try:
        specs = distinct_specs(frame, table)
        if table.upserts and not table.partitions_follow_key:
            frame = with_moves(frame, read(frame.select(*map(quote, table.primary_key))), table)
        return _send_and_commit(frame, specs, span, lease, table, actual, storage, started, keep_refused)
    finally:
        if dynamic:
            frame.unpersist()


def _send_and_commit(
    frame: DataFrame,
    specs: list[Spec],
    span: BatchSpan,
    lease: ControlLease,
    table: MaxComputeTable,
    actual: TableState,
    storage: MaxStorage,
    started: float,
    keep_refused: KeepRefused,
) -> WriteReport:
    try:
        session = storage.create_write_session(table.partitions.static_text)
    except ServiceError as error:
        explain(error, storage.connection, f"opening a write session on {table.target}")
    try:
        sent = _send(_spread(frame, table), _job(table, actual, storage, session))
        _check_refused(sent, table)
        keep_refused(sent.refused)
    except BaseException:
        _abort(storage, session)
        raise
    if sent.streams:
        pending = Pending(
            api=MAXSTORAGE,
            session=session.session_id,
            streams=sent.streams,
            after=span.after,
            upto=span.upto,
            changelog_id=span.changelog_id,
            run=span.run,
            rows=sent.rows,
            table_id=actual.table_id,
            partitions=_counted(specs, table),
        )
        sent_at = time.monotonic()
        lease.change(pending=pending.to_text())
        reason = commit_recorded(lease, storage, table)
        if reason is not None:
            raise DestinationError(f"commit of batch {span.upto} to {table.target} was refused: {reason}. Run again")
    else:
        sent_at = time.monotonic()
        _abort(storage, session)
        lease.change(applied_batch=span.upto, changelog_id=span.changelog_id, table_id=actual.table_id)
    return WriteReport(
        upserts=sent.rows - sent.deletes,
        deletes=sent.deletes,
        refused_count=sent.refused_count,
        refused=sent.refused,
        metrics={
            **sent.metrics,
            "partitions": len(specs),
            "seconds": round(time.monotonic() - started, 3),
            "commit_seconds": round(time.monotonic() - sent_at, 3),
        },
    )


def _counted(specs: list[Spec], table: MaxComputeTable) -> tuple[str, ...]:
    """Partitions whose commits are counted, as texts."""
    if not table.settings.compaction:
        return ()
    return tuple(spec_text(spec) for spec in specs) or (WHOLE_TABLE,)


def _spread(frame: DataFrame, table: MaxComputeTable) -> DataFrame:
    """The frame over as many tasks as declared; sorted by partition within them if that is asked for."""
    settings = table.settings
    if settings.parallelism is not None:
        by = [quote(name) for name in table.primary_key] if table.upserts else []
        frame = frame.repartition(settings.parallelism, *by)
    if settings.group_partition and table.partitions.dynamic:
        frame = frame.sortWithinPartitions(*partition_columns(table.partitions))
    return frame


def _job(table: MaxComputeTable, actual: TableState, storage: MaxStorage, session: WriteSession) -> WriteJob:
    from upsert_platform.maxcompute.writer import WriteJob

    settings = table.settings
    return WriteJob(
        connection=storage.connection,
        endpoint=storage.endpoint,
        target=table.target,
        session=session,
        plan=wire_plan(table, actual),
        body_bytes=settings.body_bytes,
        compression=None if settings.compression is Compression.NONE else settings.compression.value,
        repeat_unsure=table.upserts,
    )


def wire_plan(table: MaxComputeTable, actual: TableState) -> WirePlan:
    """How the declared columns fill the table's."""
    from upsert_platform.maxcompute.rows import WireColumn, WirePlan

    declared = {column.name.lower(): column for column, _ in table.data_columns}
    columns = []
    for present in actual.columns:
        column = declared.get(present.name)
        key = present.name in actual.primary_key
        columns.append(
            WireColumn(
                name=present.name,
                source=column.name if column else None,
                declared=column.type if column else None,
                kind=present.type,
                required=not present.nullable,
                key=key,
            )
        )
    return WirePlan(tuple(columns), table.partitions.dynamic, table.upserts, table.primary_key)


def _send(frame: DataFrame, job: WriteJob) -> _Sent:
    from pyspark.errors import PySparkException

    from upsert_platform.maxcompute.writer import RESULT_SCHEMA

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from upsert_platform.maxcompute.writer import write_task

        return write_task(batches, job)

    try:
        results = frame.mapInArrow(write, RESULT_SCHEMA).collect()
    except PySparkException as error:
        raise _explain_spark(error, job) from None
    refused = tuple(RefusedRow(**row) for result in results for row in json.loads(result["refused"]))
    summed = {name: sum(result[name] for result in results) for name in ("bytes", "requests", "retries")}
    return _Sent(
        streams=tuple((row["stream_id"], row["version"]) for row in results if row["stream_id"] is not None),
        rows=sum(row["rows"] for row in results),
        deletes=sum(row["deletes"] for row in results),
        refused_count=sum(row["refused_count"] for row in results),
        refused=refused,
        metrics={**summed, "tasks": len(results)},
    )


def _explain_spark(error: Exception, job: WriteJob) -> Exception:
    """The platform's error for a failed stage; faults of the declared SQL stay Spark's."""
    lines = [line.strip() for line in str(error).splitlines() if _ERROR_LINE in line]
    if not lines:
        return error
    reason = job.connection.hide(lines[-1].split(_ERROR_LINE, 1)[1])
    return DestinationError(f"writing to {job.target}: {reason}. Nothing was committed; run again")


def _check_refused(sent: _Sent, table: MaxComputeTable) -> None:
    if not sent.refused_count:
        return
    first = sent.refused[0]
    where = f"row with key {first.key} cannot be written to {table.target}: {first.reason}"
    if table.settings.on_error is OnError.FAIL:
        raise RecordError(
            f"{where} ({sent.refused_count} such rows). Nothing was committed; 'on-error' = 'quarantine' keeps such"
            " rows aside"
        )
    if sent.refused_count > len(sent.refused):
        raise DestinationError(
            f"{sent.refused_count} rows cannot be written to {table.target}, more than are kept aside at once. Nothing"
            f" was committed; compare the declaration with the data. For example, {where}"
        )


def _abort(storage: MaxStorage, session: WriteSession) -> None:
    """Drops a session that will not be committed; what is left of it ends by itself."""
    try:
        storage.abort(session)
    except ServiceError as error:
        _LOGGER.warning("session %s was not aborted and ends by itself: %s", session.session_id, error)
