"""Jobs that are made of ops: the shell that they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from upsert_platform.graph import console


def job_of(
    name: str, *steps: dg.OpDefinition, description: str, config: Mapping[str, Any] | None = None
) -> dg.JobDefinition:
    """A job that takes its steps one after another, in one process, with the console of a run.

    Args:
        config: step to its configuration in a launch that gives none; the launchpad shows it.
    """
    given = {**console.RUN_CONFIG, **({"ops": dict(config)} if config else {})}

    @dg.job(name=name, executor_def=dg.in_process_executor, config=given, description=description)
    def job() -> None:
        for step in steps:
            step()

    return job
