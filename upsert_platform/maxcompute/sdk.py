"""PyODPS, loaded when it is first needed."""

from __future__ import annotations

import inspect
import sys
import threading

_ONE_AT_A_TIME = threading.Lock()


def load_sdk() -> None:
    """Import PyODPS without the lines of source of every caller.

    Three of its classes look at the whole stack while they are defined. By itself `inspect.stack` finds the source of
    each frame, for which it goes through all modules each time: in a process with two thousand of them that takes a
    third of the import. The lines are not used.
    """
    if "odps" in sys.modules:
        return
    with _ONE_AT_A_TIME:
        stack = inspect.stack
        inspect.stack = lambda context=0: stack(0)
        try:
            import odps  # noqa: F401
        finally:
            inspect.stack = stack
