"""Applies one batch: changes to partitions, partitions to tasks, tasks to one commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from upsert_platform.core.destination import (
    OPERATION,
    OPERATION_UPSERT,
    BatchSpan,
    KeepRefused,
    WriteReport,
)
from upsert_platform.core.errors import DestinationError, RecordError
from upsert_platform.core.task_runner import RowsOfTask
from upsert_platform.maxcompute.choices import OnError
from upsert_platform.maxcompute.client import TableState
from upsert_platform.maxcompute.committing import Committing
from upsert_platform.maxcompute.compaction import WHOLE_TABLE
from upsert_platform.maxcompute.control import Pending
from upsert_platform.maxcompute.lease import ControlLease
from upsert_platform.maxcompute.names import quote
from upsert_platform.maxcompute.partition_spec import Spec, spec_text
from upsert_platform.maxcompute.partitions import distinct_specs, may_leave, with_moves, with_partitions, with_verdicts
from upsert_platform.maxcompute.recovery import commit_recorded, forget_opened
from upsert_platform.maxcompute.sending import Sending, wire_plan
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.maxcompute.task_result import TaskResult
from upsert_platform.writing.judge import Judge
from upsert_platform.writing.outcomes import Written, opener_of, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch to apply, and what is needed for it.

    Attributes:
        actual: the table as it is.
        present: keys to a frame of these keys and the partitions that hold them (`with_moves`).
        keep_refused: is given every refused row before the commit.
        truncate: empties what no rows replace.
        judge: sets rows aside that no table takes.
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
    judge: Judge


def apply_batch(changes: DataFrame | RowsOfTask, batch: Batch) -> WriteReport:
    """Sends a change frame, commits it and records the batch as applied.

    Args:
        changes: rows of a task where no partition follows from rows; that task sends them.

    Raises:
        DestinationError, RecordError, EndpointError, LeaseHeldError: as `Destination.write` says.
    """
    started = time.monotonic()
    batch.lease.check()
    table = batch.table
    if isinstance(changes, RowsOfTask):
        return _send_and_commit(batch, changes, distinct_specs(changes, table), started)
    if batch.span.replaces:
        changes = changes.where(f"{OPERATION} = '{OPERATION_UPSERT}'")
    frame = with_partitions(changes, table)
    moves = table.upserts and not table.partitions_follow_key
    if moves:
        frame = with_verdicts(frame, wire_plan(table, batch.actual), batch.judge.not_null)
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


def _send_and_commit(batch: Batch, frame: DataFrame | RowsOfTask, specs: list[Spec], started: float) -> WriteReport:
    table, span, sending = batch.table, batch.span, batch.sending
    opened = Pending(
        api=sending.api,
        sessions=(),
        streams=(),
        after=span.after,
        upto=span.upto,
        changelog_id=span.changelog_id,
        commit=span.commit,
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
        written = _send(batch, frame)
        _check_refused(written, table)
        written.keep_refused()
        streams = tuple((part.stream_id, part.version) for part in written.parts if part.stream_id is not None)
        sessions = sending.filled(streams)
    except BaseException:
        sending.abort()
        if batch.lease.record.pending:
            forget_opened(batch.lease)
        raise
    sent_at = time.monotonic()
    rows, deletes = (sum(getattr(part, name) for part in written.parts) for name in ("rows", "deletes"))
    if rows:
        batch.lease.change(pending=replace(opened, sessions=sessions, streams=streams, rows=rows).to_text())
        reason = commit_recorded(batch.lease, batch.committing, table)
        if reason is not None:
            raise DestinationError(f"commit of batch {span.upto} to {table.target} was refused: {reason}. Run again")
    else:
        sending.abort()
        if span.replaces:
            batch.truncate()
        batch.lease.change_later(
            applied_batch=span.upto,
            changelog_id=span.changelog_id,
            commit=span.commit,
            table_id=batch.actual.table_id,
            pending="",
        )
    return written.report(
        upserts=rows - deletes,
        deletes=deletes,
        metrics={
            **{name: sum(getattr(part, name) for part in written.parts) for name in ("bytes", "requests", "retries")},
            "tasks": sum(part.seconds > 0 for part in written.parts),
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


def _send(batch: Batch, frame: DataFrame | RowsOfTask) -> Written[TaskResult]:
    table, sending = batch.table, batch.sending
    return run_tasks(
        frame if isinstance(frame, RowsOfTask) else sending.spread(frame),
        sending.task(opener_of(batch.keep_refused)),
        TaskResult,
        what=f"table '{table.name}'",
        keep=batch.keep_refused,
        judge=batch.judge,
    )


def _check_refused(written: Written[TaskResult], table: MaxComputeTable) -> None:
    refused = sum(part.refused for part in written.parts)
    if not refused or table.settings.on_error is not OnError.FAIL:
        return
    first = written.examples()[0]
    written.discard()
    raise RecordError(
        f"row with key {table.mask.object(first.key)} cannot be written to {table.target}:"
        f" {table.mask.reason(first.reason)} ({refused} such rows). Nothing"
        " was committed; 'on-error' = 'quarantine' keeps such rows aside"
    )
