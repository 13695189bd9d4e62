"""Job `replay`: reads a topic again, into the same tables or into new ones.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

from collections.abc import Mapping
from typing import Any, Final

import dagster as dg
from pydantic import Field

from upsert_platform.core.errors import DeclarationError, DestinationError, Problem
from upsert_platform.core.model import Project
from upsert_platform.core.source import Start
from upsert_platform.graph import metadata
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.op_jobs import job_of
from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.sync.binding import changelog_of
from upsert_platform.sync.following import follow
from upsert_platform.sync.replay_into import new_targets, replay_into
from upsert_platform.sync.replay_order import check_keys
from upsert_platform.sync.replay_start import start_of
from upsert_platform.sync.replay_topic import replay_topic

REPLAY = "replay"
_STEP = "replay_topic"
_EXAMPLE: Final[Mapping[str, Any]] = {"timestamp": "2026-01-01T00:00:00Z", "offsets": {}, "into": {}, "dry_run": True}
"""Configuration of a launch without one, for a reader of the launchpad to change: it writes nothing."""


class ReplayConfig(dg.Config):
    """Run configuration of job `replay`: the topic, the start, and the target."""

    # A job with a default configuration cannot have a field without one.
    table: str = Field(
        "",
        description="Declared name of the table that is read: its topics are read again; the only one if left out.",
    )
    timestamp: str | None = Field(
        None,
        description="Start at the first records that are not older: ISO 8601 (2026-11-01T12:00:00Z), or milliseconds"
        " since 1970. Without it and `offsets`, at the first records that the topic still has.",
    )
    offsets: dict[str, int] = Field(
        default_factory=dict,
        description="Start at these offsets, partition to offset; other partitions at their first record.",
    )
    into: dict[str, str] = Field(
        default_factory=dict,
        description="Tables that are written from it, each with the name of a new table in the same system, which gets"
        " its rows: {users_serving: users_serving_2}. Left out, the tables themselves are corrected.",
    )
    dry_run: bool = Field(False, description="Only show what would be read and written.")


def replay_job(project: Project, names: AssetKeys = AS_DECLARED) -> Any:
    """The job; None for a project that reads no topics."""
    tables = sorted(table.name for table in project.sources())
    if not tables:
        return None

    @dg.op(
        name=names.named(_STEP),
        description=f"Reads topics again: of {', '.join(tables)}.",
        tags={"dagster/kind/spark": ""},
        out=dg.Out(dg.Nothing),
    )
    @names.bound
    def step(
        context: dg.OpExecutionContext, config: ReplayConfig, platform: PlatformResource, spark: SparkResource
    ) -> None:
        with told_plainly():
            spark.refuse_wrong(platform, writes=True)
            if not config.table and len(tables) == 1:
                config = config.model_copy(update={"table": tables[0]})
            if config.table not in platform.binding().sources:
                told = f"no insert reads a table '{config.table}': set 'table' to one of {', '.join(tables)}"
                raise DeclarationError([Problem(told, None)])
            start = start_of(timestamp=config.timestamp, offsets=config.offsets)
            if config.into:
                _into_new(context, config, platform, spark, start, names)
            else:
                _into_same(context, config, platform, spark, start, names)

    return job_of(
        names.named(REPLAY),
        step,
        description="Reads a topic again, as its table is declared now, from its first record, a time or offsets on."
        " The rows that then count are committed in one batch and its tables corrected: an older value never takes the"
        " place of a newer one. With `into`, new tables are written instead. `dry_run: true` shows, and is what the"
        " launchpad begins with.",
        config={names.named(_STEP): {"config": {"table": tables[0], **_EXAMPLE}}},
    )


def _into_same(
    context: dg.OpExecutionContext,
    config: ReplayConfig,
    platform: PlatformResource,
    spark: SparkResource,
    start: Start,
    names: AssetKeys,
) -> None:
    binding, run = platform.binding(), context.run.run_id
    source = binding.sources[config.table]
    check_keys(binding, config.table)
    session = spark.spark_session
    store = changelog_of(source, platform.lake)
    done = replay_topic(session, source, store, start=start, run=run, dry_run=config.dry_run, tell=context.log.info)
    counts = done.counts()
    context.log.info(", ".join(f"{value} {name.replace('_', ' ')}" for name, value in counts.items()))
    if done.uncertain:
        context.log.warning(done.warning())
    context.log_event(
        dg.AssetObservation(
            asset_key=names.changelog_key(config.table),
            description="shown" if config.dry_run else "replayed",
            metadata={"dry_run": config.dry_run, **counts, "batch": done.batch or 0},
        )
    )
    if done.batch is None:
        return
    for name, written in follow(session, binding, platform.lake, config.table, run=run, tell=context.log.info):
        if written is not None:
            context.log_event(
                dg.AssetObservation(
                    asset_key=names.destination_key(name),
                    description="written after a replay",
                    metadata=metadata.of_destination_run(written),
                )
            )


def _into_new(
    context: dg.OpExecutionContext,
    config: ReplayConfig,
    platform: PlatformResource,
    spark: SparkResource,
    start: Start,
    names: AssetKeys,
) -> None:
    binding = platform.binding()
    targets = new_targets(binding, config.table, config.into, start=start)
    for name, target in targets.items():
        done = replay_into(
            spark.spark_session,
            target,
            platform.lake,
            start=start,
            run=context.run.run_id,
            dry_run=config.dry_run,
            tell=context.log.info,
        )
        shown: dict[str, Any] = {"dry_run": config.dry_run, "new_table": config.into[name], "offsets": done.offsets}
        shown |= {"changelog": done.changelog}
        if done.written is not None:
            shown |= metadata.of_destination_run(done.written)
        if done.compared is not None:
            shown |= metadata.of_comparison(done.compared)
        context.log.info(f"{name} into '{config.into[name]}': {done.offsets} offsets to read")
        context.log_event(
            dg.AssetObservation(
                asset_key=names.destination_key(name), description=f"replayed into {config.into[name]}", metadata=shown
            )
        )
        if done.compared is not None and not done.compared.passed:
            raise DestinationError(
                f"table '{config.into[name]}' differs from its topic: {done.compared.detail}; does another"
                " program write it?"
            )
