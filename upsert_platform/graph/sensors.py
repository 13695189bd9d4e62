"""The sensor `new_offsets`: requests a sync when there is something to do and no run is at it.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

import time
from itertools import takewhile
from typing import Final

import dagster as dg

from upsert_platform.errors import UpsertPlatformError
from upsert_platform.graph import keys
from upsert_platform.graph.jobs import SYNC, Job
from upsert_platform.graph.processes import HOST_TAG, is_alive
from upsert_platform.graph.resources import PlatformResource
from upsert_platform.graph.stream import STREAM
from upsert_platform.model import Project

RETRY_SECONDS: Final = 300.0
"""How long after a sync that failed its tables are tried again; twice as long after each further failure."""
_COUNTED_FAILURES: Final = 8
_SETTLED: Final = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.CANCELED)
_ACTIVE: Final = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]


def new_offsets_sensor(project: Project, job: Job) -> dg.SensorDefinition:
    """Requests a sync when a topic has offsets that the lake has not, and none is on its way.

    With nothing new in the topics, but a failed sync, the tables are asked for by themselves some minutes later: they
    need their changelogs alone, so those that the run left behind catch up even while a topic cannot be reached.
    """
    sources = [table.name for table in project.sources()]
    queries = [keys.query_key(query.name) for query in project.queries()]
    tables = [*queries, *(keys.destination_key(insert.target) for insert in project.inserts)]

    @dg.sensor(
        name="new_offsets",
        job=job,
        minimum_interval_seconds=30,
        description="Requests a sync when a topic has new offsets and no run of 'sync' or 'stream' is queued or"
        " running; and one of the tables alone some minutes after a sync that failed.",
    )
    def new_offsets(context: dg.SensorEvaluationContext, platform: PlatformResource) -> dg.SensorResult | dg.SkipReason:
        for name in (SYNC, STREAM):
            for run in context.instance.get_runs(dg.RunsFilter(job_name=name, statuses=_ACTIVE)):
                if is_alive(context.instance, run):
                    host = run.tags.get(HOST_TAG)
                    where = f"{run.run_id}{f' on {host}' if host else ''}"
                    return dg.SkipReason(f"a run of job '{name}' is queued or running: {where}")
        lag = 0
        troubles: list[str] = []
        for name in sources:
            try:
                lag += platform.changelog_hop(name, run="sensor").plan().lag
            except UpsertPlatformError as error:
                troubles.append(f"{name}: {error}")
        # No run keys: one that was used is remembered for ever, and a failed run could not be asked for again.
        if lag:
            return dg.SensorResult(run_requests=[dg.RunRequest(tags={"upsert/lag": str(lag)})])
        if _is_worth_a_retry(context.instance):
            return dg.SensorResult(run_requests=[dg.RunRequest(asset_selection=tables)])
        return dg.SkipReason("; ".join(troubles) or "no new offsets")

    return new_offsets


def _is_worth_a_retry(instance: dg.DagsterInstance) -> bool:
    """Whether the last sync failed, or was killed, a while ago: a longer one with every failure in a row."""
    records = instance.get_run_records(dg.RunsFilter(job_name=SYNC), limit=_COUNTED_FAILURES)
    failed = list(takewhile(lambda record: record.dagster_run.status not in _SETTLED, records))
    if not failed:
        return False
    ended = failed[0].end_time or failed[0].start_time or 0.0
    return time.time() - ended >= RETRY_SECONDS * 2.0 ** (len(failed) - 1)
