"""The check of a batch of few keys by one task: what `verify.check_batch` finds."""

from __future__ import annotations

from upsert_platform.changelog.check_task import CheckOfBatch
from upsert_platform.core.capabilities import (
    ComparesRecords,
    ExpiresPartitions,
    ExpiresRows,
    WritesByMode,
    WritesInTask,
)
from upsert_platform.core.masking import Mask
from upsert_platform.core.task_runner import LocalTaskRunner
from upsert_platform.sync.arrow_insert import ArrowInsert
from upsert_platform.sync.comparison import (
    SAMPLE_ROWS,
    SAMPLE_SCANNED_ROWS,
    SHOWN_ROWS,
    Comparison,
    describe,
    sampled_since,
)
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.few_files import few_files
from upsert_platform.sync.on_demand import OnDemand


def check_by_one_task(spark: OnDemand, hop: DestinationHop, *, after: int, upto: int) -> Comparison | None:
    """Compares the keys of the batches after `after` and up to `upto`, and a sample of earlier ones.

    Args:
        spark: gives the runner of the task.

    Returns:
        None where Spark has to do it: there is more than a little to look at, or the destination has rules of its own
        (rows that expire, are refused, or are written by a mode that keeps what is there), or rows differ that may have
        been changed meanwhile.
    """
    destination = hop.destination
    if not isinstance(destination, WritesInTask) or not _is_plain(hop):
        return None
    if ArrowInsert.of(hop.target, destination, sets_aside=True) is None:
        return None
    rows = hop.rows_between(after=after, upto=upto)
    most = spark.rows if spark.is_local(rows, 0) else spark.most_rows
    room = min(SAMPLE_SCANNED_ROWS, most - rows)
    since, earlier_rows = sampled_since(hop, after, most=room, behind=_large_until(spark, hop, after))
    few = few_files(spark, hop.store, after=since, upto=upto)
    if since < after and not (few is not None and isinstance(few.runner, LocalTaskRunner)):
        alone = few_files(spark, hop.store, after=after, upto=upto)
        if few is None or (alone is not None and isinstance(alone.runner, LocalTaskRunner)):
            since, earlier_rows, few = after, 0, alone  # a sample is not worth Spark's way, or more than a task
    insert = hop.arrow_insert(after=since, upto=upto, sets_aside=True)
    read = None if few is None or insert is None else destination.key_reader(since=since, most=most)
    if few is None or insert is None or read is None:
        return None
    task = CheckOfBatch(
        changes=insert.of_span(hop.store, few.paths, after=since, upto=upto),
        key=tuple(destination.primary_key),
        columns=tuple(column.name for column in destination.columns if column.name not in destination.primary_key),
        drawn=(after, max(1, earlier_rows // SAMPLE_ROWS)) if since < after else None,
        held=destination.holder(),
        read=read,
        shown=SHOWN_ROWS,
    )
    compared = few.runner.call(task, what=f"check table '{destination.name}'")
    if compared is None:
        return None
    mask = Mask.of(hop.target.table)
    found = Comparison(
        batch=upto,
        complete=False,
        compared=compared.compared,
        missing=compared.missing,
        extra=compared.extra,
        stale=compared.stale,
        refused=0,
        earlier_batches=after - since,
        sample=tuple(describe(row, task.key, task.columns, skips_nulls=False, mask=mask) for row in compared.wrong),
    )
    head = hop.store.head()
    # Of rows that differ Spark tells those that another run may be writing, and those that are gone with a partition.
    is_final = (head is None or head.batch <= upto) and not isinstance(destination, ExpiresPartitions)
    return found if found.passed or is_final else None


def _large_until(spark: OnDemand, hop: DestinationHop, before: int) -> int:
    """The last batch, up to one, that lies in a file which is too much for this process."""
    large = [item for item in hop.store.files() if not spark.is_local(0, item.size)]
    return max((min(before, before if item.last_batch is None else item.last_batch) for item in large), default=0)


def _is_plain(hop: DestinationHop) -> bool:
    """Return whether equality of rows is all that the destination promises, and all that there is to look at."""
    destination = hop.destination
    if isinstance(destination, ComparesRecords) or hop.refused.count():
        return False
    if isinstance(destination, WritesByMode) and (destination.skips_nulls or destination.keeps_deleted):
        return False
    return not (isinstance(destination, ExpiresRows) and destination.time_to_live() is not None)
