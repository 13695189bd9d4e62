"""After a crash at any point the next run neither loses nor doubles a batch (invariant 4, section 4.5)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from upsert_platform.core.errors import DestinationError, EndpointError, LeaseHeldError
from upsert_platform.maxcompute.choices import WriteApi
from upsert_platform.maxcompute.control import Pending
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.lease import ControlLease
from upsert_platform.maxcompute.recovery import commit_recorded
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.maxcompute.tunnel_writer import TunnelTaskWriter
from upsert_platform_tests.campaign import first_of
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.conftest import options_for
from upsert_platform_tests.maxcompute.fault_proxy import Fault, fault_proxy
from upsert_platform_tests.maxcompute.frames import stored
from upsert_platform_tests.maxcompute.sending import batch, let_lease_end, open_job, open_tunnel_job, send

pytestmark = pytest.mark.whole_runs

Opened = Callable[..., MaxComputeDestination]
MINUTE = timedelta(seconds=60)


def die_at(server: ServerHandle, destination: MaxComputeDestination, point: str, number: int, rows: list[Any]) -> None:
    """Runs a writer that dies, and lets its lease end."""
    table = destination.table
    options = options_for(server, table.target.table) | {"sink.operation": table.settings.operation.value}
    options["auto.create"] = "true"
    arguments = [json.dumps(options), point, str(number), json.dumps(rows)]
    command = [sys.executable, "-m", "upsert_platform_tests.maxcompute.dying_writer", *arguments]
    assert subprocess.run(command, timeout=120, check=False).returncode == 9
    let_lease_end(destination._control)


def record_commit(lease: ControlLease, table: MaxComputeTable, number: int, rows: list[Any]) -> None:
    """Sends rows and records their commit, as a writer does before it commits."""
    job, _, table_id = open_job(table)
    send(job, [batch(table, rows)])
    pending = Pending(
        "maxstorage",
        (("", job.session.session_id),),
        (("0", 1),),
        number - 1,
        number,
        "changelog-1",
        "run",
        len(rows),
        table_id,
    )
    lease.change(pending=pending.to_text())


@pytest.mark.parametrize(
    ("mode", "point", "applied"),
    [
        ("upsert", "sent", 0),
        ("upsert", "committed", 1),
        ("insert", "sent", 0),
        ("insert", "recorded", 1),
        ("insert", "committed", 1),
        ("insert", "applied", 1),
    ],
)
def test_invariant_4_a_killed_writers_batch_is_there_once_or_to_be_written(
    maxcompute: ServerHandle, opened: Opened, mode: str, point: str, applied: int
) -> None:
    destination = opened(key=["id"] if mode == "upsert" else [])
    die_at(maxcompute, destination, point, 1, [["U", [1, "a"]], ["U", [2, "b"]]])
    assert destination.state().applied_batch == applied
    assert stored(maxcompute, destination.table) == ([(1, "a"), (2, "b")] if applied else [])
    with destination.lease(owner="next", duration=MINUTE) as lease:
        assert lease.record.pending == ""
        assert lease.record.applied_batch == applied
    assert len(stored(maxcompute, destination.table)) == 2 * applied


def test_a_frozen_writer_that_wakes_changes_nothing(maxcompute: ServerHandle, opened: Opened) -> None:
    destination = opened()
    frozen = ControlLease(destination._control, owner="frozen", duration=MINUTE, what="t")
    frozen.take()
    record_commit(frozen, destination.table, 1, [("U", (1, "old"))])
    session = frozen.record.pending_commit
    assert session is not None
    let_lease_end(destination._control)
    with destination.lease(owner="next", duration=MINUTE) as lease:
        assert lease.record.applied_batch == 1
        record_commit(lease, destination.table, 2, [("U", (1, "new"))])
        assert commit_recorded(lease, destination.committing(WriteApi.MAXSTORAGE), destination.table) is None
    assert commit_recorded(frozen, destination.committing(WriteApi.MAXSTORAGE), destination.table) is None
    assert stored(maxcompute, destination.table) == [(1, "new")]
    with pytest.raises(LeaseHeldError):
        record_commit(frozen, destination.table, 2, [("U", (1, "old"))])
    frozen.give_back()
    assert stored(maxcompute, destination.table) == [(1, "new")]
    assert destination.state().applied_batch == 2


@pytest.mark.parametrize("status", first_of([500, 308, 0], every=3))
@pytest.mark.parametrize("reached", [False, True], ids=["lost", "answer-lost"])
def test_a_commit_whose_answer_is_lost_is_asked_for_again(
    maxcompute: ServerHandle, opened: Opened, status: int, reached: bool
) -> None:
    with fault_proxy(maxcompute) as proxy:
        destination = opened(key=[], odps_tunnel_end_point=proxy.endpoint)
        with destination.lease(owner="run", duration=MINUTE) as lease:
            record_commit(lease, destination.table, 1, [("U", (1, "a"))])
            proxy.faults.append(Fault("TableCommitWriteSession", times=2, status=status, reached=reached))
            assert commit_recorded(lease, destination.committing(WriteApi.MAXSTORAGE), destination.table) is None
            assert lease.record.applied_batch == 1
        assert stored(maxcompute, destination.table) == [(1, "a")]


@pytest.mark.parametrize("reached", [False, True], ids=["lost", "answer-lost"])
def test_a_commit_that_nobody_answers_is_finished_by_the_next_run(
    maxcompute: ServerHandle, opened: Opened, reached: bool
) -> None:
    with fault_proxy(maxcompute) as proxy:
        destination = opened(key=[], odps_tunnel_end_point=proxy.endpoint, upsert_commit_max__retries="1")
        with destination.lease(owner="run", duration=MINUTE) as lease:
            record_commit(lease, destination.table, 1, [("U", (1, "a"))])
            proxy.faults.append(Fault("TableCommitWriteSession", times=2, status=0, reached=reached))
            with pytest.raises(EndpointError, match="the next run finishes it"):
                commit_recorded(lease, destination.committing(WriteApi.MAXSTORAGE), destination.table)
        assert destination.state().applied_batch == 1
        assert stored(maxcompute, destination.table) == [(1, "a")]


@pytest.mark.parametrize("api", first_of([WriteApi.TUNNEL, WriteApi.MAXSTORAGE], every=2))
@pytest.mark.parametrize("committed", [False, True], ids=["before", "after"])
def test_a_server_that_restarts_around_a_commit_keeps_what_it_was_sent(
    maxcompute: ServerHandle, opened: Opened, committed: bool, api: WriteApi
) -> None:
    destination = opened(key=["id"] if api is WriteApi.TUNNEL else [], write_api=api.value)
    table, committing = destination.table, destination.committing(api)
    with destination.lease(owner="run", duration=MINUTE) as lease:
        if api is WriteApi.TUNNEL:
            job, _ = open_tunnel_job(table)
            with closing(TunnelTaskWriter(job)) as writer:
                writer.add(batch(table, [("U", (1, "a"))]))
                writer.finish()
            named = (("", job.sessions[0][1].session_id),)
            lease.change(pending=Pending("tunnel", named, (), 0, 1, "changelog-1", "run", 1).to_text())
        else:
            record_commit(lease, table, 1, [("U", (1, "a"))])
        pending = lease.record.pending_commit
        assert pending is not None
        if committed:
            committing.commit(pending, deadline=time.monotonic() + 60)
        maxcompute.restart()
        assert commit_recorded(lease, committing, table) is None
    assert stored(maxcompute, table) == [(1, "a")]
    assert destination.state().applied_batch == 1


def test_while_the_writer_lives_nobody_finishes_its_commit(maxcompute: ServerHandle, opened: Opened) -> None:
    destination = opened()
    with destination.lease(owner="run-1", duration=MINUTE) as lease:
        record_commit(lease, destination.table, 1, [("U", (1, "a"))])
        state = destination.state()
        assert (state.applied_batch, state.holder) == (0, "run-1")
        with pytest.raises(LeaseHeldError), destination.lease(owner="run-2", duration=MINUTE):
            raise AssertionError("two holders")
    assert stored(maxcompute, destination.table) == []


def test_104_a_session_that_is_gone_is_written_again_for_upsert(opened: Opened) -> None:
    destination = opened()
    with destination.lease(owner="run", duration=MINUTE) as lease:
        record_commit(lease, destination.table, 1, [("U", (1, "a"))])
        pending = lease.record.pending_commit
        assert pending is not None
        lease.change(pending=lease.record.pending.replace(pending.sessions[0][1], "no-such-session"))
    state = destination.state()
    assert state.applied_batch == 0
    assert destination._control.read().pending == ""


def test_104_a_session_that_is_gone_asks_a_person_for_insert(opened: Opened) -> None:
    destination = opened(key=[])
    with destination.lease(owner="run", duration=MINUTE) as lease:
        record_commit(lease, destination.table, 1, [("U", (1, "a"))])
        pending = lease.record.pending_commit
        assert pending is not None
        lease.change(pending=lease.record.pending.replace(pending.sessions[0][1], "no-such-session"))
    with pytest.raises(DestinationError, match=r"(?s)nobody can tell.*applied_batch to 1"):
        destination.state()
    assert destination._control.read().pending != ""


@pytest.mark.parametrize("key", [["id"], []], ids=["upsert", "insert"])
def test_20_a_table_made_anew_under_a_recorded_commit_is_written_again(
    maxcompute: ServerHandle, opened: Opened, key: list[str]
) -> None:
    destination = opened(key=key)
    with destination.lease(owner="run", duration=MINUTE) as lease:
        record_commit(lease, destination.table, 1, [("U", (1, "a"))])
    maxcompute.odps().delete_table(destination.table.target.table)
    destination.prepare()
    assert destination.state().applied_batch == 0
    assert stored(maxcompute, destination.table) == []
