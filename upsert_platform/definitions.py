"""The Dagster code location: the project named by UPSERT_PLATFORM_PROJECT, or the demo that ships with the package."""

from __future__ import annotations

import dagster as dg


def _load() -> dg.Definitions:
    from upsert_platform.graph.build import build_definitions, default_platform

    platform = default_platform()
    # What is wrong is told when the code location is loaded, not by the first run.
    return build_definitions(platform.binding().project, platform=platform)


defs = _load()
