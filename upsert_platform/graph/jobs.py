"""The jobs `sync`, `ingest`, `verify`, `audit`, `prove`, `plan` and `watch`, and their schedules."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import dagster as dg

from upsert_platform.core.model import Project
from upsert_platform.core.platform_options import Severity, platform_settings
from upsert_platform.graph import console, keys
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.sync.connectors import stream_group
from upsert_platform.sync.freshness import FreshnessLimits

Job = Any
"""What `define_asset_job` returns; Dagster does not export its name."""
SYNC = "sync"
VERIFY = "verify"
INGEST = "ingest"
AUDIT = "audit"
PROVE = "prove"
PLAN = "plan"
WATCH = "watch"
SCHEDULES: Final = {
    VERIFY: ("weekly", "0 3 * * 0"),
    "compact": ("daily", "0 2 * * *"),
    WATCH: ("hourly", "7 * * * *"),
}
"""Job to how often, in words and as cron; UTC."""


def sync_job(project: Project, names: AssetKeys = AS_DECLARED, *, broken: Collection[dg.AssetKey] = ()) -> Job:
    """Topics to changelogs to queries to destinations, with their checks, in one process (one JVM).

    Args:
        broken: assets whose declarations have errors.
    """
    return dg.define_asset_job(
        names.named(SYNC),
        selection=dg.AssetSelection.assets(*dict.fromkeys((*_materialised(project, names), *broken)))
        - _by_themselves(project, names),
        executor_def=dg.in_process_executor,
        config=console.RUN_CONFIG,
        description="Brings every changelog up to its topics' ends, every table up to its changelog, and checks them.",
    )


def ingest_job(project: Project, names: AssetKeys = AS_DECLARED) -> Job | None:
    """Databases to changelogs, and to the tables written from those, with their checks; None without a database."""
    sources = {table.name for table in project.sources() if stream_group(table) == "databases"}
    if not sources:
        return None
    written = [insert for insert in project.inserts if sources & set(insert.tables)]
    queries = dict.fromkeys(insert.query.name for insert in written if insert.query is not None)
    return dg.define_asset_job(
        names.named(INGEST),
        selection=dg.AssetSelection.assets(
            *(names.changelog_key(name) for name in sources),
            *(names.query_key(name) for name in queries),
            *(names.destination_key(insert.target) for insert in written),
        )
        - _by_themselves(project, names),
        executor_def=dg.in_process_executor,
        config=console.RUN_CONFIG,
        description="Brings the changelogs of database tables up to their servers' logs, and the topics and tables that"
        " are written from them up to those, and checks them.",
    )


def _job_of_checks(name: str, checks: Sequence[dg.AssetCheckKey], *, description: str) -> Job:
    """Return a job that carries out checks in full, and writes nothing else."""
    return dg.define_asset_job(
        name,
        selection=dg.AssetSelection.checks(*checks),
        executor_def=dg.in_process_executor,
        config=console.RUN_CONFIG,
        tags={keys.COMPLETE_TAG: "true"},
        description=description,
    )


def verify_job(project: Project, names: AssetKeys = AS_DECLARED) -> Job:
    """Compares every row of every destination; writes nothing but the verdict."""
    checks = [dg.AssetCheckKey(key, keys.CHECK_LAST_VALUE) for key in _destinations(project, names)]
    return _job_of_checks(
        names.named(VERIFY),
        checks,
        description="Compares every row of every destination table with the last value per key of its topic.",
    )


def audit_job(project: Project, names: AssetKeys = AS_DECLARED) -> Job | None:
    """Judges destinations by their topics; None where no table declares that it may."""
    checks = _topic_checks(project, names)
    if not checks:
        return None
    return _job_of_checks(
        names.named(AUDIT),
        checks,
        description="Judges tables straight by their topics, with a reader that shares no code with the platform. It"
        " reads every record and every row in this process.",
    )


def prove_job(project: Project, names: AssetKeys = AS_DECLARED) -> Job | None:
    """Proves destinations against their topics; None where no table declares that it may."""
    checks = _source_checks(project, names)
    if not checks:
        return None
    return _job_of_checks(
        names.named(PROVE),
        checks,
        description="Proves that tables equal their topics, whoever wrote them: reads the topics anew in Spark's tasks,"
        " compares every row, and looks again at keys that move. Writes nothing.",
    )


def plan_job(project: Project, names: AssetKeys = AS_DECLARED) -> Job | None:
    """Plans the destinations that ask for it; None where no table declares that it does."""
    checks = _plan_checks(project, names)
    if not checks:
        return None
    return _job_of_checks(
        names.named(PLAN),
        checks,
        description="Says of the tables with 'check.plan' what the project, as this code location has it, changes in"
        " them: computes their inserts over the lake, and compares every row. Writes nothing.",
    )


def watch_job(project: Project, names: AssetKeys = AS_DECLARED) -> Job | None:
    """The checks that cost a few requests each; None for a project that reads nothing."""
    read = [names.changelog_key(table.name) for table in project.sources()]
    if not read:
        return None
    quarantines = [dg.AssetCheckKey(key, keys.CHECK_QUARANTINE) for key in read]
    ahead = (*_loss_checks(project, names), *_schema_checks(project, names), *_freshness_checks(project, names))
    return dg.define_asset_job(
        names.named(WATCH),
        selection=dg.AssetSelection.checks(*quarantines, *ahead),
        executor_def=dg.in_process_executor,
        config=console.RUN_CONFIG,
        description="Looks ahead, whether or not syncs succeed: may topics delete what is unread, are tables and lake"
        " as they are declared and as fresh, what is in quarantine. Needs no JVM.",
    )


def _freshness_checks(project: Project, names: AssetKeys) -> list[dg.AssetCheckKey]:
    written = {insert.target for insert in project.inserts} & set(project.tables)
    return [
        dg.AssetCheckKey(names.destination_key(name), keys.CHECK_FRESHNESS)
        for name in sorted(written)
        if FreshnessLimits.of(project.tables[name]) is not None
    ]


def _topic_checks(project: Project, names: AssetKeys) -> list[dg.AssetCheckKey]:
    return [
        dg.AssetCheckKey(names.destination_key(name), keys.CHECK_TOPIC)
        for name in dict.fromkeys(insert.target for insert in project.inserts)
        if name in project.tables and platform_settings(project.tables[name]).equals_topic is not Severity.OFF
    ]


def _source_checks(project: Project, names: AssetKeys) -> list[dg.AssetCheckKey]:
    return [
        dg.AssetCheckKey(names.destination_key(name), keys.CHECK_SOURCE)
        for name in dict.fromkeys(insert.target for insert in project.inserts)
        if name in project.tables and platform_settings(project.tables[name]).equals_source is not Severity.OFF
    ]


def _plan_checks(project: Project, names: AssetKeys) -> list[dg.AssetCheckKey]:
    return [
        dg.AssetCheckKey(names.destination_key(name), keys.CHECK_PLAN)
        for name in dict.fromkeys(insert.target for insert in project.inserts)
        if name in project.tables and platform_settings(project.tables[name]).plan is not Severity.OFF
    ]


def _loss_checks(project: Project, names: AssetKeys) -> list[dg.AssetCheckKey]:
    return [
        dg.AssetCheckKey(names.changelog_key(table.name), keys.CHECK_LOSS)
        for table in project.sources()
        if platform_settings(table).no_unread_loss is not Severity.OFF
    ]


def _schema_checks(project: Project, names: AssetKeys) -> list[dg.AssetCheckKey]:
    read = [(names.changelog_key(table.name), table) for table in project.sources()]
    targets = dict.fromkeys(insert.target for insert in project.inserts if insert.target in project.tables)
    written = [(names.destination_key(name), project.tables[name]) for name in targets]
    return [
        dg.AssetCheckKey(key, keys.CHECK_SCHEMA)
        for key, table in (*read, *written)
        if platform_settings(table).schema_matches is not Severity.OFF
    ]


def _by_themselves(project: Project, names: AssetKeys) -> dg.AssetSelection:
    """Checks that are no part of a sync: it refuses by itself what these foresee, or would cost too much."""
    return dg.AssetSelection.checks(
        *_topic_checks(project, names),
        *_source_checks(project, names),
        *_plan_checks(project, names),
        *_loss_checks(project, names),
        *_schema_checks(project, names),
    )


def _destinations(project: Project, names: AssetKeys) -> Iterable[dg.AssetKey]:
    return [names.destination_key(insert.target) for insert in project.inserts]


def _materialised(project: Project, names: AssetKeys) -> list[dg.AssetKey]:
    changelogs = [names.changelog_key(table.name) for table in project.sources()]
    return [*changelogs, *(names.query_key(query.name) for query in project.queries()), *_destinations(project, names)]
