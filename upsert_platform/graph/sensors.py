"""The sensor `new_offsets`: requests a sync when there is something to do and no run is at it.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Final

import dagster as dg

from upsert_platform.errors import UpsertPlatformError
from upsert_platform.graph.drain_quarantine import DRAIN
from upsert_platform.graph.jobs import SYNC, Job
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.own_runs import OwnRuns
from upsert_platform.graph.processes import HOST_TAG, is_alive
from upsert_platform.graph.rebuild import REBUILD
from upsert_platform.graph.reconcile import RECONCILE
from upsert_platform.graph.replay import REPLAY
from upsert_platform.graph.resources import PlatformResource
from upsert_platform.graph.sensor_state import SensorState
from upsert_platform.graph.stream import STREAM
from upsert_platform.model import Project
from upsert_platform.platform_options import platform_settings
from upsert_platform.unreachable import waiting_once

RETRY_SECONDS: Final = 300.0
"""How long after a sync that failed its tables are tried again; twice as long after each further failure."""
_COUNTED_FAILURES: Final = 8
_MENDING: Final = (RECONCILE, REBUILD, REPLAY, DRAIN)
"""Jobs that repair tables."""
_MOST_ACTIVE: Final = 100
_NAMED: Final = 5
"""Tables that a message names of those that share a trouble."""
_SETTLED: Final = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.CANCELED)
_ACTIVE: Final = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]


def new_offsets_sensor(project: Project, job: Job, names: AssetKeys = AS_DECLARED) -> dg.SensorDefinition:
    """Requests a sync when a topic has offsets that the lake has not, and none is on its way.

    ``sync.min-records`` and ``sync.max-wait`` of a table that is read say when its records are worth a run. A table
    that failed is left out until its ``sync.retry-after`` has passed, twice as long after each further failure; the
    others go on. Then it is asked for by itself, with its query: it needs its changelogs alone, so it catches up even
    while a topic cannot be reached.
    """
    sources = {table.name: platform_settings(table) for table in project.sources()}
    targets = {name: platform_settings(project.tables[name]) for name in _targets(project)}
    steps = {
        step: name
        for name in targets
        for step in (names.destination_key(name).to_python_identifier(), names.op_name("check", name))
    }
    changelogs = [names.changelog_key(name) for name in sources]
    queries = [names.query_key(query.name) for query in project.queries()]

    def selection(tables: Mapping[str, object], *, read: bool) -> list[dg.AssetKey]:
        return [*(changelogs if read else ()), *queries, *(names.destination_key(name) for name in tables)]

    @dg.sensor(
        name=names.named("new_offsets"),
        job=job,
        minimum_interval_seconds=30,
        description="Requests a sync when a topic has new offsets and no run of 'sync' or 'stream' is queued or"
        " running; tables that failed are left out, and asked for by themselves some minutes later.",
    )
    @names.bound
    def new_offsets(context: dg.SensorEvaluationContext, platform: PlatformResource) -> dg.SensorResult | dg.SkipReason:
        runs = OwnRuns.of(context, platform.root)
        busy = _busy(runs, [names.named(SYNC), names.named(STREAM)])
        if busy:
            return dg.SkipReason(busy)
        state = SensorState.read(context.cursor)
        state.learn(runs, job=names.named(SYNC), mended_by=[names.named(name) for name in _MENDING], steps=steps)
        lags: dict[str, int] = {}
        unread: dict[str, list[str]] = {}
        with waiting_once():
            for name in sources:
                try:
                    lags[name] = platform.changelog_hop(name, run="sensor").plan().lag
                except UpsertPlatformError as error:
                    unread.setdefault(str(error), []).append(name)
        troubles = [f"{_some(tables)}: {text}" for text, tables in unread.items()]
        for trouble in troubles:
            context.log.warning(trouble)
        state.wait(lags)
        now = time.time()
        resting = {
            name: until
            for name, failures in state.failing.items()
            if name in targets and (until := failures.until(targets[name].retry_after)) > now
        }
        due = [
            name
            for name, lag in lags.items()
            if lag >= sources[name].min_records or (lag and now - state.since[name] >= sources[name].max_wait_seconds)
        ]
        # No run keys: one that was used is remembered for ever, and a failed run could not be asked for again.
        if due:
            awake = {name: None for name in targets if name not in resting}
            return dg.SensorResult(
                run_requests=[
                    dg.RunRequest(
                        tags={"upsert/lag": str(sum(lags.values()))},
                        asset_selection=selection(awake, read=True) if resting else None,
                    )
                ],
                cursor=state.text(),
            )
        retried = {name: None for name in state.failing if name in targets and name not in resting}
        if retried or (not state.failing and _is_worth_a_retry(runs, names.named(SYNC))):
            request = dg.RunRequest(asset_selection=selection(retried or targets, read=False))
            return dg.SensorResult(run_requests=[request], cursor=state.text())
        waiting = [f"{name}: {lag} records wait for more" for name, lag in lags.items() if lag]
        rests = [f"{name} failed, and is tried again at {_clock(until)}" for name, until in resting.items()]
        told = "; ".join([*troubles, *waiting, *rests]) or "no new offsets"
        return dg.SensorResult(skip_reason=dg.SkipReason(told), cursor=state.text())

    return new_offsets


def _targets(project: Project) -> list[str]:
    return [name for name in dict.fromkeys(insert.target for insert in project.inserts) if name in project.tables]


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _clock(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%H:%M:%S UTC")


def _busy(runs: OwnRuns, jobs: Sequence[str]) -> str | None:
    """Which run is at it; None if none is."""
    for name in jobs:
        for run in (record.dagster_run for record in runs.records(name, limit=_MOST_ACTIVE, statuses=_ACTIVE)):
            if is_alive(runs.instance, run):
                host = run.tags.get(HOST_TAG)
                where = f"{run.run_id}{f' on {host}' if host else ''}"
                return f"a run of job '{name}' is queued or running: {where}"
    return None


def _is_worth_a_retry(runs: OwnRuns, job: str) -> bool:
    """Whether the last sync failed, or was killed, a while ago: a longer one with every failure in a row."""
    records = runs.records(job, limit=_COUNTED_FAILURES)
    failed = list(takewhile(lambda record: record.dagster_run.status not in _SETTLED, records))
    if not failed:
        return False
    ended = failed[0].end_time or failed[0].start_time or 0.0
    return time.time() - ended >= RETRY_SECONDS * 2.0 ** (len(failed) - 1)
