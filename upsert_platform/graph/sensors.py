"""The sensor `new_offsets`: requests a sync when there is something to do and no run is at it.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from datetime import UTC, datetime
from threading import Lock
from typing import Final

import dagster as dg

from upsert_platform.core.error_catalogue import shown
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.model import Project
from upsert_platform.core.platform_options import PlatformSettings, platform_settings
from upsert_platform.core.redaction import redact
from upsert_platform.core.unreachable import waiting_once
from upsert_platform.graph.affected import Affected, written
from upsert_platform.graph.component_settings import SensorSettings
from upsert_platform.graph.drain_quarantine import DRAIN
from upsert_platform.graph.failing_topics import FailingTopics
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
from upsert_platform.graph.tables_behind import Answers, TablesBehind
from upsert_platform.sync.changelog_hop import ChangelogPlan
from upsert_platform.sync.standing import quarantine_stop

_MENDING: Final = (RECONCILE, REBUILD, REPLAY, DRAIN)
"""Jobs that repair tables."""
_MOST_ACTIVE: Final = 100
_SIDE_BY_SIDE: Final = 8
"""Sources that are asked at a time."""
_NAMED: Final = 5
"""Tables that a message names of those that share a trouble."""
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
    """Requests a sync when a topic has offsets that the lake has not, or a table is behind it, and none is on its way.

    A request names what follows from those topics, with the checks of a sync: nothing else is planned, so nothing else
    is materialised. Where no topic has new offsets and no table is behind nothing is requested, and no event is
    written.

    ``sync.min-records`` and ``sync.max-wait`` of a table that is read say when its records are worth a run. A table
    that failed is left out until its ``sync.retry-after`` has passed, twice as long after each further failure; the
    others go on. Then it is asked for by itself, with its query: it needs its changelogs alone, so it catches up even
    while a topic cannot be reached, or its records cannot be read. A changelog that failed waits as long before its
    records are a reason again. A table that is behind its changelogs while their topics bring nothing is asked for, too
    (`TablesBehind`), again after the same times where a run does not change that.

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

    landing = {names.changelog_key(name).to_python_identifier(): name for name in sources}
    behind = TablesBehind(project, tuple(targets))

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
        description="Requests a sync when a topic has new offsets, or a table is behind its changelog, and no run of"
        " 'sync' or 'stream' is queued or running; tables that failed are left out, and asked for by themselves some"
        " minutes later.",
    )
    @names.bound
    def new_offsets(context: dg.SensorEvaluationContext, platform: PlatformResource) -> dg.SensorResult | dg.SkipReason:
        runs = OwnRuns.of(context, platform.root)
        busy = _busy(runs, [names.named(SYNC), names.named(STREAM)])
        if busy:
            return dg.SkipReason(busy)
        state = SensorState.read(context.cursor)
        state.learn(
            runs,
            job=names.named(SYNC),
            mended_by=[names.named(name) for name in _MENDING],
            steps=steps,
            landing=landing,
            others=[names.named(STREAM)],
        )
        now = time.time()
        resting, tried, unlanded = (
            {
                name: until
                for name, failures in known.items()
                if name in declared and (until := failures.until(declared[name].retry_after)) > now
            }
            for known, declared in ((state.failing, targets), (state.tried, targets), (state.unlanded, sources))
        )
        plans: dict[str, ChangelogPlan] = {}
        unread: dict[str, list[str]] = {}
        with waiting_once():
            for name, found in _planned(platform, sources).items():
                if isinstance(found, str):
                    unread.setdefault(found, []).append(name)
                else:
                    plans[name] = found
            heads = {name: plan.head for name, plan in plans.items()}
            stops = _stops(platform, project)
            repaired = _busy(runs, [names.named(name) for name in _MENDING])
            answers = Answers()
            if not repaired:
                again = state.tried.keys() - tried.keys()
                unasked = {*state.failing, *_stopped(project, stops)}
                answers = behind.ask(platform, heads, state, now=now, without=unasked, again=again)
        for text, tables in answers.unread.items():
            unread.setdefault(text, []).extend(tables)
        troubles = [f"{_some(tables)}: {text}" for text, tables in unread.items()]
        for trouble in troubles:
            context.log.warning(trouble)
        lags = {name: plan.lag for name, plan in plans.items()}
        state.wait(lags)
        due = [
            name
            for name, plan in plans.items()
            if name not in unlanded and _is_due(plan, sources[name], waited=now - state.since.get(name, now))
        ]
        alone = [name for name in targets if name in state.failing and name not in {*resting, *tried}]
        alone += [name for name in answers.behind if name not in tried]
        # A request of tables alone has no check of their changelogs, which would stop them.
        stopped = _stopped(project, stops.keys() - due)
        alone = [name for name in alone if name not in stopped]
        if alone:  # a changelog that may fail once more is asked for by itself: these tables would wait for it
            due = [name for name in due if name not in state.unlanded]
            stopped = _stopped(project, stops.keys() - due)
        state.request(alone)
        failing = FailingTopics(platform, project)
        part = failing.following(due, without={*resting, *stopped})
        # No run keys: one that was used is remembered for ever, and a failed run could not be asked for again.
        if part.sources:
            wanted = replace(written(project, [*part.targets, *alone]), sources=part.sources)
            tags = {"upsert/lag": str(sum(lags[name] for name in part.sources if name in lags))}
            return dg.SensorResult(run_requests=[request(wanted, **tags)], cursor=state.text())
        if alone:
            return dg.SensorResult(run_requests=[request(written(project, alone))], cursor=state.text())
        waiting = [
            f"{name}: {lag} records wait for more" for name, lag in lags.items() if lag and name not in failing.held
        ]
        waiting += [f"{name}: not read, {told}" for name, told in failing.held.items()]
        rests = [
            f"{name} failed, and is tried again at {_clock(until)}"
            for name, until in (*unlanded.items(), *resting.items())
        ]
        rests += [
            f"{name} is behind its changelog, and is tried again at {_clock(until)}"
            for name, until in tried.items()
            if name not in resting and name in state.tried
        ]
        rests += [
            f"{_some(tables)}: not written, {stops[name]}" for name, tables in _stopped_by(project, stops).items()
        ]
        repairs = [f"no table is asked: {repaired}"] if repaired else []
        told = "; ".join([*troubles, *waiting, *rests, *repairs]) or "no new offsets"
        return dg.SensorResult(skip_reason=dg.SkipReason(told), cursor=state.text())

    return new_offsets


def _planned(platform: PlatformResource, sources: Collection[str]) -> dict[str, ChangelogPlan | str]:
    """Return what is to be read of each source, or why that is not known; an endpoint that is silent holds none up."""
    opening = Lock()

    def plan(name: str) -> ChangelogPlan | str:
        try:
            with opening:
                hop = platform.changelog_hop(name, run="sensor")
            return hop.plan()
        except UpsertPlatformError as error:
            return shown(error)
        except Exception as error:  # noqa: BLE001 - of a library: what it leaves of one source is no reason to read no other
            return redact(f"it cannot be asked ({type(error).__name__}: {error})")

    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        asked = {name: pool.submit(copy_context().run, plan, name) for name in sources}
        return {name: answer.result() for name, answer in asked.items()}


def _stops(platform: PlatformResource, project: Project) -> dict[str, str]:
    """Return why nothing is written from changelogs, of those whose check of the quarantine blocks."""
    found = {}
    for table in project.sources():
        if not platform_settings(table).quarantine_blocking:
            continue
        try:
            hop = platform.changelog_hop(table.name, run="sensor")
            told = quarantine_stop(hop.source, hop.store)
        except UpsertPlatformError as error:  # what is not known to pass is not written either
            told = shown(error)
        if told is not None:
            found[table.name] = told
    return found


def _stopped_by(project: Project, changelogs: Collection[str]) -> dict[str, list[str]]:
    """Return the tables that are made of each of some changelogs, of those that have any."""
    made = {name: [insert.target for insert in project.inserts if name in insert.tables] for name in changelogs}
    return {name: tables for name, tables in made.items() if tables}


def _stopped(project: Project, changelogs: Collection[str]) -> set[str]:
    """Return the tables that are made of any of some changelogs."""
    return {name for tables in _stopped_by(project, changelogs).values() for name in tables}


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


def _is_due(plan: ChangelogPlan, settings: PlatformSettings, *, waited: float) -> bool:
    """Return whether a plan is worth a run: one that only fixes where reading begins is, before more records come."""
    if not plan.backlog:
        return False
    return not plan.lag or plan.lag >= settings.min_records or waited >= settings.max_wait_seconds
