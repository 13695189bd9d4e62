"""Job `rebuild`: computes queries anew and corrects their results by what differs; takes new snapshots of databases.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

from typing import Any

import dagster as dg
from pydantic import Field

from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.model import Project
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.op_jobs import job_of
from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.sync.connectors import stream_group, streams_of
from upsert_platform.sync.query_hop import QueryHop

REBUILD = "rebuild"


class RebuildConfig(dg.Config):
    """Run configuration of job `rebuild`."""

    tables: list[str] = Field(
        default_factory=list,
        description="Tables whose queries are computed anew, and tables of databases (schema.table) of which a new"
        " snapshot is taken; without any, the queries whose statement or input has changed.",
    )


def rebuild_job(project: Project, names: AssetKeys = AS_DECLARED) -> Any:
    """The job; None for a project without queries and databases."""
    queries = [query.name for query in project.queries()]
    databases = {
        name: table.name
        for table in project.sources()
        if stream_group(table) == "databases"
        for name in (table.name, *streams_of(table))
    }
    if not queries and not databases:
        return None

    @dg.op(
        name=names.named("rebuild_queries"),
        description="Computes queries anew, and begins new snapshots.",
        tags={"dagster/kind/deltalake": ""},
        out=dg.Out(dg.Nothing),
    )
    @names.bound
    def step(
        context: dg.OpExecutionContext, config: RebuildConfig, platform: PlatformResource, spark: SparkResource
    ) -> None:
        with told_plainly():
            spark.refuse_wrong(platform, writes=True)
            known = {name.removesuffix("$query"): name for name in queries}
            for table in config.tables:
                if table not in known and table not in databases:
                    told = ", ".join([*known, *databases])
                    raise UpsertPlatformError(
                        f"no query feeds a table '{table}', and no database has it; there are: {told}"
                    )
            for name in dict.fromkeys(databases[table] for table in config.tables if table in databases):
                _begin_snapshot(context, platform, name, names)
            for table, name in known.items():
                hop = platform.query_hop(name, run=context.run.run_id)
                reason = "asked for" if table in config.tables else None
                if not config.tables:
                    reason = hop.needs_rebuild()
                if reason is not None:
                    _rebuild(context, hop, spark, name, reason, names.query_key(name))

    return job_of(
        names.named(REBUILD),
        step,
        description="Computes queries anew beside their old results, then writes the difference: those whose statement"
        " or input has changed, or those that are named. Their tables are corrected by the next sync. Of tables of"
        " databases that are named, the next sync takes a new snapshot, and deletes the rows that it does not meet.",
    )


def _begin_snapshot(context: dg.OpExecutionContext, platform: PlatformResource, name: str, names: AssetKeys) -> None:
    head = platform.changelog_hop(name, run=context.run.run_id).begin_anew()
    if head is None:
        context.log.info(f"table '{name}' was not read yet: the next sync takes its first snapshot")
        return
    context.log.info(f"batch {head.batch}: the next sync takes a new snapshot of table '{name}'")
    context.log_event(
        dg.AssetObservation(
            asset_key=names.changelog_key(name), description="a new snapshot begins", metadata={"batch": head.batch}
        )
    )


def _rebuild(
    context: dg.OpExecutionContext, hop: QueryHop, spark: SparkResource, name: str, reason: str, key: dg.AssetKey
) -> None:
    context.log.info(f"query '{name}' is computed anew: {reason}")
    done = hop.rebuild(spark.on_demand(), tell=context.log.info)
    if done is None:
        context.log.info(f"query '{name}' has no result yet: the next sync computes it")
        return
    context.log_event(
        dg.AssetObservation(
            asset_key=key,
            description="computed anew",
            metadata={"batch": done.batch, "changes_read": done.read, "rows": done.differences},
        )
    )
