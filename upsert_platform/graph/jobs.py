"""Jobs and the sensor on new offsets.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

from collections.abc import Iterable
from typing import Any

import dagster as dg

from upsert_platform.errors import UpsertPlatformError
from upsert_platform.graph import console, keys
from upsert_platform.graph.resources import PlatformResource
from upsert_platform.model import Project

Job = Any
"""What `define_asset_job` returns; Dagster does not export its name."""
SYNC = "sync"
VERIFY = "verify"
_ACTIVE = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]


def sync_job(project: Project) -> Job:
    """Topics to changelogs to destinations, with their checks, in one process (one JVM)."""
    return dg.define_asset_job(
        SYNC,
        selection=dg.AssetSelection.assets(*_materialised(project)),
        executor_def=dg.in_process_executor,
        config=console.RUN_CONFIG,
        description="Brings every changelog up to its topics' ends, every table up to its changelog, and checks them.",
    )


def verify_job(project: Project) -> Job:
    """Compares every row of every destination; writes nothing but the verdict."""
    checks = [dg.AssetCheckKey(key, keys.CHECK_LAST_VALUE) for key in _destinations(project)]
    return dg.define_asset_job(
        VERIFY,
        selection=dg.AssetSelection.checks(*checks),
        executor_def=dg.in_process_executor,
        config=console.RUN_CONFIG,
        tags={keys.COMPLETE_TAG: "true"},
        description="Compares every row of every destination table with the last value per key of its topic.",
    )


def new_offsets_sensor(project: Project, job: Job) -> dg.SensorDefinition:
    """Requests a sync when a topic has offsets that the lake has not, and none is on its way."""
    tables = [table.name for table in project.sources()]

    @dg.sensor(
        name="new_offsets",
        job=job,
        minimum_interval_seconds=30,
        description="Requests a sync when a topic has new offsets and no sync is queued or running.",
    )
    def new_offsets(context: dg.SensorEvaluationContext, platform: PlatformResource) -> dg.SensorResult | dg.SkipReason:
        if context.instance.get_runs(dg.RunsFilter(job_name=SYNC, statuses=_ACTIVE), limit=1):
            return dg.SkipReason("a sync is queued or running")
        waiting: dict[str, int] = {}
        troubles: list[str] = []
        for name in tables:
            try:
                waiting[name] = platform.changelog_hop(name, run="sensor").plan().lag
            except UpsertPlatformError as error:
                troubles.append(f"{name}: {error}")
        if troubles and not any(waiting.values()):
            return dg.SkipReason("; ".join(troubles))
        behind = {name: lag for name, lag in waiting.items() if lag}
        if not behind:
            return dg.SkipReason("no new offsets")
        # No run key: one that was used is remembered for ever, and a failed run could not be asked for again.
        return dg.SensorResult(run_requests=[dg.RunRequest(tags={"upsert/lag": str(sum(behind.values()))})])

    return new_offsets


def _destinations(project: Project) -> Iterable[dg.AssetKey]:
    return [keys.destination_key(insert.target) for insert in project.inserts]


def _materialised(project: Project) -> list[dg.AssetKey]:
    return [*(keys.changelog_key(table.name) for table in project.sources()), *_destinations(project)]
