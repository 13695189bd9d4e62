"""The Dagster code location: the project named by UPSERT_PLATFORM_PROJECT, or the demo that ships with the package."""

from __future__ import annotations

import dagster as dg

from upsert_platform.core.collections_off import collections_off


def _load() -> dg.Definitions:
    """Return the definitions, which live as long as the process."""
    with collections_off(lasting=True):
        from upsert_platform.graph.build import default_platform, definitions_of

        return definitions_of(default_platform())


defs = _load()
