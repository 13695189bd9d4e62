"""The sending rate of a task: adaptation to throttling, and pauses between attempts."""

from __future__ import annotations

import random
import threading
import time

_FIRST_INTERVAL = 0.02
_LONGEST_INTERVAL = 1.0
_BUSY_SHARE = 0.5
"""From this share of throttled rows on the service counts as busy."""
_CLEAN_SHARE = 0.25
"""Up to this share the pace is right: what is left is sent again, later, and costs little."""
_MEMORY_ROWS = 400
"""Rows over which shares are taken. A retry of one row says little about the service, a whole request much."""
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class Pace:
    """The interval between requests of a task: doubled while most rows are throttled, shrunk when most get through."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._interval = 0.0
        self._next = 0.0
        self._slowed = 0.0
        self._share = 0.0

    @property
    def interval(self) -> float:
        """Seconds between two requests at present."""
        return self._interval

    def wait(self, stopped: threading.Event) -> float:
        """Waits for this thread's turn, or until stopped; returns when that was, for `answered`."""
        now = time.monotonic()
        if self._interval == 0.0:
            return now
        with self._lock:
            turn = max(now, self._next)
            self._next = turn + self._interval
        if turn > now:
            stopped.wait(turn - now)
        return turn

    def answered(self, sent: float, *, rows: int, throttled: int) -> None:
        """A request of so many rows that was sent then was answered, and so many of them were throttled.

        A few throttled rows in each request must not stretch the interval without end: most rows got through. Requests
        that were in flight together slow down once.
        """
        if not throttled and self._share == 0.0 and self._interval == 0.0:
            return
        with self._lock:
            weight = rows / (rows + _MEMORY_ROWS)
            self._share += weight * (throttled / rows - self._share)
            if self._share < 0.001:
                self._share = 0.0
            if throttled and self._share >= _BUSY_SHARE:
                if sent >= self._slowed:
                    self._interval = min(max(self._interval * 2, _FIRST_INTERVAL), _LONGEST_INTERVAL)
                    self._slowed = time.monotonic()
            elif self._share <= _CLEAN_SHARE:
                self._interval = self._interval * 0.8 if self._interval > 0.001 else 0.0


def pause_before_attempt(attempt: int) -> float:
    """Seconds to wait before the given retry (from 1): exponential, half of it by chance."""
    longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1))
    return longest * (0.5 + 0.5 * random.random())
