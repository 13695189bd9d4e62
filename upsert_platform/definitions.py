"""The Dagster code location: the project named by UPSERT_PLATFORM_PROJECT, or the demo that ships with the package."""

from __future__ import annotations

import gc

import dagster as dg


def _load() -> dg.Definitions:
    """Return the definitions. They live as long as the process: the garbage collector need not look at them."""
    collects = gc.isenabled()
    gc.disable()
    try:
        from upsert_platform.graph.build import default_platform, definitions_of

        return definitions_of(default_platform())
    finally:
        gc.freeze()
        if collects:
            gc.enable()


defs = _load()
