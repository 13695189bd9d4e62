"""Applies one batch: changes to partitions, partitions to tasks, tasks to one commit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from upsert_platform.destination import (
    OPERATION,
    OPERATION_UPSERT,
    BatchSpan,
    KeepRefused,
    RefusedRow,
    WriteReport,
)
from upsert_platform.errors import DestinationError, RecordError
from upsert_platform.maxcompute.choices import OnError
from upsert_platform.maxcompute.client import TableState
from upsert_platform.maxcompute.committing import Committing
from upsert_platform.maxcompute.compaction import WHOLE_TABLE
from upsert_platform.maxcompute.connection import Connection
from upsert_platform.maxcompute.control import Pending
from upsert_platform.maxcompute.lease import ControlLease
from upsert_platform.maxcompute.names import quote
from upsert_platform.maxcompute.partition_spec import Spec, spec_text
from upsert_platform.maxcompute.partitions import distinct_specs, may_leave, with_moves, with_partitions, with_verdicts
from upsert_platform.maxcompute.recovery import commit_recorded, forget_opened
from upsert_platform.maxcompute.sending import Sending, wire_plan
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.writing.outcomes import failure_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch to apply, and what is needed for it.

    Attributes:
        actual: the table as it is.
        present: keys to a frame of these keys and the partitions that hold them (`with_moves`).
        keep_refused: is given every refused row before the commit.
        truncate: empties what no rows replace.
    """

    span: BatchSpan
    lease: ControlLease
    table: MaxComputeTable
    actual: TableState
    sending: Sending
    committing: Committing
    present: Callable[[DataFrame], DataFrame]
    keep_refused: KeepRefused
    truncate: Callable[[], None]


def apply_batch(changes: DataFrame, batch: Batch) -> WriteReport:
    """Sends a change frame, commits it and records the batch as applied.

    Raises:
        DestinationError, RecordError, EndpointError, LeaseHeldError: as `Destination.write` says.
    """
    started = time.monotonic()
    batch.lease.check()
    table = batch.table
    if batch.span.replaces:
        changes = changes.where(f"{OPERATION} = '{OPERATION_UPSERT}'")
    frame = with_partitions(changes, table)
    moves = table.upserts and not table.partitions_follow_key
    if moves:
        frame = with_verdicts(frame, wire_plan(table, batch.actual))
    dynamic = bool(table.partitions.dynamic)
    if dynamic:
        frame = frame.persist()
    moved = None
    try:
        if moves:
            leaving = may_leave(frame, table)
            if leaving is not None:
                present = batch.present(leaving.select(*map(quote, table.primary_key)))
                moved = with_moves(frame, present, table, batch.actual).persist()
        sent = frame if moved is None else moved
        return _send_and_commit(batch, sent, distinct_specs(sent, table), started)
    finally:
        for kept in (frame if dynamic else None, moved):
            if kept is not None:
                kept.unpersist()


def _send_and_commit(batch: Batch, frame: DataFrame, specs: list[Spec], started: float) -> WriteReport:
    table, span, sending = batch.table, batch.span, batch.sending
    opened = Pending(
        api=sending.api,
        sessions=(),
        streams=(),
        after=span.after,
        upto=span.upto,
        changelog_id=span.changelog_id,
        run=span.run,
        rows=0,
        table_id=batch.actual.table_id,
        partitions=_counted(specs, table),
        replaces=span.replaces,
        paired=table.session_per_task,
    )

    def record() -> None:
        # Without rows: should this process die, the next one drops the sessions instead of leaving them open for a day.
        batch.lease.change(pending=replace(opened, sessions=sending.sessions).to_text())

    try:
        sending.open(specs, record=record)
        sent = _send(sending, frame, table)
        _check_refused(sent, table)
        batch.keep_refused(sent.refused)
        sessions = sending.filled(sent.streams)
    except BaseException:
        sending.abort()
        if batch.lease.record.pending:
            forget_opened(batch.lease)
        raise
    sent_at = time.monotonic()
    if sent.rows:
        batch.lease.change(pending=replace(opened, sessions=sessions, streams=sent.streams, rows=sent.rows).to_text())
        reason = commit_recorded(batch.lease, batch.committing, table)
        if reason is not None:
            raise DestinationError(f"commit of batch {span.upto} to {table.target} was refused: {reason}. Run again")
    else:
        sending.abort()
        if span.replaces:
            batch.truncate()
        batch.lease.change_later(
            applied_batch=span.upto, changelog_id=span.changelog_id, table_id=batch.actual.table_id, pending=""
        )
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


def _send(sending: Sending, frame: DataFrame, table: MaxComputeTable) -> _Sent:
    from pyspark.errors import PySparkException

    from upsert_platform.maxcompute.task_result import RESULT_SCHEMA

    try:
        results = sending.spread(frame).mapInArrow(sending.task(), RESULT_SCHEMA).collect()
    except PySparkException as error:
        raise _explain_spark(error, table) from None
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


def _explain_spark(error: Exception, table: MaxComputeTable) -> Exception:
    """The platform's error for a failed stage; faults of the declared SQL stay Spark's."""
    lines = [line.strip() for line in str(error).splitlines() if _ERROR_LINE in line]
    if not lines:
        return failure_of(error) or error
    reason = Connection.of(table.settings).hide(lines[-1].split(_ERROR_LINE, 1)[1])
    return DestinationError(f"writing to {table.target}: {reason}. Nothing was committed; run again")


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
