"""Dagster metadata of a step. Numbers are plain ints and floats, so that the UI plots them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import dagster as dg

from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.destination import DestinationState
from upsert_platform.core.errors import ChangelogError
from upsert_platform.engine.engine import QueryBatchPlan
from upsert_platform.spark.spark_work import SparkWork
from upsert_platform.sync.changelog_hop import ChangelogPlan, ChangelogRun
from upsert_platform.sync.comparison import Comparison
from upsert_platform.sync.destination_hop import DestinationPlan
from upsert_platform.sync.destination_run import DestinationRun
from upsert_platform.sync.frame_hop import WrittenFrame
from upsert_platform.sync.query_hop import QueryRun

_COUNTED_ROWS: Final = 20_000_000
"""Rows of a table of the lake up to which some of them are counted, in one column of its files."""


def of_topic(plan: ChangelogPlan, topic: str) -> dict[str, Any]:
    """Metadata of a topic: partitions, start and end offsets, lag."""
    found = next(item for item in plan.topics if item.name == topic)
    waiting = {item.partition: item.offsets for item in plan.backlog if item.topic == topic}
    return {
        "partitions": len(found.partitions),
        "lag": sum(waiting.values()),
        "offsets": dg.MetadataValue.table(
            [
                dg.TableRecord(
                    {
                        "partition": item.partition,
                        "start": item.low,
                        "end": item.end,
                        "lag": waiting.get(item.partition, 0),
                    }
                )
                for item in found.partitions
            ]
        ),
    }


def data_version_of_topic(plan: ChangelogPlan, topic: str) -> dg.DataVersion:
    """Return the data version of a topic: its end offsets in order of partition, or the position in a server's log."""
    return dg.DataVersion(plan.versions[topic])


def data_version_of_changelog(plan: ChangelogPlan) -> dg.DataVersion:
    """Return the data version of a changelog: the ends of its topics."""
    return dg.DataVersion(";".join(data_version_of_topic(plan, topic.name).value for topic in plan.topics))


def observed_topic(plan: ChangelogPlan, topic: str, *, key: dg.AssetKey) -> dg.AssetObservation:
    """Return the observation of a topic, or of a database table, from a plan."""
    return dg.AssetObservation(
        asset_key=key,
        metadata=of_topic(plan, topic),
        tags={"dagster/data_version": data_version_of_topic(plan, topic).value},
    )


def of_changelog_plan(plan: ChangelogPlan) -> dict[str, Any]:
    """Metadata of a changelog before a run."""
    return {"lag_before": plan.lag, "batch": plan.head.batch if plan.head else 0, **plan.details}


def of_changelog_run(run: ChangelogRun, *, lag: int) -> dict[str, Any]:
    """Metadata of a changelog after a run.

    Args:
        lag: offsets that came while it ran.
    """
    account = run.account
    return {
        "batch": run.head.batch,
        "batches": run.batches,
        "lag": lag,
        "seconds": round(run.seconds, 3),
        "records_per_second": round(account.records / run.seconds, 1) if run.seconds else 0.0,
        **of_account(account),
        **({"keys_of_other_partitions": sum(item.keys for item in run.moved)} if run.moved else {}),
        # Empty when another run had read everything by the time that this one came to it.
        **({"ranges": _ranges(run)} if run.ranges else {}),
    }


def _ranges(run: ChangelogRun) -> dg.TableMetadataValue:
    return dg.MetadataValue.table([dg.TableRecord(_range_row(item)) for item in run.ranges[-100:]])


def of_account(account: RangeAccount) -> dict[str, Any]:
    """The counts of the offsets of a run, summed over its ranges."""
    return {
        "offsets": account.offsets,
        "records": account.records,
        "gaps": account.gaps,
        "rows": account.rows,
        "tombstones": account.tombstones,
        "superseded": account.superseded,
        "quarantined": account.quarantined,
        "skipped": account.skipped_total,
    }


def _range_row(item: RangeAccount) -> dict[str, str | int]:
    return {
        "topic": item.topic,
        "partition": item.partition,
        "start": item.start,
        "end": item.end,
        "records": item.records,
        "gaps": item.gaps,
        "rows": item.rows,
        "superseded": item.superseded,
        "quarantined": item.quarantined,
    }


def of_store(store: ChangelogStore) -> dict[str, Any]:
    """Return the location of a lake table and its number of change rows, history included and accounting excluded.

    Nothing is counted in a table with more than some million rows, nor in one without files.
    """
    counts = [_COUNTED_ROWS + 1 if item.rows is None else item.rows for item in store.files()]
    if not counts or sum(counts) > _COUNTED_ROWS:
        return {"dagster/uri": store.uri}
    try:
        return {"dagster/uri": store.uri, "dagster/row_count": store.count_changes()}
    except ChangelogError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        # A compaction has replaced a file meanwhile, and another run deleted it.
        return {"dagster/uri": store.uri}


def of_destination_plan(plan: DestinationPlan) -> dict[str, Any]:
    """Metadata of a destination before a run."""
    return {"batches_behind": plan.behind, "applied_batch": plan.state.applied_batch}


def of_destination_run(run: DestinationRun) -> dict[str, Any]:
    """Metadata of a destination after a run."""
    report = run.report
    written = report.upserts + report.deletes
    return {
        "applied_batch": run.span.upto,
        "batches": run.span.upto - run.span.after,
        "batches_behind": 0,
        "upserts": report.upserts,
        "deletes": report.deletes,
        "deletes_unmatched": run.unmatched,
        "deletes_never_written": run.never_written,
        "refused": report.refused_count,
        "multi_partition_keys": run.multi_partition_keys,
        "seconds": round(run.seconds, 3),
        "rows_per_second": round(written / run.seconds, 1) if run.seconds else 0.0,
        **{f"writer/{name}": value for name, value in report.metrics.items()},
    }


def of_spark(pages: Mapping[str, str], work: SparkWork) -> dict[str, Any]:
    """Return Spark's jobs, stages and tasks with links to pages of the session; empty if no session was used."""
    links = {name: dg.MetadataValue.url(page) for name, page in pages.items()}
    return {**links, **({f"spark_{name}": count for name, count in asdict(work).items()} if work.jobs else {})}


def of_written_frame(written: WrittenFrame) -> dict[str, Any]:
    """Metadata of a DataFrame that was written."""
    report = written.report
    return {
        "applied_batch": written.batch,
        "upserts": report.upserts,
        "deletes": report.deletes,
        "refused": report.refused_count,
        "seconds": round(written.seconds, 3),
        **{f"writer/{name}": value for name, value in report.metrics.items()},
    }


def of_comparison(found: Comparison) -> Mapping[str, Any]:
    """Metadata of a check."""
    shown: dict[str, Any] = {
        "batch": found.batch,
        "compared": found.compared,
        "missing": found.missing,
        "extra": found.extra,
        "stale": found.stale,
        "refused": found.refused,
        "complete": found.complete,
        **({} if found.complete else {"sampled_earlier_batches": found.earlier_batches}),
        **({"expired": found.expired} if found.expired else {}),
        **({"rows": found.rows} if found.rows is not None else {}),
        **({"beside": found.beside} if found.beside else {}),
    }
    if found.sample:
        shown["sample"] = dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in found.sample])
    return shown


def of_state(state: DestinationState) -> Mapping[str, Any]:
    """Metadata of a destination, from its control record."""
    verdict = state.verdict
    return {
        "applied_batch": state.applied_batch,
        "last_check": "none"
        if verdict is None
        else f"{'passed' if verdict.passed else 'failed'} at batch {verdict.batch}",
    }


def of_query_plan(plan: QueryBatchPlan) -> dict[str, Any]:
    """Metadata of a query before a run."""
    return {"batches_behind": plan.behind, "batch": plan.head.batch if plan.head else 0}


def data_version_of_query(plan: QueryBatchPlan) -> dg.DataVersion:
    """Heads of the changelogs that a query reads."""
    return dg.DataVersion(";".join(f"{item.changelog_id}:{item.head}" for item in plan.slices) or "none")


def of_query_run(run: QueryRun) -> dict[str, Any]:
    """Metadata of a query after a run."""
    return {
        "batch": run.batch,
        "batches": run.batches,
        "batches_behind": 0,
        "changes_read": run.read,
        "rows": run.written,
        "state_rows_written": run.state_rows,
        "state_bytes": run.state_bytes,
        **({"keys_of_several_inserts": run.met} if run.met else {}),
        **({"late_rows": run.late} if run.late else {}),
        **({"state_rows_let_go": run.let_go} if run.let_go else {}),
        **({"retractions_of_let_go_rows": run.forgotten} if run.forgotten else {}),
        "seconds": round(run.seconds, 3),
        "changes_per_second": round(run.read / run.seconds, 1) if run.seconds else 0.0,
    }
