"""Results of checks that a run plans and does not carry out: a proof costs too much for every run.

Each planned check yields, or Dagster shows it as skipped, and as failed in a run that fails elsewhere.
"""

from __future__ import annotations

from typing import Final

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

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


def standing_or_open(
    context: dg.AssetCheckExecutionContext, key: dg.AssetCheckKey, *, mark: str, open_: str
) -> dg.AssetCheckResult:
    """Return the last result in which a check compared something, with ``new: false``, or `open_result` without one.

    Args:
        mark: metadata that only such a result has.
        open_: what is said where there is none.
    """
    storage = context.op_execution_context.instance.event_log_storage
    records = storage.get_asset_check_execution_history(key, limit=1, status=_ENDED)
    last = records[0].evaluation if records else None
    if last is None or mark not in last.metadata:
        return open_result(key, open_)
    told = last.description or ""
    return dg.AssetCheckResult(
        check_name=key.name,
        asset_key=key.asset_key,
        passed=last.passed,
        severity=last.severity,
        metadata={**last.metadata, "new": False},
        description=told if told.startswith(_STANDS) else f"{_STANDS}: {told}" if told else _STANDS,
    )
