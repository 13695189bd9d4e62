"""Keeps Python's garbage collector from looking at many objects that are alive, none of them in a cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collections_off(*, lasting: bool = False) -> Iterator[None]:
    """Collect nothing while the block runs: collections would take time, and find nothing.

    Args:
        lasting: what the block made lives as long as the process, and is never looked at afterwards either.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if lasting:
            gc.freeze()
        if collects:
            gc.enable()
