"""Steps that find nothing to do: they end well, checks behind them are evaluated, and no materialisation is recorded.

A materialisation without work would take the place of the last one with work: plots would fall to nothing, and results
of checks that the run does not plan would be of an older materialisation, and out of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import dagster as dg
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_TAG,
    INPUT_DATA_VERSION_TAG_PREFIX,
)
from dagster._core.definitions.freshness import TimeWindowFreshnessPolicy
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION
from dagster._core.definitions.utils import NoValueSentinel

PAUSED: Final = "paused"
"""Metadata of a table whose writes are paused: its page shows the beginning and the end of a pause."""


def without_event(context: dg.AssetExecutionContext, result: dg.MaterializeResult[Any]) -> dg.MaterializeResult[Any]:
    """Return a result that records no materialisation, or the result itself where there is something to record.

    Nothing is recorded if nothing is to be written, and the last materialisation is of the same data, the same code and
    the same inputs. An asset with a freshness policy is recorded in each run: Dagster counts its age from then, and
    `report_due` has a sync start a run for it in time.
    """
    if not isinstance(result, dg.MaterializeResult) or result.value is not NoValueSentinel:
        return result
    key = result.asset_key or context.asset_key
    spec = context.assets_def.specs_by_key[key]
    if spec.freshness_policy is not None or result.data_version is None or PAUSED in (result.metadata or {}):
        return result
    last = context.instance.get_latest_materialization_event(key)
    recorded = None if last is None else last.asset_materialization
    if recorded is None or PAUSED in recorded.metadata or recorded.partition is not None:
        return result
    tags = recorded.tags or {}
    if tags.get(DATA_VERSION_TAG) != result.data_version.value or tags.get(CODE_VERSION_TAG) != spec.code_version:
        return result
    if not _reads_the_same(context, spec, tags):
        return result
    context.log.info("nothing is new: the last materialisation stands")
    # The one way that Dagster has to end a step of an asset with its output and without an event of it: what is
    # downstream of a step without an output is skipped, and so are the checks.
    metadata = {**(result.metadata or {}), SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True}
    return dg.MaterializeResult(asset_key=result.asset_key, metadata=metadata)


def report_due(spec: dg.AssetSpec, last: dg.AssetMaterialization, *, age: timedelta, paused: bool) -> str:
    """Return why a run has a materialisation to record though nothing is new; empty if it has none.

    An asset with a freshness policy would be overdue before long: whoever starts a sync at regular times, and often
    enough for the policy, finds it older than half of what is allowed before it is too old.

    Args:
        last: its last materialisation.
        age: of that.
        paused: whether its writes are paused now.
    """
    policy = spec.freshness_policy
    if isinstance(policy, TimeWindowFreshnessPolicy):
        allowed = (policy.warn_window or policy.fail_window).to_timedelta()
        if age >= allowed / 2:
            return f"materialised {_whole(age)} ago, of {_whole(allowed)} that its freshness policy allows"
    elif policy is not None:
        return "its freshness policy counts from a run"
    if PAUSED in last.metadata and not paused:
        return "its page shows a pause that has ended"
    known = (last.tags or {}).get(CODE_VERSION_TAG)  # of a run; continuous mode does not tell it
    if known is not None and known != spec.code_version:
        return "its declaration is another than that of its last materialisation"
    return ""


def _whole(span: timedelta) -> timedelta:
    return timedelta(seconds=int(span.total_seconds()))


def _reads_the_same(context: dg.AssetExecutionContext, spec: dg.AssetSpec, tags: Mapping[str, str]) -> bool:
    """Return whether inputs have the data versions that a materialisation had read."""
    step = context.op_execution_context.get_step_execution_context()
    for dep in spec.deps:
        read = tags.get(f"{INPUT_DATA_VERSION_TAG_PREFIX}/{dep.asset_key.to_user_string()}")
        known = step.maybe_fetch_and_get_input_asset_version_info(dep.asset_key)
        version = None if known is None or known.data_version is None else known.data_version.value
        if read is not None and version is not None and read != version:
            return False
    return True
