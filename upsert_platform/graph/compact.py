"""Job `compact`: the upkeep of the lake. Old changes of a key are dropped, files merged, and unused files deleted.

Runs beside `sync`: an append does not meet what a compaction rewrites, and readers keep the files that they began with.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

from typing import Any

import dagster as dg
from pydantic import Field

from upsert_platform.changelog import compaction
from upsert_platform.changelog.compaction import CompactionReport
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.upkeep import remove_unused
from upsert_platform.errors import UpsertPlatformError
from upsert_platform.graph import console, keys
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.hops.binding import changelog_of, query_store
from upsert_platform.model import Project, Table
from upsert_platform.plan import Query
from upsert_platform.queries import upkeep as queries_upkeep

COMPACT = "compact"


class CompactConfig(dg.Config):
    """How a changelog is compacted."""

    keep_hours: int = Field(
        168, ge=1, description="Files are deleted when nothing has needed them for so long; longer than any run takes."
    )


def compact_job(project: Project) -> dg.JobDefinition:
    """One step per changelog; those that have nothing to gain start no JVM."""
    steps = [*(_step(table) for table in project.sources()), *(_query_step(query) for query in project.queries())]

    @dg.job(
        name=COMPACT,
        executor_def=dg.in_process_executor,
        config=dict(console.RUN_CONFIG),
        description="Keeps the lake small: changelogs are reduced to the last change per key, small files are merged,"
        " files that nothing needs are deleted. Tables are not touched; safe beside a sync.",
    )
    def compact() -> None:
        for step in steps:
            step()

    return compact


def _step(table: Table) -> Any:
    @dg.op(
        name=keys.op_name("compact", table.name),
        description=f"Compacts the changelog of table {table.name}.",
        tags={"dagster/kind/spark": "", "dagster/kind/deltalake": ""},
        out=dg.Out(dg.Nothing),
    )
    def step(
        context: dg.OpExecutionContext, config: CompactConfig, platform: PlatformResource, spark: SparkResource
    ) -> None:
        with told_plainly():
            store = changelog_of(platform.binding().sources[table.name], platform.lake)
            applied = _applied_everywhere(context, platform, table.name)
            report = _compacted(context, store, spark, applied)
            removed = remove_unused(store, hours=config.keep_hours)
            removed += _remove_unused_refused(platform, table.name, hours=config.keep_hours)
        context.log.info(f"{removed} files deleted that were unused for {config.keep_hours} hours")
        context.log_event(
            dg.AssetObservation(
                asset_key=keys.changelog_key(table.name),
                description="compacted" if report else "nothing to compact",
                metadata={
                    **(_shown(report) if report else {}),
                    "files_deleted": removed,
                    "applied_everywhere": applied,
                },
            )
        )

    return step


def _query_step(query: Query) -> Any:
    @dg.op(
        name=keys.op_name("compact_query", query.name),
        description=f"Compacts the result of query {query.name}.",
        tags={"dagster/kind/deltalake": ""},
        out=dg.Out(dg.Nothing),
    )
    def step(context: dg.OpExecutionContext, config: CompactConfig, platform: PlatformResource) -> None:
        with told_plainly():
            store = query_store(platform.binding().queries[query.name], platform.lake)
            applied = _applied_everywhere(context, platform, query.name)
            worthwhile = compaction.is_worthwhile(store, applied_everywhere=applied)
            report = queries_upkeep.compact(store, applied_everywhere=applied) if worthwhile else None
            removed = queries_upkeep.remove_unused(store, hours=config.keep_hours)
            removed += _remove_unused_refused(platform, query.name, hours=config.keep_hours)
        context.log_event(
            dg.AssetObservation(
                asset_key=keys.query_key(query.name),
                description="compacted" if report else "nothing to compact",
                metadata={
                    **(_shown(report) if report else {}),
                    "files_deleted": removed,
                    "applied_everywhere": applied,
                },
            )
        )

    return step


def _compacted(
    context: dg.OpExecutionContext, store: ChangelogStore, spark: SparkResource, applied: int
) -> CompactionReport | None:
    if not compaction.is_worthwhile(store, applied_everywhere=applied):
        context.log.info("nothing is new since the last compaction")
        return None
    context.log.info(f"reading {len(store.files())} files; every table has applied batch {applied}")
    report = compaction.compact(spark.spark_session, store, applied_everywhere=applied)
    context.log.info(
        f"{report.rows_before} rows in {report.files_before} files became {report.rows_after} in {report.files_after}"
    )
    return report


def _applied_everywhere(context: dg.OpExecutionContext, platform: PlatformResource, source: str) -> int:
    """The lowest batch that the tables and queries of a changelog have applied; 0 where one cannot be asked."""
    binding = platform.binding()
    lowest: list[int] = []
    for bound in binding.queries.values():
        if source in bound.query.tables:
            head = query_store(bound, platform.lake).head()
            lowest.append(head.positions.offsets.get(source, {}).get(0, 0) if head is not None else 0)
    for name, target in binding.targets.items():
        if target.source.table.name != source:
            continue
        try:
            hop = platform.destination_hop(name, run=context.run.run_id)
            try:
                lowest.append(hop.plan().state.applied_batch)
            finally:
                hop.destination.close()
        except UpsertPlatformError as error:
            context.log.warning(f"tombstones are kept, because table '{name}' does not tell what it has: {error}")
            return 0
    return min(lowest, default=0)


def _remove_unused_refused(platform: PlatformResource, source: str, *, hours: int) -> int:
    """Deletes what writes that died left beside the refused rows of a changelog's tables; how many files."""
    tables = [name for name, target in platform.binding().targets.items() if target.source.table.name == source]
    return sum(RefusedStore(platform.lake.refused(name)).remove_unused(hours=hours) for name in tables)


def _shown(report: CompactionReport) -> dict[str, int]:
    return {
        "files_before": report.files_before,
        "files_after": report.files_after,
        "rows_before": report.rows_before,
        "rows_after": report.rows_after,
    }
