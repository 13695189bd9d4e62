"""Asset checks of a changelog, in one step: `offsets_accounted`, `quarantine_below` and those declared beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dagster as dg

from upsert_platform.changelog.accounting import total
from upsert_platform.changelog.quarantine import discarded
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.model import Table
from upsert_platform.core.platform_options import Severity, platform_settings
from upsert_platform.graph import keys, metadata
from upsert_platform.graph.check_parts import CheckPart, checks_in_one_step
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.loss_check import loss_check
from upsert_platform.graph.resources import PlatformResource
from upsert_platform.graph.schema_check import changelog_schema_check
from upsert_platform.sync.standing import StandingQuarantine, accounted, standing_quarantine


def changelog_checks(table: Table, names: AssetKeys = AS_DECLARED) -> dg.AssetChecksDefinition:
    """Looks at the offsets that the run committed, and at the quarantine as it is now. Needs no JVM.

    Where every record that was ever read is in quarantine, the step fails too: a run that leaves a table empty must not
    succeed. The checks `no_unread_loss` and `schema_matches` are part of it unless the table declares them to be off.
    """
    settings = platform_settings(table)
    parts = [_accounted_check(table, names), _quarantine_check(table, names)]
    if settings.no_unread_loss is not Severity.OFF:
        parts.append(loss_check(table, names))
    if settings.schema_matches is not Severity.OFF:
        parts.append(changelog_schema_check(table, names))
    return checks_in_one_step(names.op_name("checks", table.name), parts, names)


def _accounted_check(table: Table, names: AssetKeys) -> CheckPart:
    key = names.changelog_key(table.name)

    def evaluate(context: dg.AssetCheckExecutionContext, platform: PlatformResource) -> Iterator[dg.AssetCheckResult]:
        store = platform.changelog(platform.sound().sources[table.name])
        yield accounted_result(store, own=store.batches_of_run(context.run.run_id), key=key)

    told = "offsets = records + gaps; records = kept + superseded + quarantined + skipped"
    return CheckPart(dg.AssetCheckSpec(keys.CHECK_ACCOUNTED, asset=key, description=told), evaluate)


def _quarantine_check(table: Table, names: AssetKeys) -> CheckPart:
    key = names.changelog_key(table.name)
    blocking = platform_settings(table).quarantine_blocking

    def evaluate(_: dg.AssetCheckExecutionContext, platform: PlatformResource) -> Iterator[dg.AssetCheckResult]:
        source = platform.sound().sources[table.name]
        store = platform.changelog(source)
        standing = standing_quarantine(source, store)
        found = quarantine_result(standing, store, key=key)
        yield found
        if standing.nothing is not None and not blocking:  # Dagster fails the step of a check that blocks
            raise dg.Failure(description=found.description, allow_retries=False)

    spec = dg.AssetCheckSpec(
        keys.CHECK_QUARANTINE,
        asset=key,
        blocking=blocking,
        description="No record is in quarantine (a warning), not all of them (an error), and fewer than"
        " 'quarantine.fail-count' and 'quarantine.fail-percent' say, where they are declared (an error).",
    )
    return CheckPart(spec, evaluate)


def accounted_result(store: ChangelogStore, *, own: Sequence[int], key: dg.AssetKey) -> dg.AssetCheckResult:
    """Return the result of `offsets_accounted`.

    Args:
        own: batches of the run; of a run that read nothing new, the newest batch is looked at.
    """
    found = accounted(store, own=own)
    if not found.batches:
        return dg.AssetCheckResult(
            check_name=keys.CHECK_ACCOUNTED,
            asset_key=key,
            passed=True,
            metadata={"new": False, "batch": 0},
            description="nothing was read yet",
        )
    wrong = found.wrong
    return dg.AssetCheckResult(
        check_name=keys.CHECK_ACCOUNTED,
        asset_key=key,
        passed=not wrong,
        metadata={
            **metadata.of_account(total(found.accounts)),
            "new": bool(own),
            "batch": max(found.batches),
            **({"problems": dg.MetadataValue.md("\n".join(f"- {line}" for line in wrong[:50]))} if wrong else {}),
        },
    )


def quarantine_result(found: StandingQuarantine, store: ChangelogStore, *, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Return the result of `quarantine_below`."""
    if found.records is None:
        return dg.AssetCheckResult(
            check_name=keys.CHECK_QUARANTINE, asset_key=key, passed=True, metadata={"in_quarantine": 0}
        )
    told = None
    if found.nothing is not None:
        told = found.nothing.told(found.table)
    elif found.waiting:
        told = (
            f"{found.waiting} of {found.records} records are in quarantine"
            f"{', reaching ' + ' and '.join(found.reached) if found.reached else ''}; {found.remedy}"
        )
    return dg.AssetCheckResult(
        check_name=keys.CHECK_QUARANTINE,
        asset_key=key,
        passed=not found.waiting,
        severity=dg.AssetCheckSeverity.ERROR if found.fails else dg.AssetCheckSeverity.WARN,
        metadata={
            "in_quarantine": found.waiting,
            "records_read": found.records,
            "discarded": len(discarded(store)),
        },
        description=told,
    )
