"""The sensor `new_offsets`: requests a sync when there is something to do and no run is at it.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import Final

import dagster as dg

from upsert_platform.core.error_catalogue import shown
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.model import Project
from upsert_platform.core.platform_options import platform_settings
from upsert_platform.core.unreachable import waiting_once
from upsert_platform.graph.affected import Affected, following, written
from upsert_platform.graph.component_settings import SensorSettings
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


def new_offsets_sensor(
    project: Project,
    job: Job,
    names: AssetKeys = AS_DECLARED,
    *,
    within: Collection[dg.AssetKey] | None = None,
    settings: SensorSettings | None = None,
) -> dg.SensorDefinition:
    """Requests a sync when a topic has offsets that the lake has not, and none is on its way.

    A request names what follows from those topics, with the checks of a sync: nothing else is planned, so nothing else
    is materialised. Where no topic has new offsets nothing is requested, and no event is written.

    ``sync.min-records`` and ``sync.max-wait`` of a table that is read say when its records are worth a run. A table
    that failed is left out until its ``sync.retry-after`` has passed, twice as long after each further failure; the
    others go on. Then it is asked for by itself, with its query: it needs its changelogs alone, so it catches up even
    while a topic cannot be reached.

    Args:
        within: assets that it may request; all of the project if left out.
        settings: its name, its interval and its status by default.
    """
    settings = settings or SensorSettings()

    def is_meant(key: dg.AssetKey) -> bool:
        return within is None or key in within

    sources = {
        table.name: platform_settings(table) for table in project.sources() if is_meant(names.changelog_key(table.name))
    }
    targets = {
        name: platform_settings(project.tables[name])
        for name in _targets(project)
        if is_meant(names.destination_key(name))
    }
    steps = {
        step: name
        for name in targets
        for step in (names.destination_key(name).to_python_identifier(), names.op_name("check", name))
    }

    def request(part: Affected, **tags: str) -> dg.RunRequest:
        return dg.RunRequest(
            tags=tags,
            asset_selection=[key for key in part.assets(names) if is_meant(key)],
            asset_check_keys=[key for key in part.checks(names) if is_meant(key.asset_key)],
        )

    @dg.sensor(
        name=settings.name or names.named("new_offsets"),
        job=job,
        minimum_interval_seconds=settings.interval_seconds,
        default_status=dg.DefaultSensorStatus[settings.default_status.upper()],
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
                    unread.setdefault(shown(error), []).append(name)
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
        retried = [name for name in state.failing if name in targets and name not in resting]
        if due:
            part = following(project, due, without=resting)
            behind = written(project, [*part.targets, *retried])
            wanted = replace(behind, sources=part.sources)
            tags = {"upsert/lag": str(sum(lags[name] for name in part.sources if name in lags))}
            return dg.SensorResult(run_requests=[request(wanted, **tags)], cursor=state.text())
        if retried or (not state.failing and _is_worth_a_retry(runs, names.named(SYNC))):
            part = written(project, retried or targets)
            return dg.SensorResult(run_requests=[request(part)], cursor=state.text())
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
    """Return the run that is in progress, or None."""
    for name in jobs:
        for run in (record.dagster_run for record in runs.records(name, limit=_MOST_ACTIVE, statuses=_ACTIVE)):
            if is_alive(runs.instance, run):
                host = run.tags.get(HOST_TAG)
                where = f"{run.run_id}{f' on {host}' if host else ''}"
                return f"a run of job '{name}' is queued or running: {where}"
    return None


def _is_worth_a_retry(runs: OwnRuns, job: str) -> bool:
    """Return whether the last sync failed, or was killed, a while ago: a longer one with every failure in a row."""
    records = runs.records(job, limit=_COUNTED_FAILURES)
    failed = list(takewhile(lambda record: record.dagster_run.status not in _SETTLED, records))
    if not failed:
        return False
    ended = failed[0].end_time or failed[0].start_time or 0.0
    return time.time() - ended >= RETRY_SECONDS * 2.0 ** (len(failed) - 1)
