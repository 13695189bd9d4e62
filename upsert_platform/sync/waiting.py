"""Lines for a wait: a step that says nothing for long looks like one that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

EVERY: Final = 10.0
"""Seconds from the beginning of a wait to its first line, and between two lines."""


@contextmanager
def told_while_waiting(tell: Callable[[str], None] | None, what: str, *, every: float = EVERY) -> Iterator[None]:
    """Report every few seconds, from a background thread, what is waited for and for how long.

    Args:
        tell: takes a line; nothing is told without it.
        what: is under way: ``topic 'orders': reading up to 5,000 records``.
        every: seconds.
    """
    if tell is None:
        yield
        return
    ended = threading.Event()
    started = time.monotonic()

    def watch() -> None:
        while not ended.wait(every):
            tell(f"{what}, for {time.monotonic() - started:.0f} s so far")

    thread = threading.Thread(target=watch, name="wait", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
