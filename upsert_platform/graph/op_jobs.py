"""Jobs that are made of ops: the shell that they share."""

from __future__ import annotations

import dagster as dg

from upsert_platform.graph import console


def job_of(name: str, *steps: dg.OpDefinition, description: str) -> dg.JobDefinition:
    """A job that takes its steps one after another, in one process, with the console of a run."""

    @dg.job(name=name, executor_def=dg.in_process_executor, config=dict(console.RUN_CONFIG), description=description)
    def job() -> None:
        for step in steps:
            step()

    return job
