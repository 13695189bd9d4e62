"""What becomes of a recorded commit is judged by codes and by the session's own status (sections 2.4, 4.5)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from upsert_platform.core.errors import DestinationError, EndpointError
from upsert_platform.maxcompute.choices import WriteApi
from upsert_platform.maxcompute.committing import Committing
from upsert_platform.maxcompute.control import Pending
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.lease import ControlLease
from upsert_platform.maxcompute.recovery import commit_recorded
from upsert_platform.maxcompute.tunnel_writer import TunnelTaskWriter
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.fault_proxy import Fault, FaultProxy, fault_proxy
from upsert_platform_tests.maxcompute.frames import stored
from upsert_platform_tests.maxcompute.sending import batch, open_job, open_tunnel_job, send

pytestmark = pytest.mark.whole_runs

Opened = Callable[..., MaxComputeDestination]
COMMITS = {"insert": "TableCommitWriteSession", "upsert": "TableCommitWriteSession", "tunnel": "POST upserts"}
CONFLICT = json.dumps(
    {"Code": "TransactionConflict", "Message": "the transaction conflicts with one that committed after it began"}
).encode()
every_way = pytest.mark.parametrize("way", ["insert", "upsert", "tunnel"])


@pytest.fixture
def proxy(maxcompute: ServerHandle) -> Iterator[FaultProxy]:
    with fault_proxy(maxcompute) as opened:
        yield opened


@dataclass(frozen=True)
class Recorded:
    """A recorded commit, and who may make it."""

    destination: MaxComputeDestination
    lease: ControlLease
    pending: Pending

    @property
    def committing(self) -> Committing:
        return self.destination.committing(WriteApi(self.pending.api))

    def settle(self) -> str | None:
        return commit_recorded(self.lease, self.committing, self.destination.table)

    def stored(self, server: ServerHandle) -> list[Any]:
        return stored(server, self.destination.table)


@contextmanager
def recorded(opened: Opened, proxy: FaultProxy, way: str, **options: str) -> Iterator[Recorded]:
    """A row that was sent, and its commit recorded, under a lease."""
    api = WriteApi.TUNNEL if way == "tunnel" else WriteApi.MAXSTORAGE
    key = () if way == "insert" else ("id",)
    options = {"odps_tunnel_end_point": proxy.endpoint, "write_api": api.value, **options}
    destination = opened(key=key, **options)
    table = destination.table
    with destination.lease(owner="run", duration=timedelta(seconds=60)) as lease:
        if api is WriteApi.TUNNEL:
            job, _ = open_tunnel_job(table)
            with closing(TunnelTaskWriter(job)) as writer:
                writer.add(batch(table, [("U", (1, "a"))]))
                writer.finish()
            session, streams, table_id = job.sessions[0][1].session_id, (), ""
        else:
            stream_job, _, table_id = open_job(table)
            send(stream_job, [batch(table, [("U", (1, "a"))])])
            session, streams = stream_job.session.session_id, (("0", 1),)
        pending = Pending(api.value, (("", session),), streams, 0, 1, "changelog-1", "run", 1, table_id)
        lease.change(pending=pending.to_text())
        yield Recorded(destination, lease, pending)


@every_way
def test_a_conflict_that_tells_of_another_commit_is_not_this_commit(
    maxcompute: ServerHandle, opened: Opened, proxy: FaultProxy, way: str
) -> None:
    with recorded(opened, proxy, way) as commit:
        proxy.faults.append(Fault(COMMITS[way], status=409, body=CONFLICT))
        reason = commit.settle()
        assert reason is not None
        assert "committed after it began" in reason
        assert (commit.lease.record.applied_batch, commit.lease.record.pending) == (0, "")
        assert commit.committing._status(commit.pending, 0) == "aborted"
        assert commit.stored(maxcompute) == []


@every_way
def test_a_refusal_of_what_is_committed_counts_as_committed(
    maxcompute: ServerHandle, opened: Opened, proxy: FaultProxy, way: str
) -> None:
    with recorded(opened, proxy, way) as commit:
        proxy.faults.append(Fault(COMMITS[way], status=409, reached=True, code="SessionStatusConflict"))
        assert commit.settle() is None
        assert commit.lease.record.applied_batch == 1
        assert commit.stored(maxcompute) == [(1, "a")]


@every_way
def test_an_aborted_session_was_not_committed_and_is_written_again(
    maxcompute: ServerHandle, opened: Opened, proxy: FaultProxy, way: str
) -> None:
    with recorded(opened, proxy, way) as commit:
        commit.committing.drop(commit.pending)
    assert commit.destination.state().applied_batch == 0
    assert commit.destination._control.read().pending == ""
    assert commit.stored(maxcompute) == []


def test_an_expired_session_was_not_committed_and_is_written_again(
    maxcompute: ServerHandle, opened: Opened, proxy: FaultProxy
) -> None:
    with recorded(opened, proxy, "insert") as commit:
        maxcompute.faults({"operation": "maxstorage.TableCommitWriteSession", "action": "expire"})
        try:
            assert commit.settle() is not None
        finally:
            maxcompute.faults()
        assert (commit.lease.record.applied_batch, commit.lease.record.pending) == (0, "")


def test_a_service_that_tells_no_status_is_asked_by_a_person_for_insert(opened: Opened, proxy: FaultProxy) -> None:
    with recorded(opened, proxy, "insert") as commit:
        proxy.faults.append(Fault("TableCommitWriteSession", status=409, body=CONFLICT))
        proxy.faults.append(Fault("TableGetWriteSession", times=2, status=200, body=b'{"Streams": {"0": 1}}'))
        with pytest.raises(DestinationError, match="nobody can tell"):
            commit.settle()
        assert commit.lease.record.pending != ""


@every_way
def test_a_page_that_a_gateway_answers_with_200_is_no_commit(
    maxcompute: ServerHandle, opened: Opened, proxy: FaultProxy, way: str
) -> None:
    with recorded(opened, proxy, way, upsert_commit_max__retries="0") as commit:
        proxy.faults.append(Fault(COMMITS[way], status=200, body=b"<html>sign in</html>"))
        with pytest.raises(EndpointError, match="the next run finishes it"):
            commit.settle()
        assert commit.stored(maxcompute) == []
        assert commit.settle() is None
        assert commit.stored(maxcompute) == [(1, "a")]


@every_way
def test_a_commit_is_waited_for_until_its_timeout_and_no_longer(opened: Opened, proxy: FaultProxy, way: str) -> None:
    options = {"upsert_commit_timeout": "1", "upsert_commit_max__retries": "9"}
    with recorded(opened, proxy, way, **options) as commit:
        proxy.faults.append(Fault(COMMITS[way], delay=10))
        started = time.monotonic()
        with pytest.raises(EndpointError, match="the next run finishes it"):
            commit.settle()
        assert time.monotonic() - started < 8


@every_way
def test_a_commit_may_take_longer_than_another_request(opened: Opened, proxy: FaultProxy, way: str) -> None:
    options = {"request_timeout": "1 s", "upsert_commit_timeout": "30", "upsert_commit_max__retries": "0"}
    with recorded(opened, proxy, way, **options) as commit:
        proxy.faults.append(Fault(COMMITS[way], delay=2))
        assert commit.settle() is None
        assert proxy.actions.count(COMMITS[way]) == (2 if way == "tunnel" else 1)  # a tunnel's session is POSTed too
