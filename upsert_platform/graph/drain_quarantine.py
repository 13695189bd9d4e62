"""Job `drain_quarantine`: tries what was kept aside again, records that did not decode and rows that were refused.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import dagster as dg
from pydantic import Field

from upsert_platform.changelog.quarantine import quarantined_count
from upsert_platform.core.error_catalogue import shown
from upsert_platform.core.errors import DeclarationError, DestinationError, Problem, UpsertPlatformError
from upsert_platform.core.model import Project
from upsert_platform.graph import metadata
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.op_jobs import job_of
from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.sync.following import follow
from upsert_platform.sync.replay import replay_in_turn
from upsert_platform.sync.replay_refused import check_replayable, replay_refused

DRAIN = "drain_quarantine"
_STEP = "try_again"
"""A job and a step of one name cannot be loaded as a code location."""


class DrainConfig(dg.Config):
    """Run configuration of job `drain_quarantine`."""

    tables: list[str] = Field(
        default_factory=list,
        description="Declared names of tables that are read (records that did not decode) or written (rows that were"
        " refused); all, if left out.",
    )
    dry_run: bool = Field(False, description="Only show how much is kept aside.")


def drain_job(project: Project, names: AssetKeys = AS_DECLARED) -> dg.JobDefinition:
    """One step: records of table after table, with what follows them, then refused rows of table after table."""
    read = sorted({table.name for table in project.sources()})
    written = sorted({insert.target for insert in project.inserts})

    @dg.op(
        name=names.named(_STEP),
        description=f"Tries what was kept aside of {', '.join([*read, *written])} again.",
        tags={"dagster/kind/spark": ""},
        out=dg.Out(dg.Nothing),
    )
    @names.bound
    def step(
        context: dg.OpExecutionContext, config: DrainConfig, platform: PlatformResource, spark: SparkResource
    ) -> None:
        with told_plainly():
            spark.refuse_wrong(platform, writes=True)
            unknown = sorted(set(config.tables) - {*read, *written})
            if unknown:
                known = ", ".join([*read, *written])
                told = f"no insert reads or writes a table '{unknown[0]}'; tables are: {known}"
                raise DeclarationError([Problem(told, None)])
            failures: list[str] = []
            for try_again, tables in ((_records, read), (_rows, written)):
                for name in tables:
                    if config.tables and name not in config.tables:
                        continue
                    try:
                        try_again(context, config, platform, spark, name, names)
                    except UpsertPlatformError as error:  # the other tables are tried all the same
                        failures.append(shown(error))
                        context.log.error(failures[-1])
        if failures:
            raise dg.Failure(description="; ".join(failures), allow_retries=False)

    return job_of(
        names.named(DRAIN),
        step,
        description="Decodes the records in quarantine again, as their tables are declared now, commits what is not"
        " outdated and brings it to the tables; then writes refused rows again, with the values that their keys have by"
        " now. What fails again stays aside. `dry_run: true` shows.",
    )


def _records(
    context: dg.OpExecutionContext,
    config: DrainConfig,
    platform: PlatformResource,
    spark: SparkResource,
    name: str,
    names: AssetKeys,
) -> None:
    """Tries records that did not decode again."""
    run = context.run.run_id
    hop = platform.changelog_hop(name, run=run)
    before = quarantined_count(hop.store)
    if not before or config.dry_run:
        _observe(context, names.changelog_key(name), {"dry_run": config.dry_run, "in_quarantine": before})
        return
    binding = platform.binding()
    session = spark.spark_session
    done = replay_in_turn(session, hop.source, hop.store, binding=binding, run=run)
    counts = {"replayed": done.replayed, "superseded": done.superseded, "still_refused": done.refused_count}
    told = {**counts, "in_quarantine": quarantined_count(hop.store)}
    _observe(context, names.changelog_key(name), {"dry_run": False, **told})
    if done.batch is None:
        return
    for table, written in follow(session, binding, platform.lake, name, run=run, tell=context.log.info):
        if written is not None:
            _observe(context, names.destination_key(table), metadata.of_destination_run(written))


def _rows(
    context: dg.OpExecutionContext,
    config: DrainConfig,
    platform: PlatformResource,
    spark: SparkResource,
    name: str,
    names: AssetKeys,
) -> None:
    """Tries rows that a table refused again."""
    hop = platform.destination_hop(name, run=context.run.run_id)
    with closing(hop.destination):
        before = hop.refused.count()
        if not before or config.dry_run:
            _observe(context, names.destination_key(name), {"dry_run": config.dry_run, "refused": before})
            return
        try:
            check_replayable(hop.destination)
        except DestinationError as error:
            if name in config.tables:
                raise
            context.log.warning(str(error))  # nobody asked for this one
            return
        done = replay_refused(spark.spark_session, hop, tell=context.log.warning)
        counts = {"replayed": done.replayed, "superseded": done.superseded, "still_refused": done.refused_count}
        told = {**counts, "not_given": len(done.unknown), "refused": hop.refused.count()}
        _observe(context, names.destination_key(name), {"dry_run": False, **told})


def _observe(context: dg.OpExecutionContext, key: dg.AssetKey, told: Mapping[str, Any]) -> None:
    counts = ", ".join(
        f"{value} {name.replace('_', ' ')}"
        for name, value in told.items()
        if isinstance(value, int) and name != "dry_run"
    )
    context.log.info(f"{'/'.join(key.path)}: {counts}")
    context.log_event(dg.AssetObservation(asset_key=key, description=DRAIN, metadata=dict(told)))
