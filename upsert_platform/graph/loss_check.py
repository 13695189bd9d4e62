"""Asset check `no_unread_loss`: no topic deletes records before they are read, told in time to act."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dagster as dg

from upsert_platform.core.model import Table
from upsert_platform.core.platform_options import Severity, platform_settings
from upsert_platform.core.source import ForeseesLoss, Unread
from upsert_platform.graph import keys
from upsert_platform.graph.check_parts import CheckPart
from upsert_platform.graph.jobs import SYNC
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.resources import PlatformResource


def loss_check(table: Table, names: AssetKeys = AS_DECLARED) -> CheckPart:
    """Compares the age of unread records with the topic's retention. Blocks nothing, and needs no JVM."""
    key = names.changelog_key(table.name)

    def evaluate(context: dg.AssetCheckExecutionContext, platform: PlatformResource) -> Iterator[dg.AssetCheckResult]:
        source = platform.sound().sources[table.name]
        head = platform.changelog(source).head()
        if head is None or not head.batch or not isinstance(source, ForeseesLoss):
            context.log.info("nothing was read yet, or the source does not tell how long it keeps records")
            yield judged(key, [], names, at_most=platform_settings(table).no_unread_loss)
            return
        settings = platform_settings(table)
        found = source.unread(head.positions, warn=settings.unread_warn, fail=settings.unread_fail)
        yield judged(key, found, names, at_most=settings.no_unread_loss)

    spec = dg.AssetCheckSpec(
        keys.CHECK_LOSS,
        asset=key,
        description="No record is deleted by its topic before it is read: a warning when half of the retention"
        " has passed, an error from nine tenths on, or as 'check.no-unread-loss.warn-within' and 'fail-within'"
        " say. Of compacted topics it is the retention of deletes that counts.",
    )
    return CheckPart(spec, evaluate)


def judged(key: dg.AssetKey, found: Sequence[Unread], names: AssetKeys, *, at_most: Severity) -> dg.AssetCheckResult:
    """The check's result.

    Args:
        key: of the changelog.
        names: of the jobs of the code location.
        at_most: what it may say.
    """
    bad = [item for item in found if item.lost or item.failing or item.warned]
    fails = at_most is Severity.ERROR and any(item.lost or item.failing for item in bad)
    return dg.AssetCheckResult(
        check_name=keys.CHECK_LOSS,
        asset_key=key,
        passed=not bad,
        severity=dg.AssetCheckSeverity.ERROR if fails else dg.AssetCheckSeverity.WARN,
        metadata={
            "lost": sum(item.lost for item in found),
            "fails_soon": sum(item.failing for item in found),
            "warned": sum(item.warned for item in found),
        },
        description=f"{'; '.join(_words(item) for item in bad[:10])}. Job '{names.named(SYNC)}' reads them"
        f" ('{names.command(SYNC)}'); if it fails, raise the topic's retention.ms (compacted:"
        " delete.retention.ms) until it does not"
        if bad
        else None,
    )


def _words(item: Unread) -> str:
    place, parts = f"{item.topic}-{item.partition}", []
    if item.lost:
        parts.append(f"{item.lost} offsets were deleted before they were read")
    if item.failing + item.warned:
        parts.append(f"{item.failing + item.warned} unread offsets may be deleted soon (they are kept {item.allowed})")
    return f"{place}: {', '.join(parts)}"
