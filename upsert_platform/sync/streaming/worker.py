"""A thread that takes one step again and again, and backs off by itself while the step fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from upsert_platform.core.error_catalogue import identified
from upsert_platform.core.errors import LeaseHeldError, StaleDeclarationError, UpsertPlatformError
from upsert_platform.core.spark_failures import known_job_failures
from upsert_platform.sync.streaming.steps import Step

FIRST_BACKOFF: Final = 0.5
"""Seconds after a failure; twice as long after each further one."""
MOST_BACKOFF: Final = 30.0
_BEHIND_LEASE: Final = 0.2
"""Seconds behind the end of another's lease at which it is tried for."""
_IDLE_SECONDS: Final = 2.0
"""A worker that nobody wakes looks by itself so often."""
_SOONER: Final = 0.6
"""Part of `poll` behind a turn with something to do: where records come all the time, the wait for a turn is most of
their delay, and topics with nothing new are not looked at more often for it."""


class Worker(threading.Thread):
    """Takes a step when it is woken, or when `poll` is over.

    Args:
        poll: seconds between the beginnings of two turns, fewer behind a turn with something to do; None for one that
            others wake.
        tell: is given a line when the step fails, when it succeeds again, and for each new warning of it.

    Attributes:
        is_stale: whether the step failed because of what was declared, and the declarations were not read again since.
    """

    def __init__(self, step: Step, *, poll: float | None, tell: Callable[[str], None]) -> None:
        numbers = step.measures.read()
        super().__init__(name=f"{numbers.kind} {step.measures.name}", daemon=True)
        self.step = step
        self.followers: list[Worker] = []
        self.died: BaseException | None = None
        self.is_stale = False
        self._poll = poll
        self._tell = tell
        self._woken = threading.Event()
        self._drains = threading.Event()
        self._failures = 0
        self._lease_ends: float | None = None
        self._warned: frozenset[str] = frozenset()

    def wake(self) -> None:
        """Something may be to do."""
        self._woken.set()

    def drain(self) -> None:
        """Takes the step until nothing is to do, and ends."""
        self._drains.set()
        self._woken.set()

    def run(self) -> None:
        """Takes the step until it is told to end."""
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - a defect: the loop raises it again, and the process ends
            self.died = error
        finally:
            self.step.reset()

    def _run(self) -> None:
        while True:
            self._woken.clear()
            began = time.monotonic()
            drains = self._drains.is_set()
            done = self._turn(drains=drains)
            if drains and not done:
                return
            if done and (drains or self._poll is None):
                continue
            self._wait(began, at_work=done)

    def _turn(self, *, drains: bool) -> bool:
        try:
            done = self.step.run(drains=drains)
            if done:
                for follower in self.followers:
                    follower.wake()
            self.step.keep_up()  # what was committed is on its way meanwhile
        except failures() as error:
            self._failures += 1
            self._lease_ends = error.ends if isinstance(error, LeaseHeldError) else None
            self.is_stale = isinstance(error, StaleDeclarationError)
            self.step.reset()  # first: a batch that it still counts ends the failure before it
            self.step.measures.add(retries=1)
            self.step.measures.set(error=identified(error))
            self._tell(f"{self.name} failed, trying again in {self._backoff():.1f} s: {identified(error)}")
            return False
        if self._failures:
            self._failures, self._lease_ends, self.is_stale = 0, None, False
            self.step.measures.set(error="")
            self._tell(f"{self.name} goes on")
        for told in self.step.warnings:
            if told not in self._warned:
                self._tell(f"{self.name}: {told}")
        self._warned = frozenset(self.step.warnings)
        return done

    def _backoff(self) -> float:
        """Seconds until the next try; a lease that somebody holds is tried for when it ends, if that is sooner."""
        backoff = float(min(MOST_BACKOFF, FIRST_BACKOFF * 2.0 ** (self._failures - 1)))
        if self._lease_ends is None:
            return backoff
        return min(backoff, max(self._lease_ends - time.time() + _BEHIND_LEASE, _BEHIND_LEASE))

    def _wait(self, began: float, *, at_work: bool) -> None:
        if self._failures:
            self._drains.wait(self._backoff())
        elif self._poll is not None:
            poll = self._poll * (_SOONER if at_work else 1)
            self._drains.wait(max(0.0, began + poll - time.monotonic()))
        else:
            self._woken.wait(_IDLE_SECONDS)


def failures() -> tuple[type[BaseException], ...]:
    """Return the errors that a retry may cure: the platform's own and those of the external systems."""
    from confluent_kafka import KafkaException
    from deltalake.exceptions import DeltaError

    return (UpsertPlatformError, OSError, KafkaException, DeltaError, *known_job_failures())
