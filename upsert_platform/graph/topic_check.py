"""Asset check `equals_topic`: the referee's verdict on a table, straight against its topic, whatever the lake holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import dagster as dg

from upsert_platform.core.error_catalogue import shown as shown_error
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.model import Table
from upsert_platform.core.platform_options import Severity, platform_settings
from upsert_platform.graph import keys
from upsert_platform.graph.check_parts import CheckPart
from upsert_platform.graph.checks import is_asked_for, read_again
from upsert_platform.graph.jobs import AUDIT, VERIFY
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.resources import PlatformResource
from upsert_platform.graph.standing import is_proven_at_once, open_result, standing_result
from upsert_platform.sync.audit import Audit, audit_or_reason
from upsert_platform.sync.binding import Target

_REMEDY = (
    "job '{verify}' tells whether the lake says the same as the topic: if it finds these rows too, 'upsert-platform"
    " reconcile {table}' writes just those; if it does not, {again}"
)

_IN_MEMORY: Final = "its topic is held in memory, where no other reader finds it"


def topic_check(target: Table, names: AssetKeys = AS_DECLARED) -> CheckPart:
    """In runs that ask for it, job `audit` or the check by itself, and in the first run of a small table.

    Reads the whole topic, and needs no JVM.
    """
    key = names.destination_key(target.name)

    def evaluate(context: dg.AssetCheckExecutionContext, platform: PlatformResource) -> Iterator[dg.AssetCheckResult]:
        this, asked = dg.AssetCheckKey(key, keys.CHECK_TOPIC), is_asked_for(context.run)
        standing = None if asked else standing_result(context, this, mark="equal_rows")
        if standing is not None and standing.passed:
            yield standing
            return
        bound = platform.sound().targets[target.name]
        if not asked and not is_proven_at_once(context, bound, platform):
            told = f"not judged: execute this check alone, or job '{names.named(AUDIT)}'"
            yield standing or open_result(this, told)
            return
        try:
            found = audit_or_reason(bound, platform.lake) if platform.has_servers else _IN_MEMORY
        except UpsertPlatformError as error:
            if asked:
                raise
            found = shown_error(error)  # in passing: it is no fault of what the run wrote
        if isinstance(found, str):
            told = f"not judged: {found}; 'check.equals-topic' = 'off' of the table leaves this check out"
            yield open_result(this, told)
            return
        yield _judged(target, bound, found, names)

    spec = dg.AssetCheckSpec(
        keys.CHECK_TOPIC,
        asset=key,
        description="The table holds what its topic says, up to the batch that it has applied, as a reader sees"
        f" it that shares no code with the platform. Job `{names.named(AUDIT)}` compares it, and so does an"
        " execution of this check alone.",
    )
    return CheckPart(spec, evaluate)


def _judged(target: Table, bound: Target, found: Audit, names: AssetKeys) -> dg.AssetCheckResult:
    remedy = _REMEDY.format(verify=names.named(VERIFY), table=target.name, again=read_again(bound))
    verdict = found.verdict
    only_refused = verdict.differing == verdict.refused
    fails = platform_settings(target).equals_topic is Severity.ERROR and not only_refused
    shown = "; ".join(f"{item.key} is {item.status} {item.detail}".rstrip() for item in verdict.differences[:3])
    return dg.AssetCheckResult(
        check_name=keys.CHECK_TOPIC,
        asset_key=names.destination_key(target.name),
        passed=verdict.equal,
        severity=dg.AssetCheckSeverity.ERROR if fails else dg.AssetCheckSeverity.WARN,
        metadata={
            "batch": found.batch,
            "batches_behind": found.behind,
            "equal_rows": verdict.equal_rows,
            "missing": verdict.missing,
            "extra": verdict.extra,
            "stale": verdict.stale,
            "twice": verdict.twice,
            "refused": verdict.refused,
            "not_judged": verdict.open_keys + verdict.unknown + verdict.moving,
            "new": True,
        },
        description=None if verdict.equal else f"{shown}; {remedy}",
    )
