"""Asset check `equals_source`: a proof that a table holds what its topics, or its database, say, whoever wrote it.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

from collections.abc import Iterator
from typing import Any, Final

import dagster as dg
from pydantic import Field

from upsert_platform.core.error_catalogue import shown
from upsert_platform.core.errors import TopicError, UpsertPlatformError
from upsert_platform.core.model import Table
from upsert_platform.core.platform_options import Severity, platform_settings
from upsert_platform.graph import keys
from upsert_platform.graph.checks import is_asked_for, read_again
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.jobs import PROVE, VERIFY
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.rebuild import REBUILD
from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.graph.standing import is_proven_at_once, open_result, standing_result
from upsert_platform.proofs.database import DatabaseProof, prove_database
from upsert_platform.proofs.ends import At
from upsert_platform.proofs.inputs import NotProvableError
from upsert_platform.proofs.lake_proof import DATABASE, LAKE, SOURCES, prove_by_lake, source_of
from upsert_platform.proofs.proof import SETTLE_SECONDS, Proof, prove
from upsert_platform.sync.binding import Target

_REMEDY: Final = (
    "job '{verify}' says whether the lake agrees with the topic: if it finds these rows too, 'upsert-platform reconcile"
    " {table}' writes just those; if it does not, {again}"
)


_DATABASE_REMEDY: Final = (
    "rows that differ in the changelog are read again by job '{rebuild}' with this table; those of the destination are"
    " written by 'upsert-platform reconcile {table}'"
)


class ProveConfig(dg.Config):
    """Run configuration of a proof."""

    at: str | None = Field(
        None,
        description="Where the topics end: applied, latest, group:NAME, offsets (0:42,1:17) or a time"
        " (2026-11-01T12:00:00Z); of the lake also a batch (41). Left out: what the platform has applied, or the latest"
        " offsets of a table that somebody else writes.",
    )
    source: str | None = Field(
        None,
        description="What the table is compared with: topic, database, or lake (its rows as of a batch, offsets or a"
        " time). Left out: what it is written from, and the lake where `at` is a batch.",
    )
    settle_seconds: float = Field(
        SETTLE_SECONDS, ge=0, description="How long rows that differ are looked at again, in seconds."
    )
    max_load: int | None = Field(
        None, ge=1, description="Of a table that follows a database: wait while more threads of the server run."
    )
    max_lag_seconds: float | None = Field(
        None, ge=0, description="Of a table that follows a database: wait while that replica is further behind."
    )


def source_check(target: Table, names: AssetKeys = AS_DECLARED) -> dg.AssetChecksDefinition:
    """In runs that ask for it, job `prove` or the check by itself, and on Spark in the first run of a small table.

    Reads the topics and the table as a whole.
    """
    key = names.destination_key(target.name)

    @dg.multi_asset_check(
        name=names.op_name("equals_source", target.name),
        specs=[
            dg.AssetCheckSpec(
                keys.CHECK_SOURCE,
                asset=key,
                description="The table holds what its topics, or the database that it follows, say, whoever wrote it."
                " Its metadata has the offsets, or the position of the log, up to which that is proven. Job"
                f" `{names.named(PROVE)}` proves it, and so does an execution of this check alone.",
            )
        ],
        can_subset=True,
    )
    @names.bound
    def check(
        context: dg.AssetCheckExecutionContext, config: ProveConfig, platform: PlatformResource, spark: SparkResource
    ) -> Iterator[dg.AssetCheckResult]:
        this, asked = dg.AssetCheckKey(key, keys.CHECK_SOURCE), is_asked_for(context.run)
        standing = None if asked else standing_result(context, this, mark="proven_through")
        if standing is not None and standing.passed:
            yield standing
            return
        with told_plainly():
            spark.refuse_wrong(platform)
            binding = platform.sound()
            bound = binding.targets[target.name]
            source = _source_of(bound, config)
            # Without a session, which a run of this process' own work does not open, nothing is proven in passing.
            in_passing = not spark.most_local_rows() and source != DATABASE
            if not asked and not (in_passing and is_proven_at_once(context, bound, platform)):
                told = f"not proven: execute this check alone, or job '{names.named(PROVE)}'"
                yield standing or open_result(this, told)
                return
            if source == DATABASE:
                yield _proven_by_database(target, _compare_database(context, config, platform, spark, bound), names)
                return
            try:
                settle, tell = config.settle_seconds, context.log.info
                if source == LAKE:
                    found = prove_by_lake(
                        spark.spark_session, bound, platform.lake, at=config.at, settle=settle, tell=tell
                    )
                else:
                    at = At.parse(config.at) if config.at is not None else None
                    found = prove(spark.spark_session, bound, binding, platform.lake, at=at, settle=settle, tell=tell)
            except UpsertPlatformError as error:
                if asked and not isinstance(error, NotProvableError):
                    raise  # in passing it is no fault of what the run wrote
                told = f"not proven: {shown(error)}; 'check.equals-source' = 'off' of the table leaves this check out"
                yield open_result(this, told)
                return
        yield _proven(target, bound, found, names)

    return check


def _source_of(target: Target, config: ProveConfig) -> str:
    if config.source is not None and config.source not in SOURCES:
        raise TopicError(
            f"'{config.source}' in the run's configuration `source` is none of {', '.join(SOURCES)}: nothing is proven"
        )
    return source_of(target, config.source, config.at)


def _compare_database(
    context: dg.AssetCheckExecutionContext,
    config: ProveConfig,
    platform: PlatformResource,
    spark: SparkResource,
    bound: Target,
) -> DatabaseProof:
    return prove_database(
        spark.spark_session,
        bound,
        platform.lake,
        max_threads=config.max_load,
        max_lag=config.max_lag_seconds,
        tell=context.log.info,
    )


def _proven_by_database(target: Table, proof: DatabaseProof, names: AssetKeys) -> dg.AssetCheckResult:
    first = next(iter(proof.examples), None)
    remedy = _DATABASE_REMEDY.format(rebuild=names.named(REBUILD), table=target.name)
    difference = f": {first['difference']}" if first and first.get("difference") else ""
    example = (
        f"for example {first['key']} is {first['status']} in the {first['in']}{difference}" if first else "differs"
    )
    shown: dict[str, Any] = {
        "proven_through": str(proof.through),
        "proven_offset": proof.through.number,
        "proven_at": dg.MetadataValue.timestamp(proof.proven_at),
        "compared": proof.changelog.rows,
        "missing": proof.missing,
        "extra": proof.extra,
        "stale": proof.stale,
        "refused": proof.refused,
        "expired": proof.expired,
        "fetched_chunks": proof.changelog.fetched,
        "seconds": round(proof.seconds, 3),
        "new": True,
    }
    if proof.examples:
        shown["sample"] = dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in proof.examples])
    return dg.AssetCheckResult(
        check_name=keys.CHECK_SOURCE,
        asset_key=names.destination_key(target.name),
        passed=proof.equal,
        severity=_severity(target),
        metadata=shown,
        description=None if proof.equal else f"{example}; {remedy}",
    )


def _severity(target: Table) -> dg.AssetCheckSeverity:
    fails = platform_settings(target).equals_source is Severity.ERROR
    return dg.AssetCheckSeverity.ERROR if fails else dg.AssetCheckSeverity.WARN


def _proven(target: Table, bound: Target, proof: Proof, names: AssetKeys) -> dg.AssetCheckResult:
    remedy = _REMEDY.format(verify=names.named(VERIFY), table=target.name, again=read_again(bound))
    return dg.AssetCheckResult(
        check_name=keys.CHECK_SOURCE,
        asset_key=names.destination_key(target.name),
        passed=proof.equal,
        severity=_severity(target),
        metadata=_metadata(proof),
        description=None if proof.equal else f"{_example(proof)}; {remedy}",
    )


def _metadata(proof: Proof) -> dict[str, Any]:
    found = proof.found
    shown: dict[str, Any] = {
        "proven_through": proof.position,
        "proven_offset": sum(end for read in proof.through.values() for end in read.end.values()),
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
    if proof.batch is not None:
        shown |= {"batch": proof.batch, "history": proof.history}
    if found.sample:
        shown["sample"] = dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in found.sample])
    return shown


def _example(proof: Proof) -> str:
    if not proof.found.sample:
        return f"key {proof.duplicate_keys[0]} has several rows"
    row = proof.found.sample[0]
    difference = f": {row['difference']}" if row.get("difference") else ""
    return f"for example {row['key']} is {row['status']}{difference}"
