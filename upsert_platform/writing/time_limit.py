"""Limit how long requests of a thread may take together, through every client that they pass."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_deadline: ContextVar[float | None] = ContextVar("deadline of requests", default=None)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Requests of this thread inside the block end within so many seconds. An outer limit that ends earlier holds."""
    deadline = time.monotonic() + seconds
    outer = _deadline.get()
    before = _deadline.set(deadline if outer is None else min(deadline, outer))
    try:
        yield
    finally:
        _deadline.reset(before)


def time_left() -> float:
    """Return the seconds until the limit of this thread: not positive when it has passed, infinite without one."""
    deadline = _deadline.get()
    return float("inf") if deadline is None else deadline - time.monotonic()


@contextmanager
def ending(end: Callable[[], None]) -> Iterator[None]:
    """Calls a function, in a thread of its own, when the limit of this thread passes inside the block.

    For clients without a timeout: the function breaks the connection that the block waits for.
    """
    left = time_left()
    if left == float("inf"):
        yield
        return
    timer = threading.Timer(max(left, 0.01), end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
