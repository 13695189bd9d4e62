"""Job `reconcile`: repairs tables that a check found to differ.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

import dagster as dg
from pydantic import Field

from upsert_platform.core.error_catalogue import shown
from upsert_platform.core.errors import DeclarationError, DestinationError, Problem, UpsertPlatformError
from upsert_platform.core.model import Project
from upsert_platform.core.platform_options import platform_settings
from upsert_platform.graph import keys, metadata
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.op_jobs import job_of
from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.sync.reconcile import Reconciliation, check_reconcilable, reconcile

RECONCILE = "reconcile"
_STEP = "repair"
"""A job and a step of one name cannot be loaded as a code location."""


class ReconcileConfig(dg.Config):
    """Run configuration of job `reconcile`."""

    tables: list[str] = Field(default_factory=list, description="Declared names of tables; all, if left out.")
    dry_run: bool = Field(False, description="Only show how many rows differ, and some of them; write nothing.")


def reconcile_job(project: Project, names: AssetKeys = AS_DECLARED) -> dg.JobDefinition:
    """One step: table after table, each under its lease."""
    targets = sorted({insert.target for insert in project.inserts})

    @dg.op(
        name=names.named(_STEP),
        description=f"Repairs tables: {', '.join(targets)}.",
        tags={"dagster/kind/spark": ""},
        out=dg.Out(dg.Nothing),
    )
    @names.bound
    def step(
        context: dg.OpExecutionContext, config: ReconcileConfig, platform: PlatformResource, spark: SparkResource
    ) -> None:
        with told_plainly():
            spark.refuse_wrong(platform, writes=True)
            unknown = sorted(set(config.tables) - set(targets))
            if unknown:
                told = f"no insert writes a table '{unknown[0]}'; tables are: {', '.join(targets)}"
                raise DeclarationError([Problem(told, None)])
            failures: list[str] = []
            for name in config.tables or targets:
                try:
                    _repair(context, config, platform, spark, name, names.destination_key(name))
                except UpsertPlatformError as error:  # the other tables are repaired all the same
                    failures.append(shown(error))
                    context.log.error(failures[-1])
        if failures:
            raise dg.Failure(description="; ".join(failures), allow_retries=False)

    return job_of(
        names.named(RECONCILE),
        step,
        description="Compares every row of tables with the last values per key, and writes just those that differ:"
        " missing and stale rows are put, extra ones deleted. The tables serve on meanwhile. `dry_run: true` shows.",
    )


def _repair(
    context: dg.OpExecutionContext,
    config: ReconcileConfig,
    platform: PlatformResource,
    spark: SparkResource,
    name: str,
    key: dg.AssetKey,
) -> None:
    dry_run = config.dry_run
    hop = platform.destination_hop(name, run=context.run.run_id)
    try:
        try:
            check_reconcilable(hop)
        except DestinationError as error:
            if name in config.tables:
                raise
            context.log.warning(f"passed over: {error}")  # nobody asked for this one
            return
        done = reconcile(spark.spark_session, hop, dry_run=dry_run, tell=context.log.warning, progress=context.log.info)
    finally:
        hop.destination.close()
    before = done.before
    found = f"{name}: {before.missing} missing, {before.extra} extra, {before.stale} stale"
    if done.report is None:
        context.log.info(f"{found}, of {before.compared} keys compared; nothing was written")
    else:
        written = f"{done.report.upserts} put, {done.report.deletes} deleted, {done.report.refused_count} refused"
        context.log.info(f"{found}: {written}")
    context.log_event(
        dg.AssetObservation(
            asset_key=key,
            description="compared" if done.report is None else "repaired",
            metadata={"dry_run": dry_run, **metadata.of_comparison(before), **_shown(done)},
        )
    )
    if done.after is not None or not dry_run:
        context.instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                asset_key=key,
                check_name=keys.CHECK_LAST_VALUE,
                passed=done.last.passed,
                metadata={count: dg.MetadataValue.int(value) for count, value in _counts(done).items()},
                severity=dg.AssetCheckSeverity.ERROR,
                blocking=platform_settings(hop.target.table).last_value_blocking,
                description=f"after job '{RECONCILE}', run {context.run.run_id}",
            )
        )
    if done.after is not None and not done.after.passed:
        raise DestinationError(f"table '{name}' still differs: {done.after.detail}; does another program write it?")


def _counts(done: Reconciliation) -> dict[str, int]:
    last = done.last
    return {"compared": last.compared, "missing": last.missing, "extra": last.extra, "stale": last.stale}


def _shown(done: Reconciliation) -> dict[str, int]:
    report = done.report
    return {} if report is None else {"rows_put": report.upserts, "rows_deleted": report.deletes}
