"""The control record: compare-and-set by SQL, leases on top of it (design decision D6, invariant 5)."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.core.destination import Verdict
from upsert_platform.core.errors import EndpointError, LeaseHeldError
from upsert_platform.maxcompute.client import Client
from upsert_platform.maxcompute.connection import Connection, ServiceError
from upsert_platform.maxcompute.control import ControlRecord, ControlTable, Pending, destination_key
from upsert_platform.maxcompute.lease import ControlLease
from upsert_platform.maxcompute.maxstorage import MaxStorage
from upsert_platform.maxcompute.names import TableName, sql_text
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.fault_proxy import Fault, fault_proxy
from upsert_platform_tests.maxcompute.sending import let_lease_end

pytestmark = pytest.mark.whole_runs

LONG = timedelta(seconds=60)


@pytest.fixture
def control(client: Client, maxcompute: ServerHandle) -> ControlTable:
    name = TableName(maxcompute.project, None, f"control_{uuid.uuid4().hex[:12]}", maxcompute.project)
    return ControlTable(client, name, key="t", label="maxcompute://p/t")


@pytest.fixture
def storage(control: ControlTable, client: Client) -> Iterator[MaxStorage]:
    """MaxStorage of the control table."""
    opened = MaxStorage(client.connection, client.tunnel_endpoint(), control._name)
    yield opened
    opened.close()


def lease(control: ControlTable, owner: str, duration: timedelta = LONG) -> ControlLease:
    return ControlLease(control, owner=owner, duration=duration, what="table 't'")


def test_before_the_first_write_there_is_no_record(control: ControlTable) -> None:
    assert control.read() == ControlRecord()
    first = control.ensure()
    assert first.revision == 1
    assert control.ensure() == first


def test_maxstorage_reads_what_sql_does(control: ControlTable, client: Client, storage: MaxStorage) -> None:
    other = ControlTable(client, control._name, key="t", label="maxcompute://p/t", storage=lambda: storage)
    assert other.read() == ControlRecord()
    other.ensure()
    changed = other.swap(other.read(), replace(other.read(), applied_batch=7, pending="p'\\行"))
    assert changed == other.read() == control.read()
    assert ControlTable(client, control._name, key="u", label="u", storage=lambda: storage).read() == ControlRecord()


@pytest.mark.parametrize("status", [404, 500, 0])
def test_without_maxstorage_the_record_is_read_by_sql(
    control: ControlTable, client: Client, maxcompute: ServerHandle, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    present = control.ensure()
    with fault_proxy(maxcompute) as proxy:
        proxy.faults.append(Fault("TableCreateReadSession", times=99, status=status))
        connection = replace(client.connection, retries=0)
        with closing(MaxStorage(connection, proxy.endpoint, control._name)) as storage:
            other = ControlTable(client, control._name, key="t", label="t", storage=lambda: storage)
            assert [other.read(), other.read()] == [present, present]
            assert proxy.actions == ["TableCreateReadSession"]
    assert "is read by SQL" in caplog.text


def test_every_field_is_kept(control: ControlTable) -> None:
    pending = Pending("maxstorage", (("ds=1", "s'1\\"),), (("0", 1), ("1", 65_537)), 3, 4, "c", "run", 12, "table")
    verdict = Verdict(4, False, True, datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), "it's 'quoted' \\ 行\n")
    wanted = replace(
        control.ensure(), epoch=7, holder="h", token="t", lease_expires=1, applied_batch=4, changelog_id="c",
        commit="run 1/0a", commits='{"ds=1":9}', committed_at=11, table_id="x", pending=pending.to_text(),
    ).with_verdict(verdict)  # fmt: skip
    control.swap(control.read(), wanted)
    found = control.read()
    assert found == replace(wanted, revision=2, stamp=found.stamp, label="maxcompute://p/t")
    assert found.pending_commit == pending
    assert found.last_verdict == verdict


def test_a_change_made_from_an_old_record_is_refused(control: ControlTable) -> None:
    old = control.ensure()
    assert control.swap(old, replace(old, applied_batch=1)) is not None
    assert control.swap(old, replace(old, applied_batch=2)) is None
    assert control.read().applied_batch == 1


@pytest.mark.parametrize("ran", [True, False])
def test_a_statement_that_a_service_no_longer_knows_is_tried_again(
    control: ControlTable, client: Client, monkeypatch: pytest.MonkeyPatch, ran: bool
) -> None:
    """As one does that was ended and started again: the first INSERT, UPDATE and SELECT are lost with their answers."""
    finish = client._finish
    forgotten: list[str] = []

    def lost() -> NoReturn:
        text = "NoSuchObject: RequestId: 1\nODPS-0410021:Instance not found - 20260101a"
        raise ServiceError(text, status=404, code="NoSuchObject", sure=True)

    def forget(statement: str, hints: dict[str, str], timeout: float) -> Any:
        kind = statement.split()[0]
        first = kind in ("INSERT", "UPDATE", "SELECT") and kind not in forgotten
        done = finish(statement, hints, timeout) if ran or not first else None
        if first:
            forgotten.append(kind)
            return client._about(lost, statement)
        return done

    old = control.ensure()
    monkeypatch.setattr(client, "_finish", forget)
    assert control.read() == old
    changed = control.swap(old, replace(old, applied_batch=3))
    assert changed is not None
    assert changed == control.read()
    assert (changed.revision, changed.applied_batch) == (2, 3)
    other = ControlTable(client, control._name, key="u", label="u")
    assert other.ensure().revision == 1
    assert sorted(forgotten) == ["INSERT", "SELECT", "UPDATE"]


def test_of_many_changes_made_at_once_exactly_one_wins(
    control: ControlTable, make_table: Callable[..., MaxComputeTable]
) -> None:
    old = control.ensure()
    connection = Connection.of(make_table().settings)
    results: list[ControlRecord | None] = []

    def change(number: int) -> None:
        client = Client(connection)
        mine = ControlTable(client, control._name, key="t", label="x")
        results.append(mine.swap(old, replace(old, applied_batch=number)))
        client.close()

    threads = [threading.Thread(target=change, args=(number,)) for number in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [result for result in results if result is not None]
    assert len(results) == 6
    assert len(winners) == 1
    assert control.read() == winners[0]


def test_destinations_do_not_share_a_record(control: ControlTable, client: Client) -> None:
    other = ControlTable(client, control._name, key="u", label="maxcompute://p/u")
    mine, theirs = control.ensure(), other.ensure()
    control.swap(mine, replace(mine, applied_batch=5))
    assert other.read() == theirs


def test_static_partitions_of_a_table_are_destinations_of_their_own() -> None:
    name = TableName("p", None, "T", "p")
    keys = {destination_key(name, text) for text in ("", "ds=1", "ds=2")}
    assert len(keys) == 3
    assert "t" in keys


def test_invariant_5_the_second_writer_is_told_who_holds_the_destination(control: ControlTable) -> None:
    with lease(control, "run-1"), pytest.raises(LeaseHeldError, match=r"written by 'run-1'.* UTC"):
        lease(control, "run-2").take()
    with lease(control, "run-3") as third:
        assert third.epoch == 2


def test_invariant_5_a_dead_holders_lease_ends(control: ControlTable) -> None:
    dead = lease(control, "dead")
    dead.take()
    let_lease_end(control)
    with lease(control, "next") as taken:
        assert taken.epoch == 2
        with pytest.raises(LeaseHeldError, match="lost"):
            dead.change(applied_batch=9)
        assert control.read().applied_batch == 0
        taken.change(applied_batch=1)
    assert control.read().applied_batch == 1


def test_a_frozen_holder_notices_its_deadline(control: ControlTable) -> None:
    frozen = lease(control, "frozen", timedelta(seconds=3))
    frozen.take()
    frozen.check()
    remaining = (frozen.deadline - datetime.now(UTC)).total_seconds()
    assert 0 < remaining < 3
    time.sleep(remaining + 0.05)
    with pytest.raises(LeaseHeldError, match="could not be renewed"):
        frozen.check()


def test_a_lease_is_renewed_while_it_is_open(control: ControlTable) -> None:
    with lease(control, "run", timedelta(seconds=3)) as held:
        first = control.read().lease_expires
        until = time.monotonic() + 3
        while control.read().lease_expires == first and time.monotonic() < until:
            time.sleep(0.05)
        held.check()
        assert control.read().lease_expires > first


def test_a_verdict_stored_meanwhile_does_not_cost_the_lease(control: ControlTable) -> None:
    with lease(control, "run") as held:
        found = control.read()
        verdict = Verdict(1, True, False, datetime.now(UTC))
        control.swap(found, found.with_verdict(verdict))
        held.change(applied_batch=3)
        stored = control.read()
    assert (stored.applied_batch, stored.last_verdict) == (3, verdict)


def test_what_can_wait_is_written_with_the_next_change_or_the_end(control: ControlTable) -> None:
    with lease(control, "run") as held:
        held.change_later(applied_batch=3, pending="")
        assert (held.record.applied_batch, control.read().applied_batch) == (3, 0)
        held.change(commits="{}")
        assert (control.read().applied_batch, control.read().commits) == (3, "{}")
        held.change_later(applied_batch=4)
        found = control.read()
        control.swap(found, found.with_verdict(Verdict(3, True, False, datetime.now(UTC))))
    stored = control.read()
    assert (stored.applied_batch, stored.token, stored.last_verdict is not None) == (4, "", True)


def test_a_closed_lease_is_given_back(control: ControlTable) -> None:
    with lease(control, "run"):
        pass
    record = control.read()
    assert (record.holder, record.token, record.tenure.held) == ("", "", False)


def test_without_an_answer_there_is_no_lease(make_table: Callable[..., MaxComputeTable]) -> None:
    table = make_table(odps_end_point="http://127.0.0.1:9/api", upsert_writer_max__retries="0")
    nowhere = ControlTable(Client(Connection.of(table.settings)), table.target, key="t", label="t")
    with pytest.raises(EndpointError):
        lease(nowhere, "run").take()


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\\'\"\n\r`"), max_size=30))
@settings(max_examples=30, deadline=None)
def test_any_text_is_a_sql_literal(client_text: str) -> None:
    literal = sql_text(client_text)
    assert literal.startswith("'")
    unescaped = literal[1:-1].replace("\\\\", "\0").replace("\\'", "'").replace("\\n", "\n").replace("\\r", "\r")
    assert unescaped.replace("\0", "\\") == client_text
