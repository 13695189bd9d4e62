"""Job `compact`: the upkeep of the lake. Old changes of a key are dropped, files merged, and unused files deleted.

Runs beside `sync`: an append does not meet what a compaction rewrites, and readers keep the files that they began with.

Annotations are evaluated here: Dagster reads those of `context` as objects.
"""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from pydantic import Field

from upsert_platform.changelog import compaction
from upsert_platform.changelog.commit_times import last_batch_before
from upsert_platform.changelog.compaction import CompactionReport
from upsert_platform.changelog.head import BEGUN, Head
from upsert_platform.changelog.old_proofs import remove_old_proofs
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.upkeep import applied_before, remove_unused
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.model import Project, Table
from upsert_platform.core.plan import Query
from upsert_platform.core.platform_options import platform_settings
from upsert_platform.engine import upkeep as queries_upkeep
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.keys import AS_DECLARED, AssetKeys
from upsert_platform.graph.op_jobs import job_of
from upsert_platform.graph.resources import PlatformResource, SparkResource
from upsert_platform.sync.binding import Binding, changelog_of, query_store

COMPACT = "compact"


@dataclass(frozen=True)
class Applied:
    """The progress of the consumers of a changelog.

    Attributes:
        everywhere: the lowest batch of all tables and queries.
        tables: the batches of the tables.
        upto: the batch up to which history may be reduced: a table that is being written comes to hold a later one that
            nobody can tell yet, and is compared with what the changelog tells up to that; and a query is still to
            read what it has not applied, since superseded records move event time too.
    """

    everywhere: int
    tables: frozenset[int]
    upto: int

    def bounds(self) -> dict[str, Any]:
        """Return the arguments of `compact`."""
        return {"applied_everywhere": self.everywhere, "applied": self.tables, "upto": self.upto}


class CompactConfig(dg.Config):
    """Run configuration of job `compact`."""

    keep_hours: int = Field(
        168, ge=1, description="Files are deleted when nothing has needed them for so long; longer than any run takes."
    )


def compact_job(project: Project, names: AssetKeys = AS_DECLARED) -> dg.JobDefinition:
    """One step per changelog; those that have nothing to gain start no JVM."""
    steps = [
        *(_step(table, names) for table in project.sources()),
        *(_query_step(query, names) for query in project.queries()),
    ]

    return job_of(
        names.named(COMPACT),
        *steps,
        description="Keeps the lake small: changelogs are reduced to the last change per key, small files are merged,"
        " files that nothing needs are deleted. Tables are not touched; safe beside a sync.",
    )


def _step(table: Table, names: AssetKeys) -> Any:
    @dg.op(
        name=names.op_name("compact", table.name),
        description=f"Compacts the changelog of table {table.name}.",
        tags={"dagster/kind/spark": "", "dagster/kind/deltalake": ""},
        out=dg.Out(dg.Nothing),
    )
    @names.bound
    def step(
        context: dg.OpExecutionContext, config: CompactConfig, platform: PlatformResource, spark: SparkResource
    ) -> None:
        with told_plainly():
            spark.refuse_wrong(platform, writes=True)
            store = changelog_of(platform.sound().sources[table.name], platform.lake)
            applied = applied_of(platform, table.name, store, run=context.run.run_id, warn=context.log.warning)
            if _keeps_older_rows(platform, table.name):
                applied = replace(applied, upto=min([applied.upto, *applied.tables]))
            applied = replace(applied, upto=min(applied.upto, _retained(platform, table.name, store)))
            report = _compacted(context, store, spark, applied)
            removed = remove_unused(store, hours=config.keep_hours)
            removed += _remove_unused_refused(platform, table.name, hours=config.keep_hours)
            removed += remove_old_proofs(platform.lake, hours=config.keep_hours)
        context.log.info(f"{removed} files deleted that were unused for {config.keep_hours} hours")
        _tell(context, names.changelog_key(table.name), report, removed=removed, applied=applied.everywhere)

    return step


def _retained(platform: PlatformResource, name: str, store: ChangelogStore) -> int:
    """Return the batch up to which history is older than `history.retain`, or a later one than all without it."""
    retain = platform_settings(platform.sound().sources[name].table).history_retain
    return sys.maxsize if retain is None else last_batch_before(store, datetime.now(UTC) - retain)


def _query_step(query: Query, names: AssetKeys) -> Any:
    @dg.op(
        name=names.op_name("compact_query", query.name),
        description=f"Compacts the result of query {query.name}.",
        tags={"dagster/kind/deltalake": ""},
        out=dg.Out(dg.Nothing),
    )
    @names.bound
    def step(context: dg.OpExecutionContext, config: CompactConfig, platform: PlatformResource) -> None:
        with told_plainly():
            store = query_store(platform.sound().queries[query.name], platform.lake)
            applied = applied_of(platform, query.name, store, run=context.run.run_id, warn=context.log.warning)
            if _tells_before(platform, query.name) or _keeps_older_rows(platform, query.name):
                applied = replace(applied, upto=min([applied.upto, *applied.tables]))
            worthwhile = compaction.is_worthwhile(store, applied_everywhere=applied.everywhere, upto=applied.upto)
            report = queries_upkeep.compact(store, **applied.bounds()) if worthwhile else None
            removed = queries_upkeep.remove_unused(store, hours=config.keep_hours)
            removed += _remove_unused_refused(platform, query.name, hours=config.keep_hours)
        _tell(context, names.query_key(query.name), report, removed=removed, applied=applied.everywhere)

    return step


def _compacted(
    context: dg.OpExecutionContext, store: ChangelogStore, spark: SparkResource, applied: Applied
) -> CompactionReport | None:
    if not compaction.is_worthwhile(store, applied_everywhere=applied.everywhere, upto=applied.upto):
        context.log.info("nothing is new since the last compaction")
        return None
    context.log.info(f"reading {len(store.files())} files; every table has applied batch {applied.everywhere}")
    report = compaction.compact(spark.spark_session, store, **applied.bounds())
    context.log.info(
        f"{report.rows_before} rows in {report.files_before} files became {report.rows_after} in {report.files_after}"
    )
    return report


def applied_of(
    platform: PlatformResource, source: str, store: ChangelogStore, *, run: str, warn: Callable[[str], None]
) -> Applied:
    """Return how far the consumers of a changelog have applied it.

    0 stands for one that cannot be asked, or whose declaration has errors; among the tables it has the batch that the
    lake has noted.

    Args:
        warn: is told of a table that cannot be asked.
    """
    binding = platform.sound()
    before = store.head()  # asked first: a table that plans a write from now on plans it up to there at least
    head = before.batch if before is not None else 0
    lowest: list[int] = []
    tables: set[int] = set()
    awaited: list[int] = []
    for bound in binding.queries.values():
        if source in bound.query.tables:
            found = query_store(bound, platform.lake).head()
            applied = found.positions.offsets.get(source, {}).get(0, 0) if found is not None else 0
            lowest.append(applied)
            awaited += [applied] if found is not None else []  # a new query begins with what is there
    for name, target in binding.targets.items():
        if target.source.table.name != source:
            continue
        try:
            hop = platform.destination_hop(name, run=run)
            try:
                state = hop.plan().state
            finally:
                hop.destination.close()
            applied = state.applied_batch
            lowest.append(applied)
            awaited += [applied] if state.holder is not None else []
        except UpsertPlatformError as error:
            warn(f"tombstones are kept, because table '{name}' does not tell what it has: {error}")
            lowest.append(0)
            applied = applied_before(store, name)
        tables.add(applied)
    for name in _left_out(binding, source, before):
        warn(f"tombstones are kept, because the declaration of '{name}' has errors, so that nobody can ask what it has")
        lowest.append(0)
        applied = applied_before(store, name)
        tables.add(applied)
        awaited.append(applied)  # whether it needs every row that is behind it is not known either
    return Applied(min(lowest, default=0), frozenset(tables), min([head, *awaited]))


def _left_out(binding: Binding, source: str, head: Head | None) -> list[str]:
    """Return the consumers of a changelog that errors of the declarations have left out.

    A statement that cannot be read names no table: then whoever has noted in the changelog what it has applied, and is
    not among those that are declared, may be the one that it declares.
    """
    if not binding.errors:
        return []
    known = {
        *(name for name, target in binding.targets.items() if target.source.table.name == source),
        *(name for name, bound in binding.queries.items() if source in bound.query.tables),
    }
    written = [insert.target for insert in binding.project.inserts if insert.source == source]
    noted = [name for name in (head.held if head else ()) if not name.endswith(BEGUN)]
    return [name for name in dict.fromkeys((*written, *noted)) if name not in known]


def _tells_before(platform: PlatformResource, source: str) -> bool:
    """Return whether a table that follows a query tells what its rows were before."""
    targets = platform.sound().targets.values()
    return any(target.connector.tells_before for target in targets if target.source.table.name == source)


def _keeps_older_rows(platform: PlatformResource, source: str) -> bool:
    """Return whether a table that follows a changelog keeps older rows of a key, so that it needs every row once."""
    targets = platform.sound().targets.values()
    return any(target.places for target in targets if target.source.table.name == source)


def _remove_unused_refused(platform: PlatformResource, source: str, *, hours: int) -> int:
    """Deletes what writes that died left beside the refused rows of a changelog's tables; how many files."""
    tables = [name for name, target in platform.sound().targets.items() if target.source.table.name == source]
    return sum(RefusedStore(platform.lake.refused(name)).remove_unused(hours=hours) for name in tables)


def _tell(
    context: dg.OpExecutionContext, asset: dg.AssetKey, report: CompactionReport | None, *, removed: int, applied: int
) -> None:
    metadata = {**(asdict(report) if report else {}), "files_deleted": removed, "applied_everywhere": applied}
    told = "compacted" if report else "nothing to compact"
    context.log_event(dg.AssetObservation(asset_key=asset, description=told, metadata=metadata))
