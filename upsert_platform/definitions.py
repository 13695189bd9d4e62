"""The Dagster code location: the project named by UPSERT_PLATFORM_PROJECT, or the demo that ships with the package."""

from __future__ import annotations

import dagster as dg

from upsert_platform.errors import DeclarationError


def _load() -> dg.Definitions:
    from upsert_platform.graph.binding import load
    from upsert_platform.graph.build import build_definitions

    project, problems = load()
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise DeclarationError(errors)
    return build_definitions(project)


defs = _load()
