"""Recorded commits: made, and after a crash finished by whoever holds the lease next.

A commit is recorded with everything it needs (session, streams, batch) before it is asked for. If its answer is lost,
or the process dies, asking again settles it: a session is committed once, however often that is asked. Only a session
that the service no longer knows leaves a question. For `upsert` it does not matter, the batch is written again and
gives the same rows. For `insert` a person has to look, because both answers (not there, there twice) would be wrong.
"""

from __future__ import annotations

import time

from upsert_platform.errors import DestinationError
from upsert_platform.maxcompute.compaction import count_commits
from upsert_platform.maxcompute.connection import ServiceError, explain, may_pass
from upsert_platform.maxcompute.control import Pending
from upsert_platform.maxcompute.lease import ControlLease
from upsert_platform.maxcompute.maxstorage import MaxStorage, WriteSession, is_committed, is_gone
from upsert_platform.maxcompute.settings import MaxComputeTable

MAXSTORAGE = "maxstorage"


def commit_recorded(lease: ControlLease, storage: MaxStorage, table: MaxComputeTable) -> str | None:
    """Makes the recorded commit happen and records that it did.

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
    settings = table.settings
    what = f"commit of batch {pending.upto} to {table.target}"
    try:
        storage.commit(
            WriteSession(pending.session),
            pending.streams,
            retries=settings.commit_retries,
            deadline=time.monotonic() + settings.commit_timeout,
        )
    except ServiceError as error:
        if not is_committed(error):
            return _without_commit(error, lease, storage, table, pending, what)
    lease.change(
        applied_batch=pending.upto,
        changelog_id=pending.changelog_id,
        table_id=pending.table_id,
        pending="",
        commits=count_commits(lease.record.commits, pending.partitions),
        committed_at=int(time.time() * 1000),
    )
    return None


def _without_commit(
    error: ServiceError, lease: ControlLease, storage: MaxStorage, table: MaxComputeTable, pending: Pending, what: str
) -> str:
    """Settles a commit that the service refused."""
    if may_pass(error) and not is_gone(error):
        explain(error, storage.connection, f"{what} (it stays recorded; the next run finishes it)")
    if table.upserts:
        if not is_gone(error):
            _drop(storage, pending)
        lease.change(pending="")
        return str(error)
    if is_gone(error):
        raise DestinationError(
            f"{what}: session {pending.session} of run '{pending.run}' is no longer known, so nobody can tell whether"
            f" its {pending.rows} rows were appended ({error}). Look whether they are in the table, then set in the"
            f" control table '{settings_of(table)}' applied_batch to {pending.upto} if they are, or leave it at"
            f" {pending.after} if they are not, and pending to '' in either case"
        )
    _drop(storage, pending)
    lease.change(pending="")
    return str(error)


def settings_of(table: MaxComputeTable) -> str:
    """Name of the control table of a destination."""
    return str(table.target.sibling(table.settings.control_table))


def _drop(storage: MaxStorage, pending: Pending) -> None:
    """Aborts a session whose commit was refused; one that is gone already needs nothing.

    Raises:
        DestinationError: the session may still be committed by a process that was cut off.
        EndpointError: no answer.
    """
    try:
        storage.abort(WriteSession(pending.session))
    except ServiceError as error:
        if not is_gone(error):
            explain(error, storage.connection, f"aborting session {pending.session}")
