"""Results of proofs in runs that ask for none: a proof costs too much for every run.

Each planned check yields, or Dagster shows it as skipped, and as failed in a run that fails elsewhere. The last result
stands; where there is none, or one that did not pass, a small table is proven at once: somebody may have repaired it.
Of a larger one without a result a warning says what would prove it.
"""

from __future__ import annotations

from typing import Final

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from upsert_platform.graph.resources import PlatformResource
from upsert_platform.sync.binding import Target, changelog_of

AT_ONCE_ROWS: Final = 10_000
"""Rows of a changelog up to which the first run of a table proves it."""
AT_ONCE_ASSETS: Final = 24
"""Assets of a run up to which it proves its small tables: those of more would take minutes together."""
_ENDED: Final = {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}
_STANDS: Final = "the last result stands, this run compared nothing"


def open_result(key: dg.AssetCheckKey, told: str) -> dg.AssetCheckResult:
    """Return a warning: nothing was compared, so nothing passed.

    Args:
        told: the reason, and what would compare.
    """
    return dg.AssetCheckResult(
        check_name=key.name,
        asset_key=key.asset_key,
        passed=False,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"new": False},
        description=told,
    )


def standing_result(
    context: dg.AssetCheckExecutionContext, key: dg.AssetCheckKey, *, mark: str
) -> dg.AssetCheckResult | None:
    """Return the last result in which a check compared something, with ``new: false``; None without one.

    Args:
        mark: metadata that only such a result has.
    """
    storage = context.op_execution_context.instance.event_log_storage
    records = storage.get_asset_check_execution_history(key, limit=1, status=_ENDED)
    last = records[0].evaluation if records else None
    if last is None or mark not in last.metadata:
        return None
    told = last.description or ""
    return dg.AssetCheckResult(
        check_name=key.name,
        asset_key=key.asset_key,
        passed=last.passed,
        severity=last.severity,
        metadata={**last.metadata, "new": False},
        description=told if told.startswith(_STANDS) else f"{_STANDS}: {told}" if told else _STANDS,
    )


def is_proven_at_once(context: dg.AssetCheckExecutionContext, target: Target, platform: PlatformResource) -> bool:
    """Return whether a run that asks for no proof carries it out all the same, since it takes a moment."""
    layer = context.op_execution_context.job_def.asset_layer
    if not platform.has_servers or len(list(layer.executable_asset_keys)) > AT_ONCE_ASSETS:
        return False
    store = changelog_of(target.source, platform.lake)
    head = store.head()
    return head is not None and store.about_rows(upto=head.batch) <= AT_ONCE_ROWS
