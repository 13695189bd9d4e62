"""A worker whose step fails: when it tries again, and what it says of itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from upsert_platform.changelog.lake import Lake
from upsert_platform.core.errors import LeaseHeldError, ReplicationError, StaleDeclarationError, UpsertPlatformError
from upsert_platform.sync.streaming import worker as worker_module
from upsert_platform.sync.streaming.loop import StreamLoop, StreamSettings, _Running
from upsert_platform.sync.streaming.measures import Measures
from upsert_platform.sync.streaming.steps import Step
from upsert_platform.sync.streaming.worker import Worker

LEASE_SECONDS = 1.0


class FailingStep(Step):
    """Fails until an event is set.

    Attributes:
        tries: moments of `time.time`.
    """

    def __init__(self, error: UpsertPlatformError) -> None:
        self.measures = Measures("users", "table")
        self.error = error
        self.holds = threading.Event()
        self.tries: list[float] = []

    def run(self, *, drains: bool) -> bool:
        self.tries.append(time.time())
        if not self.holds.is_set() and not drains:
            raise self.error
        return False


@contextmanager
def working(step: Step) -> Iterator[tuple[Worker, list[str]]]:
    told: list[str] = []
    worker = Worker(step, poll=0.05, tell=told.append)
    worker.start()
    try:
        yield worker, told
    finally:
        worker.drain()
        worker.join(10)
        assert not worker.is_alive()


def wait_until(step: FailingStep, tries: int, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while len(step.tries) < tries:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_lease_of_another_is_tried_for_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the table has been failing by then."""
    monkeypatch.setattr(worker_module, "FIRST_BACKOFF", 25.0)
    ends = time.time() + LEASE_SECONDS
    step = FailingStep(LeaseHeldError("users is being written by 'a dead run'", ends=ends))
    with working(step) as (worker, told):
        wait_until(step, 2, seconds=10)
        step.holds.set()
        assert 0 < step.tries[1] - ends < 2
        wait_until(step, 3, seconds=10)
        assert not worker.is_stale
    assert step.measures.read().error == ""
    assert told[-1].endswith("goes on")


def test_other_failures_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "FIRST_BACKOFF", 25.0)
    for error in (LeaseHeldError("the lease was lost"), ReplicationError("the log is gone")):
        step = FailingStep(error)
        with working(step) as (_, told):
            wait_until(step, 1, seconds=10)
            time.sleep(0.5)
            assert len(step.tries) == 1
            assert "trying again in 25.0 s" in told[0]


def test_a_declaration_that_is_not_right_any_more_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "FIRST_BACKOFF", 0.05)
    step = FailingStep(StaleDeclarationError("table shop.t has new columns"))
    with working(step) as (worker, _):
        wait_until(step, 2, seconds=10)
        assert worker.is_stale
        step.holds.set()
        wait_until(step, len(step.tries) + 2, seconds=10)
        assert not worker.is_stale


def test_the_loop_asks_for_the_declarations_once_for_each_that_is_not_right_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "FIRST_BACKOFF", 60.0)
    loop = StreamLoop(Lake(str(tmp_path)), StreamSettings(), open_session=pytest.fail, tell=pytest.fail)
    assert not loop.takes_stale()
    step = FailingStep(StaleDeclarationError("table shop.t has new columns"))
    with working(step) as (worker, _):
        loop._running["table", "users"] = _Running(worker, None)
        deadline = time.monotonic() + 10
        while not worker.is_stale:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert loop.takes_stale()
        assert not loop.takes_stale()


class OneBatch(Step):
    """Has one batch to commit, and upkeep behind it."""

    def __init__(self, happened: list[str]) -> None:
        self.measures = Measures("users", "changelog")
        self.happened = happened
        self.is_kept_up = threading.Event()

    def run(self, *, drains: bool) -> bool:
        if "commit" in self.happened:
            return False
        self.happened.append("commit")
        return True

    def keep_up(self) -> None:
        if "upkeep" not in self.happened:
            self.happened.append("upkeep")
        self.is_kept_up.set()


def test_whoever_reads_a_batch_is_woken_before_the_upkeep_behind_it() -> None:
    happened: list[str] = []
    step = OneBatch(happened)
    worker = Worker(step, poll=0.05, tell=happened.append)

    class Reader(Worker):
        def wake(self) -> None:
            happened.append("woken")

    worker.followers = [Reader(FailingStep(UpsertPlatformError("")), poll=None, tell=happened.append)]
    worker.start()
    assert step.is_kept_up.wait(10)
    worker.drain()
    worker.join(10)
    assert happened[:3] == ["commit", "woken", "upkeep"]


def test_upkeep_that_fails_is_told_and_tried_again() -> None:
    class Failing(OneBatch):
        def keep_up(self) -> None:
            if len(failed) < 1:
                failed.append(1)
                raise ReplicationError("the folder is full")
            self.is_kept_up.set()

    failed: list[int] = []
    step = Failing([])
    with working(step) as (_, told):
        assert step.is_kept_up.wait(10)
        assert any("the folder is full" in line for line in told)
