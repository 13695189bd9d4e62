"""A lease over a record that is changed by compare-and-set: answers that are lost, others that change it too."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from upsert_platform.core.errors import EndpointError, LeaseHeldError
from upsert_platform.writing.lease import RenewedLease, Tenure
from upsert_platform_tests.writing.in_memory import Place

MINUTE = timedelta(minutes=1)


def lease_of(place: Place, owner: str, duration: timedelta = MINUTE) -> RenewedLease:
    return RenewedLease(place, "table 'users'", owner=owner, duration=duration)


class Disturbed(Place):
    """The next change gets no answer, before or after it happened; or another one comes in between."""

    fault = ""

    def swap(self, old: Tenure, new: Tenure, **values: Any) -> bool:
        fault, self.fault = self.fault, ""
        if fault == "lost":
            raise EndpointError("no answer")
        if fault == "between":
            self.lease = Tenure(self.lease.token, self.lease.expires + 1, self.lease.holder, self.lease.epoch)
        done = super().swap(old, new, **values)
        if fault == "answer lost":
            raise EndpointError("no answer")
        return done


@pytest.mark.parametrize("fault", ["lost", "answer lost"])
def test_a_renewal_without_an_answer_costs_no_later_change(fault: str) -> None:
    place = Disturbed()
    with lease_of(place, "me") as lease:
        place.fault = fault
        with pytest.raises(EndpointError):
            lease._renew()
        lease.change(applied_batch=3)
        assert (place.state.applied_batch, place.lease.holder) == (3, "me")
    assert not place.lease.held


def test_a_change_that_meets_another_one_of_the_record_is_made_after_it() -> None:
    place = Disturbed()
    with lease_of(place, "me") as lease:
        place.fault = "between"
        lease.change(applied_batch=3)
        assert place.state.applied_batch == 3


def test_one_who_takes_a_record_that_another_changes_meanwhile_looks_again() -> None:
    place = Disturbed()
    place.fault = "between"
    place.lease = Tenure("dead", 1.0, "dead", 4)
    with lease_of(place, "me") as lease:
        assert (lease.epoch, place.lease.holder) == (5, "me")


def test_of_many_who_come_at_once_one_has_it() -> None:
    place, held, refused = Place(), list[RenewedLease](), list[str]()
    start = threading.Barrier(8)

    def take(number: int) -> None:
        lease = lease_of(place, f"run {number}")
        start.wait()
        try:
            lease.take()
            held.append(lease)
        except LeaseHeldError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(held), len(refused)) == (1, 7)
    assert all(f"'{place.lease.holder}'" in told for told in refused)
    assert place.lease.epoch == held[0].epoch == 1


def test_one_whose_lease_was_taken_over_changes_nothing() -> None:
    place = Place()
    late = lease_of(place, "late")
    late.take()
    place.lease = Tenure(place.lease.token, 1.0, "late", 1)  # as if its renewals had not come for long
    with lease_of(place, "next") as lease:
        with pytest.raises(LeaseHeldError, match="'next' holds it now"):
            late.change(applied_batch=9)
        lease.change(applied_batch=2)
        late.give_back()
        assert place.lease.holder == "next"
    assert place.state.applied_batch == 2
