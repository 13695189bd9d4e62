"""Asset check `freshness`: the oldest record that is not in a table is no older than the table declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from upsert_platform.core.model import Table
from upsert_platform.graph import keys
from upsert_platform.graph.check_parts import CheckPart
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.resources import PlatformResource
from upsert_platform.sync.freshness import Judgement, judge


def freshness_check(target: Table, names: AssetKeys = AS_DECLARED) -> CheckPart:
    """Looks at what waits now, on the whole way from the topics. Blocks nothing, and needs no JVM."""
    key = names.destination_key(target.name)

    def evaluate(_: dg.AssetCheckExecutionContext, platform: PlatformResource) -> Iterator[dg.AssetCheckResult]:
        binding = platform.sound()
        judged = judge(binding, binding.targets[target.name], platform.lake)
        yield dg.AssetCheckResult(
            check_name=keys.CHECK_FRESHNESS,
            asset_key=key,
            passed=judged.passed,
            severity=severity_of(judged),
            description=judged.text or None,
            metadata=metadata_of(judged),
        )

    spec = dg.AssetCheckSpec(
        keys.CHECK_FRESHNESS,
        asset=key,
        description="The oldest record that is not in the table is no older than 'freshness.warn-delay' (a"
        " warning) and 'freshness.max-delay' (an error).",
    )
    return CheckPart(spec, evaluate)


def severity_of(judged: Judgement) -> dg.AssetCheckSeverity:
    """Return the severity of a judgement that does not pass."""
    return dg.AssetCheckSeverity.ERROR if judged.fails else dg.AssetCheckSeverity.WARN


def metadata_of(judged: Judgement) -> Mapping[str, Any]:
    """The delay in seconds, the limits, and what is behind."""
    found: dict[str, Any] = {name.replace(".", "_").replace("-", "_"): limit for name, limit in judged.limits.items()}
    if judged.freshness.delay is not None:
        found["delay"] = round(judged.freshness.delay, 3)
    return found | ({"behind": judged.freshness.behind} if judged.freshness.waiting else {})
