"""The jobs `sync`, `ingest` and `verify`."""

from collections.abc import Iterable
from typing import Any

import dagster as dg

from upsert_platform.graph import console, keys
from upsert_platform.hops.connectors import stream_group
from upsert_platform.model import Project

Job = Any
"""What `define_asset_job` returns; Dagster does not export its name."""
SYNC = "sync"
VERIFY = "verify"
INGEST = "ingest"


def sync_job(project: Project) -> Job:
    """Topics to changelogs to queries to destinations, with their checks, in one process (one JVM)."""
    return dg.define_asset_job(
        SYNC,
        selection=dg.AssetSelection.assets(*_materialised(project)),
        executor_def=dg.in_process_executor,
        config=console.RUN_CONFIG,
        description="Brings every changelog up to its topics' ends, every table up to its changelog, and checks them.",
    )


def ingest_job(project: Project) -> Job | None:
    """Databases to changelogs, and to the tables written from those, with their checks; None without a database."""
    sources = {table.name for table in project.sources() if stream_group(table) == "databases"}
    if not sources:
        return None
    written = [insert for insert in project.inserts if sources & set(insert.tables)]
    queries = dict.fromkeys(insert.query.name for insert in written if insert.query is not None)
    return dg.define_asset_job(
        INGEST,
        selection=dg.AssetSelection.assets(
            *(keys.changelog_key(name) for name in sources),
            *(keys.query_key(name) for name in queries),
            *(keys.destination_key(insert.target) for insert in written),
        ),
        executor_def=dg.in_process_executor,
        config=console.RUN_CONFIG,
        description="Brings the changelogs of database tables up to their servers' logs, and the topics and tables that"
        " are written from them up to those, and checks them.",
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


def _destinations(project: Project) -> Iterable[dg.AssetKey]:
    return [keys.destination_key(insert.target) for insert in project.inserts]


def _materialised(project: Project) -> list[dg.AssetKey]:
    changelogs = [keys.changelog_key(table.name) for table in project.sources()]
    return [*changelogs, *(keys.query_key(query.name) for query in project.queries()), *_destinations(project)]
