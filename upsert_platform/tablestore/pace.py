"""How fast a task sends: the rhythm that throttling imposes, and the pauses between attempts."""

from __future__ import annotations

import random
import threading
import time

_FIRST_INTERVAL = 0.02
_LONGEST_INTERVAL = 2.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0


class Pace:
    """The interval between requests of a task: doubled when the service is busy, shrunk with every clean answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._interval = 0.0
        self._next = 0.0

    @property
    def interval(self) -> float:
        """Seconds between two requests at present."""
        return self._interval

    def wait(self, stopped: threading.Event) -> None:
        """Waits for this thread's turn, or until stopped."""
        if self._interval == 0.0:
            return
        with self._lock:
            now = time.monotonic()
            turn = max(now, self._next)
            self._next = turn + self._interval
        if turn > now:
            stopped.wait(turn - now)

    def slow_down(self) -> None:
        """The service is busy."""
        with self._lock:
            self._interval = min(max(self._interval * 2, _FIRST_INTERVAL), _LONGEST_INTERVAL)

    def speed_up(self) -> None:
        """A request went through whole."""
        if self._interval == 0.0:
            return
        with self._lock:
            self._interval = self._interval * 0.9 if self._interval > 0.001 else 0.0


def pause_before_attempt(attempt: int) -> float:
    """Seconds to wait before the given retry (from 1): exponential, half of it by chance."""
    longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1))
    return longest * (0.5 + 0.5 * random.random())
