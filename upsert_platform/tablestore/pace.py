"""How fast a task sends: the rhythm that throttling imposes, and the pauses between attempts."""

from __future__ import annotations

import random
import threading
import time

_FIRST_INTERVAL = 0.02
_LONGEST_INTERVAL = 1.0
_BUSY_SHARE = 0.5
"""From this share of throttled rows on a request counts as one for which the service was busy."""
_CLEAN_SHARE = 0.25
"""Up to this share the pace is right: what is left is sent again, later, and costs little."""
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0


class Pace:
    """The interval between requests of a task: doubled when the service is busy, shrunk when most rows get through."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._interval = 0.0
        self._next = 0.0
        self._slowed = 0.0

    @property
    def interval(self) -> float:
        """Seconds between two requests at present."""
        return self._interval

    def wait(self, stopped: threading.Event) -> float:
        """Waits for this thread's turn, or until stopped; returns when that was, for `slow_down`."""
        now = time.monotonic()
        if self._interval == 0.0:
            return now
        with self._lock:
            turn = max(now, self._next)
            self._next = turn + self._interval
        if turn > now:
            stopped.wait(turn - now)
        return turn

    def slow_down(self, sent: float) -> None:
        """The service was busy for a request sent then. Requests that were in flight together count once."""
        with self._lock:
            if sent >= self._slowed:
                self._interval = min(max(self._interval * 2, _FIRST_INTERVAL), _LONGEST_INTERVAL)
                self._slowed = time.monotonic()

    def adapt(self, sent: float, share: float) -> None:
        """This share of the rows of a request sent then was throttled.

        A few throttled rows in each request must not stretch the interval without end: most rows got through.
        """
        if share >= _BUSY_SHARE:
            self.slow_down(sent)
        elif share <= _CLEAN_SHARE:
            self.speed_up()

    def speed_up(self) -> None:
        """A request went through, whole or but for some rows."""
        if self._interval == 0.0:
            return
        with self._lock:
            self._interval = self._interval * 0.8 if self._interval > 0.001 else 0.0


def pause_before_attempt(attempt: int) -> float:
    """Seconds to wait before the given retry (from 1): exponential, half of it by chance."""
    longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1))
    return longest * (0.5 + 0.5 * random.random())
