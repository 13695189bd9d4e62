"""The guard of writing tasks: when it reads the control record, when it stops; clocks that are set in between."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from upsert_platform.core.errors import EndpointError, LeaseHeldError
from upsert_platform.writing.lease import LeaseGuard, Tenure, Terms


class Clock:
    """Wall and monotonic clock of a worker, and the record that it reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.steady = 1_000.0, 5.0
        self.reads = 0
        self.tenure = Tenure("7", 1_030.0, "me")
        self.fails = False
        monkeypatch.setattr(time, "time", lambda: self.wall)
        monkeypatch.setattr(time, "monotonic", lambda: self.steady)

    def guard(self, *, longest: float = 10) -> LeaseGuard:
        """Of a lease of 30 s that was renewed just now."""

        def read() -> Tenure:
            self.reads += 1
            if self.fails:
                raise EndpointError("no answer")
            return self.tenure

        return LeaseGuard(Terms("table 'users'", "7", 1_030.0, 30.0), read, longest=longest)

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def renew(self) -> None:
        self.tenure = replace(self.tenure, expires=self.wall + 30)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_task_reads_the_lease_again_once_in_some_renewals(clock: Clock) -> None:
    """As many looks as blocks, over five minutes under a lease of 30 s that is renewed every 7.5 s."""
    guard = clock.guard()
    for step in range(3_000):
        if step % 75 == 0:
            clock.renew()
        guard.check()
        clock.pass_(0.1)
    assert 300 / 30 <= clock.reads <= 300 / 7.5


def test_requests_end_before_the_lease_does(clock: Clock) -> None:
    guard = clock.guard()
    while True:
        try:
            allowed = guard.time_for_request()
        except LeaseHeldError as error:
            assert "was not renewed" in str(error)
            break
        assert clock.wall + allowed < 1_030.0 - 3  # what is left is for clocks that differ
        clock.pass_(0.5)
    assert clock.wall == pytest.approx(1_020.0, abs=0.5)
    assert clock.guard(longest=2).time_for_request is not None
    assert Clock.guard(clock, longest=2)._request == 2


@pytest.mark.parametrize("tenure", [Tenure(), Tenure("8", 2_000.0, "other")])
def test_a_task_stops_when_its_lease_was_lost(clock: Clock, tenure: Tenure) -> None:
    guard = clock.guard()
    clock.tenure = tenure
    clock.pass_(16)
    with pytest.raises(LeaseHeldError, match="'other'" if tenure.holder else "nobody"):
        guard.check()


def test_a_task_that_begins_after_the_end_it_was_told_asks_for_the_renewed_one(clock: Clock) -> None:
    clock.pass_(40)
    clock.renew()
    guard = clock.guard()
    guard.check()
    clock.pass_(21)
    with pytest.raises(LeaseHeldError, match="was not renewed"):
        guard.check()


def test_a_record_that_cannot_be_read_is_asked_for_again_until_the_margin(clock: Clock) -> None:
    guard = clock.guard()
    clock.fails = True
    clock.pass_(16)
    guard.check()
    guard.check()
    assert clock.reads == 1  # not for every block
    clock.pass_(2)
    clock.fails = False
    clock.renew()
    guard.check()
    clock.fails = True
    clock.pass_(21)
    with pytest.raises(LeaseHeldError, match="was not renewed"):
        guard.check()


@pytest.mark.parametrize("step", [-3_600.0, 3_600.0])
def test_a_clock_that_is_set_neither_prolongs_nor_ends_a_lease(clock: Clock, step: float) -> None:
    guard = clock.guard()
    clock.wall += step
    guard.check()
    clock.pass_(14)
    guard.check()
    clock.fails = True
    clock.pass_(7)
    with pytest.raises(LeaseHeldError):
        guard.check()
