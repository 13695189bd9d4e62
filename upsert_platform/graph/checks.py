"""Asset check `last_value_per_key` on destinations (blocking).

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

from collections.abc import Iterator

import dagster as dg

from upsert_platform.core.destination import DestinationState
from upsert_platform.core.model import Table
from upsert_platform.core.platform_options import platform_settings
from upsert_platform.graph import keys, metadata
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.jobs import VERIFY
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.reconcile import RECONCILE
from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.sync.appended_rows import appended_remedy
from upsert_platform.sync.binding import Target
from upsert_platform.sync.comparison import Comparison, keep_verdict
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.standing import standing_verdict
from upsert_platform.sync.verify import check_batch, check_everything, is_comparable


def last_value_check(target: Table, names: AssetKeys = AS_DECLARED) -> dg.AssetChecksDefinition:
    """The blocking check of a destination.

    In a sync it compares the keys written since the last verdict and a sample of earlier ones, so its cost follows the
    batch. In a run tagged COMPLETE_TAG (job `verify`), and in one of checks alone, it compares every row.
    """
    key = names.destination_key(target.name)

    @dg.multi_asset_check(
        name=names.op_name("check", target.name),
        specs=[
            dg.AssetCheckSpec(
                keys.CHECK_LAST_VALUE,
                asset=key,
                blocking=platform_settings(target).last_value_blocking,
                description="The table holds the last value per key. A sync looks at the batch's keys and at a sample"
                f" of earlier ones, job `{names.named(VERIFY)}` and a check that is executed by itself at every row.",
            )
        ],
        can_subset=True,
    )
    @names.bound
    def check(
        context: dg.AssetCheckExecutionContext, platform: PlatformResource, spark: SparkResource
    ) -> Iterator[dg.AssetCheckResult]:
        with told_plainly():
            spark.refuse_wrong(platform)
            yield from _compared(context, platform, spark, target, names)

    return check


def _compared(
    context: dg.AssetCheckExecutionContext,
    platform: PlatformResource,
    spark: SparkResource,
    target: Table,
    names: AssetKeys,
) -> Iterator[dg.AssetCheckResult]:
    key = names.destination_key(target.name)
    hop = platform.destination_hop(target.name, run=context.run.run_id)
    try:
        state = hop.plan().state
        standing = standing_result(hop, state, key=key, names=names)
        asked = spark.times_asked
        if is_asked_for(context.run):
            if state.lost:
                yield dg.AssetCheckResult(
                    check_name=keys.CHECK_LAST_VALUE,
                    asset_key=key,
                    passed=False,
                    metadata=dict(metadata.of_state(state)),
                    description=state.lost,
                )
                return
            if state.applied_batch == 0:
                yield _standing(target, key, state, "nothing was written yet: there is nothing to compare")
                return
            found = check_everything(spark.spark_session, hop, upto=state.applied_batch)
        elif standing is not None:
            yield standing
            return
        else:
            checked = state.verdict.batch if state.verdict else 0
            found = check_batch(spark.on_demand(), hop, after=checked, upto=state.applied_batch)
        if found.untold:
            yield _standing(target, key, state, found.untold, kept=hop.refused.count(), untold=True)
            return
        stood = not keep_verdict(hop, found, state)
        shown_work = metadata.of_spark(spark.pages(since=asked), spark.take_work())
        if found.rows is not None:
            shown: dict[str, int | str] = {"dagster/row_count": found.rows, "dagster/uri": hop.destination.uri}
            observed = dg.AssetObservation(asset_key=key, description="compared", metadata=shown)
            context.op_execution_context.log_event(observed)
        if stood and (failing := standing_result(hop, hop.plan().state, key=key, names=names)) is not None:
            yield failing
            return
        kept = hop.refused.count()
        fails = not found.passed or _fails(target, kept)
        yield dg.AssetCheckResult(
            check_name=keys.CHECK_LAST_VALUE,
            asset_key=key,
            passed=found.passed and not kept,
            # The verdict that the destination keeps is that of the comparison, whatever is kept aside.
            severity=dg.AssetCheckSeverity.ERROR if fails else dg.AssetCheckSeverity.WARN,
            metadata={**metadata.of_comparison(found), "refused_rows": kept, "new": True, **shown_work},
            description=_description(hop, found, kept, names),
        )
    finally:
        hop.destination.close()


def standing_result(
    hop: DestinationHop, state: DestinationState, *, key: dg.AssetKey, names: AssetKeys
) -> dg.AssetCheckResult | None:
    """Return the result of `last_value_per_key` where a sync has nothing new to compare, else None."""
    found = standing_verdict(hop, state)
    if found is None:
        return None
    if not found.differs:
        return _standing(hop.target.table, key, state, found.told, kept=found.kept, untold=found.untold)
    assert state.verdict is not None
    return dg.AssetCheckResult(
        check_name=keys.CHECK_LAST_VALUE,
        asset_key=key,
        passed=False,
        metadata={**metadata.of_state(state), "new": False, "batch": state.verdict.batch},
        description=f"the last check failed ({state.verdict.detail}); {_remedy(hop, names)}",
    )


def _standing(
    target: Table, key: dg.AssetKey, state: DestinationState, told: str, *, kept: int = 0, untold: bool = False
) -> dg.AssetCheckResult:
    """The result of a check that has nothing new to compare: a planned check that yields none shows as skipped.

    Args:
        told: why there is nothing new.
        kept: rows that the table refused.
        untold: nothing of the table is compared, which must not look like a proof.
    """
    return dg.AssetCheckResult(
        check_name=keys.CHECK_LAST_VALUE,
        asset_key=key,
        passed=not kept,
        severity=dg.AssetCheckSeverity.ERROR if _fails(target, kept) else dg.AssetCheckSeverity.WARN,
        metadata={
            **metadata.of_state(state),
            "refused_rows": kept,
            "new": False,
            "batch": state.verdict.batch if state.verdict else 0,
            **({"compared": 0} if untold else {}),
        },
        description=_refusals(kept, target.name) if kept else told,
    )


def _fails(target: Table, kept: int) -> bool:
    """Return whether so many refused rows are an error, and not a warning."""
    most = platform_settings(target).refused_fail_count
    return most is not None and kept >= most


def is_asked_for(run: dg.DagsterRun) -> bool:
    """Return whether a run is there to look at every row: job `verify`, or a check that somebody executes by itself."""
    return run.tags.get(keys.COMPLETE_TAG) == "true" or bool(run.asset_check_selection and not run.asset_selection)


def _description(hop: DestinationHop, found: Comparison, kept: int, names: AssetKeys) -> str | None:
    """Return what differs and its remedy, or None if nothing differs."""
    if not found.passed:
        return f"{_example(found)}; {_remedy(hop, names)}"
    return _refusals(kept, hop.target.table.name) if kept else None


def _remedy(hop: DestinationHop, names: AssetKeys) -> str:
    """Return what to do about the rows of a table that differ."""
    return repair_remedy(names) if is_comparable(hop) else appended_remedy(hop)


def repair_remedy(names: AssetKeys) -> str:
    """Return what to do about rows that differ: jobs of the code location, and a command."""
    return (
        f"job '{names.named(RECONCILE)}' writes just the rows that differ, with dry_run it only shows them"
        f" ('{names.command(RECONCILE)}'); job '{names.named(VERIFY)}' compares every row again"
    )


def read_again(target: Target) -> str:
    """Return the commands that read what a table is made of again."""
    found = " and ".join(f"'upsert-platform replay {name}'" for name in dict.fromkeys(target.insert.tables))
    return f"{found} {'reads its topic' if len(set(target.insert.tables)) == 1 else 'read its topics'} again"


def _refusals(kept: int, table: str) -> str:
    return (
        f"{kept} rows were refused by the table, which keeps older values of their keys if it had any;"
        f" 'upsert-platform quarantine list {table}' tells why, 'quarantine replay {table}' writes them again"
    )


def _example(found: Comparison) -> str:
    """The first row that differs, in words."""
    if not found.sample:
        return found.detail
    row = found.sample[0]
    difference = f": {row['difference']}" if row.get("difference") else ""
    return f"for example {row['key']} is {row['status']}{difference}"
