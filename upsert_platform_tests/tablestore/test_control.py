"""The control record: conditional changes that survive lost answers, and the lease (design D6, traps section 6)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr

from upsert_platform.core.destination import BatchSpan, Verdict
from upsert_platform.core.errors import DestinationError, LeaseHeldError
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.control import ControlTable
from upsert_platform.tablestore.failures import NoAnswerError
from upsert_platform.tablestore.transport import Endpoint
from upsert_platform.writing.lease import RenewedLease, Tenure
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.tablestore.declared import table_on

SPAN = BatchSpan(after=0, upto=3, changelog_id="log", run="run 1")
MINUTE = timedelta(minutes=1)


def hold_lease(control: ControlTable, *, owner: str, duration: timedelta) -> RenewedLease:
    return RenewedLease(control, f"table '{control.table_name}'", owner=owner, duration=duration)


def _control(server: ServerHandle, **options: str) -> ControlTable:
    table = table_on(server, {"id": "INT"}, ["id"], options)
    return ControlTable(Client.of(table.settings), table.settings, table.table_name)


@pytest.fixture
def control(server: ServerHandle) -> Iterator[ControlTable]:
    made = _control(server)
    yield made
    made._client.close()


def test_the_control_table_is_created_by_the_first_lease(control: ControlTable) -> None:
    assert control.read() is None
    with hold_lease(control, owner="first", duration=MINUTE) as lease:
        stored = control.tenure()
        assert (stored.epoch, stored.holder, lease.epoch) == (1, "first", 1)
        assert 0 < (lease.deadline - datetime.now(UTC)).total_seconds() < 45 < stored.expires - time.time() < 61
        lease.check()
    assert control.tenure() == Tenure(epoch=1)


def test_a_second_writer_is_told_who_holds_it_and_until_when(control: ControlTable) -> None:
    with hold_lease(control, owner="run 7", duration=MINUTE) as lease:
        lease.check()
        with (
            pytest.raises(
                LeaseHeldError, match=rf"written by 'run 7', whose lease ends at {datetime.now(UTC):%Y-%m-%d} .* UTC"
            ),
            hold_lease(control, owner="run 8", duration=MINUTE),
        ):
            pytest.fail("two writers hold the table")
    with hold_lease(control, owner="run 8", duration=MINUTE) as lease:
        assert lease.epoch == 2


def test_a_dead_holders_lease_expires(control: ControlTable) -> None:
    dead = hold_lease(control, owner="dead", duration=timedelta(seconds=1.5))
    dead.take()
    with pytest.raises(LeaseHeldError, match="'dead'"), hold_lease(control, owner="next", duration=MINUTE):
        pytest.fail("the lease was not respected")
    time.sleep(1.6)
    with hold_lease(control, owner="next", duration=MINUTE) as lease:
        assert lease.epoch == 2
        with pytest.raises(LeaseHeldError, match="ended"):
            control.record_applied(dead, SPAN, created=5)
        with pytest.raises(LeaseHeldError, match="'next' holds it now"):
            dead._prolong({"applied_batch": 3})  # its clock stood still
        record = control.read()
        assert record is not None
        assert record.applied_batch == 0
        control.record_applied(lease, SPAN, created=5)
    record = control.read()
    assert record is not None
    assert (record.applied_batch, record.changelog_id, record.table_id) == (3, "log", 5)


def test_a_lease_is_renewed_while_it_is_held(control: ControlTable) -> None:
    with hold_lease(control, owner="long", duration=timedelta(seconds=0.6)) as lease:
        first = lease.deadline
        time.sleep(1.2)
        lease.check()
        assert lease.deadline > first
        assert control.tenure().held


def test_a_holder_notices_that_its_lease_was_taken(control: ControlTable) -> None:
    with hold_lease(control, owner="slow", duration=timedelta(seconds=0.6)) as lease:
        thief = Tenure("t", time.time() + 60, "thief", 2)
        while not control.swap(control.tenure(), thief):
            pass  # it was renewed in between
        time.sleep(0.5)
        with pytest.raises(LeaseHeldError, match="'thief'"):
            lease.check()
        with pytest.raises(LeaseHeldError, match="'thief'"):
            control.record_applied(lease, SPAN, created=5)
    assert control.tenure().holder == "thief"


def test_only_one_of_two_takes_the_record_as_read(control: ControlTable) -> None:
    with hold_lease(control, owner="once", duration=MINUTE):
        pass
    found = control.tenure()
    assert control.swap(found, Tenure("a", time.time() + 60, "a", 2))
    assert not control.swap(found, Tenure("b", time.time() + 60, "b", 2))
    assert control.tenure().token == "a"


def test_the_first_holder_of_a_table_that_was_checked_before(control: ControlTable) -> None:
    verdict = Verdict(0, True, True, datetime(2026, 1, 2, tzinfo=UTC))
    control.record_verdict(verdict)
    with hold_lease(control, owner="first", duration=MINUTE) as lease:
        assert lease.epoch == 1
        record = control.read()
        assert record is not None
        assert (record.tenure.holder, record.verdict) == ("first", verdict)


def test_values_of_another_change_in_the_same_millisecond_are_not_taken_for_ones_own(control: ControlTable) -> None:
    """A lost answer is looked up by what was to be stored, the values included."""
    mine = Tenure("t", 2_000_000_000.0, "me", 1)
    assert control.swap(Tenure(), mine, applied_batch=1)
    assert not control.swap(Tenure("t", 1.0, "me", 1), mine, applied_batch=2)
    assert control.swap(mine, mine, applied_batch=2)


@pytest.mark.parametrize("fault", ["cut-after", "cut-before", "error:code=OTSTimeout", "bad-gateway"])
def test_lost_answers_are_looked_up(disturbed: ServerHandle, fault: str) -> None:
    control = _control(disturbed)
    with hold_lease(control, owner="creates the table", duration=MINUTE):
        pass
    rule = f"{fault}{',' if ':' in fault else ':'}operation=UpdateRow,times=2"
    disturbed.faults(rule)
    with hold_lease(control, owner="me", duration=MINUTE) as lease:
        assert lease.epoch == 2
        disturbed.faults(rule)
        control.record_applied(lease, SPAN, created=5)
        disturbed.faults(rule)
    record = control.read()
    assert record is not None
    assert (record.tenure, record.applied_batch, record.changelog_id) == (Tenure(epoch=2), 3, "log")


def test_a_control_table_that_stays_silent_ends_the_write(disturbed: ServerHandle) -> None:
    control = _control(disturbed, **{"retry.deadline": "500 ms"})
    with hold_lease(control, owner="me", duration=MINUTE) as lease:
        disturbed.faults("error:code=OTSServerUnavailable,operation=UpdateRow")
        with pytest.raises(DestinationError, match=r"OTSServerUnavailable.*given up after"):
            control.record_applied(lease, SPAN, created=5)
        disturbed.faults()


def test_an_instance_that_does_not_answer_is_given_up_soon_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes go on for minutes; whoever only asks how far a table is may be waiting at a console."""
    monkeypatch.setattr("upsert_platform.tablestore.client.ASK_SECONDS", 0.2)
    nobody = Endpoint("http://127.0.0.1:9", "shop", SecretStr("id"), SecretStr("secret"))
    client = Client(nobody, timeout=timedelta(seconds=1), retry_deadline=timedelta(minutes=5))
    began = time.monotonic()
    with pytest.raises(NoAnswerError, match=r"'shop' at http://127.0.0.1:9: .*; check 'tablestore.endpoint'"):
        client.ask("list_table")
    assert time.monotonic() - began < 5


def test_verdicts_are_kept_without_a_lease(control: ControlTable) -> None:
    verdict = Verdict(4, False, True, datetime(2026, 1, 2, tzinfo=UTC), "missing 1: é")
    control.record_verdict(verdict)
    record = control.read()
    assert record is not None
    assert record.verdict == verdict
    control.forget_position()
    record = control.read()
    assert record is None or record.verdict is None


def test_a_record_of_an_earlier_version_is_read_and_taken_over(control: ControlTable) -> None:
    """The cells as they lie in the table: of one who gave the lease back, and then of one who died."""
    from tablestore.metadata import Condition, Row, RowExistenceExpectation

    def put(*cells: tuple[str, int | str]) -> None:
        row = Row([("destination", control.table_name)], {"PUT": list(cells)})
        control._client.repeat("update_row", control._name, row, Condition(RowExistenceExpectation.IGNORE))

    control._create()
    verdict = '{"batch": 3, "passed": true, "complete": false, "at": "2026-11-21T10:00:00+00:00", "detail": ""}'
    put(("applied_batch", 3), ("changelog_id", "log"), ("run", "r"), ("table_created_us", 5), ("verdict", verdict))
    put(("epoch", 7), ("lease_expires_ms", 0))
    record = control.read()
    assert record is not None
    assert (record.applied_batch, record.changelog_id, record.table_id, record.tenure) == (3, "log", 5, Tenure(epoch=7))
    assert record.verdict == Verdict(3, True, False, datetime(2026, 11, 21, 10, tzinfo=UTC))
    with hold_lease(control, owner="new", duration=MINUTE) as lease:
        assert lease.epoch == 8
    now = int(time.time() * 1000)
    put(("epoch", 9), ("holder", "old"), ("lease_token", "t"), ("lease_expires_ms", now + 600_000))
    with pytest.raises(LeaseHeldError, match="'old'"), hold_lease(control, owner="new", duration=MINUTE):
        pytest.fail("the lease was not respected")
    put(("lease_expires_ms", now - 1))
    with hold_lease(control, owner="new", duration=MINUTE) as lease:
        assert lease.epoch == 10
        found = control.read()
        assert found is not None
        assert (found.applied_batch, found.verdict) == (3, record.verdict)
