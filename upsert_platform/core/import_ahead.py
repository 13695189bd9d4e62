"""Imports in the background, while a program waits for something else."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from contextlib import suppress


def import_ahead(modules: Sequence[str]) -> None:
    """Begin to import modules in a thread, in their order; whoever needs one that cannot be imported is told why."""

    def load() -> None:
        for name in modules:
            with suppress(Exception):
                importlib.import_module(name)

    threading.Thread(target=load, name="import-ahead", daemon=True).start()
