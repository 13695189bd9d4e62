"""Recorded commits: made, and after a crash finished by whoever holds the lease next.

A commit is recorded with everything it needs (session, streams, batch) before it is asked for. If its answer is lost,
or the process dies, asking again settles it: a session is committed once, however often that is asked. Only a session
that the service no longer knows leaves a question, and one of several (`sink.coordinator.enable` = `false`) that it
refuses when others are committed. For `upsert`, and for rows that replace a table, it does not matter:
the batch is written again and gives the same rows. For rows that are appended a person has to look, because both
answers (not there, there twice) would be wrong.
"""

from __future__ import annotations

import logging
import time

from upsert_platform.errors import DestinationError, UpsertPlatformError
from upsert_platform.maxcompute.committing import Committing, PartlyCommittedError
from upsert_platform.maxcompute.compaction import count_commits
from upsert_platform.maxcompute.connection import ServiceError, explain, may_pass
from upsert_platform.maxcompute.control import Pending
from upsert_platform.maxcompute.lease import ControlLease
from upsert_platform.maxcompute.maxstorage import is_gone
from upsert_platform.maxcompute.table import MaxComputeTable

_LOGGER = logging.getLogger(__name__)


def commit_recorded(lease: ControlLease, committing: Committing, table: MaxComputeTable) -> str | None:
    """Makes the recorded commit happen; that it did is recorded when the lease ends, or with its next change.

    Returns:
        None when its rows are in the table. Otherwise why they are not, or why that is not known and does not
        matter: the batch is to be written again. Either way nothing is pending any more.

    Raises:
        EndpointError: no answer; the commit stays recorded, and the next run finishes it.
        DestinationError: the service refuses for another reason, or cannot tell (`insert` only).
        LeaseHeldError: the lease was lost.
    """
    pending = lease.record.pending_commit
    if pending is None:
        return "nothing was recorded"
    try:
        committing.commit(pending, deadline=time.monotonic() + table.settings.commit_timeout)
    except ServiceError as error:
        return _without_commit(error, lease, committing, table, pending)
    # Should this process die before that is written, the next holder asks for the commit again and is told it happened.
    lease.change_later(
        applied_batch=pending.upto,
        changelog_id=pending.changelog_id,
        table_id=pending.table_id,
        pending="",
        commits=count_commits(lease.record.commits, pending.partitions),
        committed_at=int(time.time() * 1000),
    )
    return None


def drop_opened(lease: ControlLease, committing: Committing) -> None:
    """Drops the recorded sessions of a run that died while it sent rows: nothing of them was to be committed.

    Raises:
        LeaseHeldError: the lease was lost.
    """
    pending = lease.record.pending_commit
    if pending is not None:
        try:
            committing.drop(pending)
        except ServiceError as error:
            _LOGGER.warning("sessions of run '%s' were not dropped and end by themselves: %s", pending.run, error)
    lease.change(pending="")


def forget_opened(lease: ControlLease) -> None:
    """Takes dropped sessions out of the record; if that fails, the next run drops them once more."""
    try:
        lease.change(pending="")
    except (UpsertPlatformError, ServiceError) as error:
        _LOGGER.warning("the record of dropped sessions stays until the next run: %s", error)


def _without_commit(
    error: ServiceError, lease: ControlLease, committing: Committing, table: MaxComputeTable, pending: Pending
) -> str:
    """Settles a commit that the service refused."""
    what = f"commit of batch {pending.upto} to {table.target}"
    gone = is_gone(error)
    if may_pass(error) and not gone:
        explain(error, committing.connection, f"{what} (it stays recorded; the next run finishes it)")
    if not table.upserts and not pending.replaces and (gone or isinstance(error, PartlyCommittedError)):
        sessions = ", ".join(session_id for _, session_id in pending.sessions)
        found = (
            f"session {sessions} of run '{pending.run}' is no longer known, so nobody can tell whether its"
            f" {pending.rows} rows were appended ({error}). Look whether they are in the table, then"
        )
        if pending.paired:
            found = (
                f"a session of run '{pending.run}' ({sessions}) was refused, so a part of its {pending.rows} rows may"
                f" be missing ({error}). Take those that were appended out of the table, or append the others, then"
            )
        raise DestinationError(
            f"{what}: {found} set in the control table '{table.target.sibling(table.settings.control_table)}'"
            f" applied_batch to {pending.upto} if they are in the table, or leave it at {pending.after} if they are"
            f" not, and pending to '' in either case"
        )
    try:
        committing.drop(pending)
    except ServiceError as failure:
        explain(failure, committing.connection, f"aborting what {what} was to make visible")
    lease.change(pending="")
    return str(error)
