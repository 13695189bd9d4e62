"""The batch in which a replayed record was first read, which determines its place among the records of its key.

A replay, of quarantined records or of a topic, commits rows under a batch of its own, with the topic, partition and
offset of their records. Accounting tells which batch read each offset, also after a compaction. The delete of an
erasure has no record: it is of the batch that is its offset.
"""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.latest import COMMITTED_IN
from upsert_platform.core.internal_columns import internal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from upsert_platform.changelog.store import ChangelogStore

ACCOUNT_TOPIC: Final = "(quarantine)"
"""Topic of a replay's accounting row: offsets of topics are accounted for by the batches that read them first."""
READ_IN: Final = internal("read_in")

Place = tuple[str, int, int]
"""Topic, partition, offset."""
_Ranges = Mapping[tuple[str, int], Sequence[tuple[int, int]]]
"""Topic and partition to the ranges that were read: where each starts, and its batch, ascending."""


def replays_of(accounts: Mapping[int, Sequence[RangeAccount]]) -> list[int]:
    """The batches that replays committed, of some with their accounts."""
    return [batch for batch, found in accounts.items() if any(account.topic == ACCOUNT_TOPIC for account in found)]


def read_in(accounts: Mapping[int, Sequence[RangeAccount]], places: Iterable[Place], *, upto: int) -> dict[Place, int]:
    """The batch that had read each of some records, quarantined or not; 0 for one before all that was read.

    Args:
        accounts: of every batch up to `upto`.
    """
    ranges = _ranges(accounts)
    result: dict[Place, int] = {}
    for place in places:
        if place[0] == rows.DELETE_TOPIC:
            result[place] = place[2]
            continue
        starts = ranges.get((place[0], place[1]), [])
        at = bisect_right(starts, (place[2], upto)) - 1
        result[place] = starts[at][1] if at >= 0 else 0
    return result


def _ranges(accounts: Mapping[int, Sequence[RangeAccount]]) -> _Ranges:
    ranges: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for batch, found in accounts.items():
        for account in found:
            ranges.setdefault((account.topic, account.partition), []).append((account.start, batch))
    for starts in ranges.values():
        starts.sort()
    return ranges


def read_in_column(accounts: Mapping[int, Sequence[RangeAccount]]) -> Column:
    """Return `read_in` as a BIGINT column of a changelog's rows, for any number of rows.

    Args:
        accounts: of every batch of the changelog.
    """
    from pyspark.sql import functions as F

    with warnings.catch_warnings():
        # It would rather have hints of types, whose module a driver loads late.
        warnings.simplefilter("ignore", UserWarning)
        dated = F.arrow_udf(partial(_dates, ranges=_ranges(accounts)), "BIGINT", F.ArrowUDFType.SCALAR)
    return dated(rows.TOPIC, rows.PARTITION, rows.OFFSET)


def _dates(topics: pa.Array, partitions: pa.Array, offsets: pa.Array, *, ranges: _Ranges) -> pa.Array:
    """Runs in Spark's workers."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = offsets.to_numpy(zero_copy_only=False)
    erased = pc.fill_null(pc.equal(topics, rows.DELETE_TOPIC), False).to_numpy(zero_copy_only=False)
    result = np.where(erased, numbers, 0).astype(np.int64)
    for (topic, partition), starts in ranges.items():
        mine = pc.and_(pc.equal(topics, topic), pc.equal(partitions, partition)).to_numpy(zero_copy_only=False)
        if not mine.any():
            continue
        begins = np.array([start for start, _ in starts], dtype=np.int64)
        batches = np.array([0, *(batch for _, batch in starts)], dtype=np.int64)
        result[mine] = batches[np.searchsorted(begins, numbers[mine], side="right")]
    return pa.array(result)


def dated_rows(spark: SparkSession, store: ChangelogStore, *, after: int, upto: int) -> DataFrame | None:
    """Change rows where a replay came into a span of batches: all up to `upto`, dated by the batch that had read them.

    Returns:
        `ChangelogStore.read` of every batch up to `upto`, with `_batch` as the batch that had read the record and
        `COMMITTED_IN` as the one that committed the row. None where no replay lies in the span.
    """
    if not replays_of(store.accounts(after=after, upto=upto)):
        return None
    from pyspark.sql import functions as F

    accounts = store.accounts(after=0, upto=upto)
    place = [rows.TOPIC, rows.PARTITION, rows.OFFSET]
    marks = store.read_arrow([rows.BATCH, *place], kind=rows.KIND_REPLAYED, after=0, upto=upto)
    batches, *columns = (marks.column(name).to_pylist() for name in (rows.BATCH, *place))
    places = list(zip(*columns, strict=True))
    dates = read_in(accounts, places, upto=upto)
    ddl = f"{rows.TOPIC} STRING, {rows.PARTITION} INT, {rows.OFFSET} BIGINT, {COMMITTED_IN} BIGINT, {READ_IN} BIGINT"
    found = [(*at, batch, dates[at]) for at, batch in zip(places, batches, strict=True)]
    every = store.read(spark, after=0, upto=upto).withColumn(COMMITTED_IN, F.col(rows.BATCH))
    joined = every.join(F.broadcast(spark.createDataFrame(found, ddl)), [*place, COMMITTED_IN], "left")
    return joined.withColumn(rows.BATCH, F.coalesce(READ_IN, rows.BATCH)).drop(READ_IN)
