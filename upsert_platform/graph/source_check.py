"""Asset check `equals_source`: a proof that a table holds what its topics say, whoever wrote it.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

from collections.abc import Iterator
from typing import Any, Final

import dagster as dg
from pydantic import Field

from upsert_platform.graph import keys
from upsert_platform.graph.checks import is_asked_for
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.jobs import PROVE, VERIFY
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.model import Table
from upsert_platform.platform_options import Severity, platform_settings
from upsert_platform.proofs.ends import At
from upsert_platform.proofs.inputs import NotProvableError
from upsert_platform.proofs.proof import SETTLE_SECONDS, Proof, prove

_REMEDY: Final = (
    "job '{verify}' says whether the lake agrees with the topic: if it finds these rows too, 'upsert-platform reconcile"
    " {table}' writes just those; if it does not, 'upsert-platform replay {source}' reads the topic again"
)


class ProveConfig(dg.Config):
    """Run configuration of a proof."""

    at: str | None = Field(
        None,
        description="Where the topics end: applied, latest, group:NAME, offsets (0:42,1:17) or a time"
        " (2026-11-01T12:00:00Z). Left out: what the platform has applied, or the latest offsets of a table that"
        " somebody else writes.",
    )
    settle_seconds: float = Field(
        SETTLE_SECONDS, ge=0, description="How long rows that differ are looked at again, in seconds."
    )


def source_check(target: Table, names: AssetKeys = AS_DECLARED) -> dg.AssetChecksDefinition:
    """Only in runs that ask for it: job `prove`, or the check by itself. Reads the topics and the table as a whole."""
    key = names.destination_key(target.name)

    @dg.multi_asset_check(
        name=names.op_name("equals_source", target.name),
        specs=[
            dg.AssetCheckSpec(
                keys.CHECK_SOURCE,
                asset=key,
                description="The table holds what its topics say, whoever wrote it. Its metadata has the offsets up to"
                f" which that is proven. Job `{names.named(PROVE)}` executes it, and who executes it by itself.",
            )
        ],
        can_subset=True,
    )
    @names.bound
    def check(
        context: dg.AssetCheckExecutionContext, config: ProveConfig, platform: PlatformResource, spark: SparkResource
    ) -> Iterator[dg.AssetCheckResult]:
        if not is_asked_for(context.run):
            yield _not_proven(
                key, f"job '{names.named(PROVE)}' proves the table, and who executes this check by itself"
            )
            return
        with told_plainly():
            spark.refuse_wrong(platform)
            binding = platform.binding()
            bound = binding.targets[target.name]
            try:
                found = prove(
                    spark.spark_session,
                    bound,
                    binding,
                    platform.lake,
                    at=At.parse(config.at) if config.at is not None else None,
                    settle=config.settle_seconds,
                    tell=context.log.info,
                )
            except NotProvableError as error:
                yield _not_proven(key, str(error))
                return
        yield _proven(target, bound.source.table.name, found, names)

    return check


def _not_proven(key: dg.AssetKey, reason: str) -> dg.AssetCheckResult:
    """A planned check that yields nothing would show as skipped, or as failed in a run that fails elsewhere."""
    return dg.AssetCheckResult(
        check_name=keys.CHECK_SOURCE,
        asset_key=key,
        passed=True,
        metadata={"new": False},
        description=f"not proven: {reason}",
    )


def _proven(target: Table, source: str, proof: Proof, names: AssetKeys) -> dg.AssetCheckResult:
    remedy = _REMEDY.format(verify=names.named(VERIFY), table=target.name, source=source)
    fails = platform_settings(target).equals_source is Severity.ERROR
    return dg.AssetCheckResult(
        check_name=keys.CHECK_SOURCE,
        asset_key=names.destination_key(target.name),
        passed=proof.equal,
        severity=dg.AssetCheckSeverity.ERROR if fails else dg.AssetCheckSeverity.WARN,
        metadata=_metadata(proof),
        description=None if proof.equal else f"{_example(proof)}; {remedy}",
    )


def _metadata(proof: Proof) -> dict[str, Any]:
    found = proof.found
    shown: dict[str, Any] = {
        "proven_through": proof.position,
        "proven_at": dg.MetadataValue.timestamp(proof.proven_at),
        "at": proof.at,
        "compared": found.compared,
        "missing": found.missing,
        "extra": found.extra,
        "stale": found.stale,
        "duplicates": proof.duplicates,
        "refused": found.refused,
        "moving": proof.moving,
        "unknown": proof.unknown,
        "quarantined": proof.quarantined,
        "looks": proof.looks,
        "seconds": round(proof.seconds, 3),
        "new": True,
    }
    if found.sample:
        shown["sample"] = dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in found.sample])
    return shown


def _example(proof: Proof) -> str:
    if not proof.found.sample:
        return f"key {proof.duplicate_keys[0]} has several rows"
    row = proof.found.sample[0]
    difference = f": {row['difference']}" if row.get("difference") else ""
    return f"for example {row['key']} is {row['status']}{difference}"
