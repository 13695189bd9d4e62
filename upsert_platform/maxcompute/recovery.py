"""Recorded commits: made, and after a crash finished by whoever holds the lease next.

A commit is recorded with everything it needs (session, streams, batch) before it is asked for. If its answer is lost,
or the process dies, asking again settles it: a session is committed once, however often that is asked. A session that
was aborted or has expired was not committed, and the batch is written again. Only one that the service no longer knows
leaves a question, and several of which some are committed and others are not (`sink.coordinator.enable` = `false`). For
`upsert`, and for rows that replace a table, it does not matter: the batch is written again and gives the same rows. For
rows that are appended a person has to look, because both answers (not there, there twice) would be wrong.
"""

from __future__ import annotations

import logging
import time

from upsert_platform.core.errors import DestinationError, UpsertPlatformError
from upsert_platform.maxcompute.committing import Committing, Fate, Outcome
from upsert_platform.maxcompute.compaction import count_commits
from upsert_platform.maxcompute.connection import ServiceError, explain
from upsert_platform.maxcompute.control import Pending
from upsert_platform.maxcompute.lease import ControlLease
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
    outcomes = committing.commit(pending, deadline=time.monotonic() + table.settings.commit_timeout)
    if any(outcome.fate is not Fate.COMMITTED for outcome in outcomes):
        return _without_commit(outcomes, lease, committing, table, pending)
    # Should this process die before that is written, the next holder asks for the commit again and is told it happened.
    lease.change_later(
        applied_batch=pending.upto,
        changelog_id=pending.changelog_id,
        commit=pending.commit,
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
    outcomes: tuple[Outcome, ...],
    lease: ControlLease,
    committing: Committing,
    table: MaxComputeTable,
    pending: Pending,
) -> str:
    """Settles a commit that did not happen, or of which that is not known."""
    what = f"commit of batch {pending.upto} to {table.target}"
    by_fate = {outcome.fate: outcome.failure for outcome in outcomes}
    undecided = by_fate.get(Fate.UNDECIDED)
    if undecided is not None:
        explain(undecided, committing.connection, f"{what} (it stays recorded; the next run finishes it)")
    failure = by_fate.get(Fate.UNKNOWN) or by_fate.get(Fate.NOT_COMMITTED)
    if set(by_fate) != {Fate.NOT_COMMITTED} and not table.upserts and not pending.replaces:
        raise _to_be_looked_at(what, outcomes, table, pending)
    if Fate.UNKNOWN in by_fate or Fate.COMMITTED in by_fate:
        try:
            committing.drop(pending)
        except ServiceError as error:
            explain(error, committing.connection, f"aborting what {what} was to make visible")
    lease.change(pending="")
    return str(failure)


def _to_be_looked_at(
    what: str, outcomes: tuple[Outcome, ...], table: MaxComputeTable, pending: Pending
) -> DestinationError:
    """The error for appended rows of which nobody knows whether they are there, or of which only a part is."""
    sessions = ", ".join(session_id for _, session_id in pending.sessions)
    failure = next(outcome.failure for outcome in outcomes if outcome.failure is not None)
    found = (
        f"session {sessions} of run '{pending.run}' is no longer known, so nobody can tell whether its"
        f" {pending.rows} rows were appended ({failure}). Look whether they are in the table, then"
    )
    if pending.paired:
        found = (
            f"a session of run '{pending.run}' ({sessions}) was refused, so a part of its {pending.rows} rows may"
            f" be missing ({failure}). Take those that were appended out of the table, or append the others, then"
        )
    return DestinationError(
        f"{what}: {found} set in the control table '{table.target.sibling(table.settings.control_table)}'"
        f" applied_batch to {pending.upto} if they are in the table, or leave it at {pending.after} if they are"
        f" not, and pending to '' in either case"
    )
