"""Compares a destination with the last value per key of its changelog.

`check_batch` costs as much as the batch: it looks at the keys written since the last verdict, and at a sample of
keys of the batches just before. `check_everything` compares all rows. Neither takes the lease: where rows differ, those
of keys that later batches change are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from upsert_platform.changelog.commit_times import last_batch_before
from upsert_platform.changelog.refused import KEYS, REFUSED_IN, key_frame
from upsert_platform.core.capabilities import (
    EXPIRY_MARGIN,
    ComparesRecords,
    ExpiresRows,
    HoldsLess,
    KeepsOlderRows,
    ReadsRecent,
    StoresOtherValues,
    WritesByMode,
)
from upsert_platform.core.destination import (
    FAILED,
    FOUND,
    GONE,
    OPERATION,
    OPERATION_UPSERT,
    SEQUENCE,
    STATUS,
    WANTED,
    Destination,
)
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.masking import Mask
from upsert_platform.core.model import Column
from upsert_platform.core.types import quote_name
from upsert_platform.sync.appended_rows import check_appended
from upsert_platform.sync.comparable_values import comparable
from upsert_platform.sync.comparison import SAMPLE_ROWS, SHOWN_ROWS, Comparison, describe, sampled_since
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.equal_in_tasks import equal_everywhere, equal_in_tasks
from upsert_platform.sync.equal_sums import (
    BUCKET,
    HASHES,
    EqualRows,
    bucket_of,
    equal_buckets,
    hashes_tell,
    with_hashes,
)
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.one_task_check import check_by_one_task
from upsert_platform.sync.partition_lifetimes import with_gone
from upsert_platform.writing.same_key import join_by_key, without_null_keys

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

NO_ROWS: Final = EqualRows(0, 0)
NO_DIFFERENCE: Final = ("refused", "expired")
CHANGE: Final = internal("change")
_MOST_BUCKETS: Final = 2048
"""Of the buckets of `equal_buckets`, so many are joined by their numbers."""


def check_batch(spark: OnDemand, hop: DestinationHop, *, after: int, upto: int) -> Comparison:
    """Compares the keys of the batches after `after` and up to `upto`, and a sample of earlier ones.

    Args:
        spark: opens a session for what a task, or this process, should not do by itself.
    """
    by_task = check_by_one_task(spark, hop, after=after, upto=upto)
    if by_task is not None:
        return by_task
    session = spark.open()
    if isinstance(hop.destination, ComparesRecords):
        return _compare_records(session, hop, hop.destination, after=after, upto=upto)
    since, earlier_rows = sampled_since(hop, after)
    found = _check_since(session, hop, since=since, after=after, upto=upto, earlier_rows=earlier_rows)
    return replace(found, earlier_batches=after - since)


def _check_since(
    spark: SparkSession, hop: DestinationHop, *, since: int, after: int, upto: int, earlier_rows: int
) -> Comparison:
    """Compares the keys of the batches after `after`, and a sample of those after `since`."""
    destination = hop.destination
    recent = destination if isinstance(destination, ReadsRecent) else None
    equality = equal_in_tasks(spark, hop, since=since, after=after, upto=upto, earlier_rows=earlier_rows)
    if equality.rows is not None:
        return _passed(equality.rows, batch=upto, complete=False)
    changes = hop.changes(spark, after=since, upto=upto)
    if since < after and not equality.compared:  # of sides that differ no other sample is drawn
        changes = _with_sample(changes, destination.primary_key, after=after, earlier_rows=earlier_rows)
    changes = as_held(destination, changes)

    changes = changes.persist()  # it is read as keys and as rows
    try:
        keys = without_null_keys(changes.select(*[_column(name) for name in destination.primary_key]))
        if recent is None:
            actual = destination.read(spark, keys=keys)
        else:
            actual = recent.read_recent(spark, keys=keys, since=since)
        # Of a topic other records may have been read than those of the keys: then sums over these may be equal still.
        by_sums = recent is not None or not equality.compared
        return _compare(hop, changes, actual, batch=upto, complete=False, by_sums=by_sums)
    finally:
        changes.unpersist()


def check_everything(spark: SparkSession, hop: DestinationHop, *, upto: int) -> Comparison:
    """Compares every row of the destination with the changelog up to the applied batch."""
    if not is_comparable(hop):
        return check_appended(spark, hop, upto=upto)
    if isinstance(hop.destination, ComparesRecords):
        return _compare_records(spark, hop, hop.destination, after=0, upto=upto, complete=True)
    equality = equal_everywhere(spark, hop, upto=upto)
    if equality.rows is not None:
        return _passed(equality.rows, batch=upto, complete=True)
    changes = as_held(hop.destination, hop.changes_with_failures(spark, after=0, upto=upto))
    return _compare(hop, changes, hop.destination.read(spark), batch=upto, complete=True)


def as_held(destination: Destination, changes: DataFrame) -> DataFrame:
    """A change frame with the values that the destination can hold."""
    return destination.held(changes) if isinstance(destination, HoldsLess) else changes


def _with_sample(changes: DataFrame, key: Sequence[str], *, after: int, earlier_rows: int) -> DataFrame:
    """Every key of a change frame that was written after a batch, and about SAMPLE_ROWS of the others."""
    from pyspark.sql import functions as F

    one_in = max(1, earlier_rows // SAMPLE_ROWS)
    # Of another batch other keys, so that in time all of them are looked at.
    drawn = F.pmod(F.xxhash64(F.lit(after), *[_column(name) for name in key]), F.lit(one_in)) == 0
    return changes.where((F.col(SEQUENCE) > after) | drawn)


def judged_rows(hop: DestinationHop, changes: DataFrame, actual: DataFrame, *, keeps_change: bool = False) -> DataFrame:
    """Expected and found rows side by side, each with a status, by tasks (`changelog/compared_rows.py`).

    Args:
        changes: a change frame of the destination, one row per key.
        actual: rows of the destination.
        keeps_change: the result has `CHANGE`.

    Returns:
        `k0`, ... (the primary key), `e0`, ... and `a0`, ... (the other columns as expected and as found), `FOUND`,
        `CHANGE` (the row of `changes` as a struct, null where the key is in none) and `STATUS`: ``missing``, ``extra``,
        ``stale``, ``refused``, ``expired``, or null where nothing differs.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import BooleanType, StringType, StructField, StructType

    from upsert_platform.changelog.compared_rows import GROUP, ComparedRows, RowComparison

    destination, key, columns = hop.destination, list(hop.destination.primary_key), _other_columns(hop)
    expected, found = _expected(hop, with_gone(hop, changes)), _found(hop, actual)
    if not keeps_change:
        expected = expected.drop(CHANGE)
    expected = _with_refused(expected, hop, key)
    if isinstance(destination, StoresOtherValues):
        expected = _as_stored(destination, expected, key, columns)
    placed = destination.places if isinstance(destination, KeepsOlderRows) else ()
    modes = destination if isinstance(destination, WritesByMode) else None
    comparison = RowComparison(
        keys=len(key),
        columns=len(columns),
        skips_nulls=modes is not None and modes.skips_nulls,
        keeps_deleted=modes is not None and modes.keeps_deleted,
        expired=_may_have_expired(hop),
        places=tuple(index for index, name in enumerate(columns) if name in placed),
        kept=(CHANGE,) if keeps_change else (),
    )
    places = [f"k{index}" for index in range(len(key))]
    sides = expected.unionByName(found, allowMissingColumns=True)
    # Rows of the same key are in one task, one after the other.
    grouped = sides.withColumn(GROUP, bucket_of([F.col(place) for place in places]))
    grouped = grouped.repartition(GROUP).sortWithinPartitions(GROUP)
    others = [f"{letter}{index}" for letter in "ea" for index in range(len(columns))]
    given = [*places, *others, *comparison.kept]
    fields = [StructField(name, sides.schema[name].dataType) for name in given]
    schema = StructType([*fields, StructField(FOUND, BooleanType()), StructField(STATUS, StringType())])
    return grouped.mapInArrow(ComparedRows(comparison, tuple(schema.names)), schema)


class JudgedRows(NamedTuple):
    """Rows of a table, of which only those were joined that lie in buckets of keys whose sums differ.

    Attributes:
        judged: as `judged_rows`, of the buckets that differ.
        equal: the rows of all others.
    """

    judged: DataFrame
    equal: EqualRows


def judged_by_buckets(
    hop: DestinationHop, changes: DataFrame, actual: DataFrame, *, keeps_change: bool = False
) -> JudgedRows:
    """Compare all rows by sums over buckets of keys, and join those of the buckets that differ.

    Both frames are read once where nothing differs; where buckets differ, their rows are read once more. Whatever a
    destination may keep or leave out by its options, rows that are equal pass.

    Args:
        changes, actual, keeps_change: as in `judged_rows`.
    """
    from pyspark.sql import functions as F

    key, columns = list(hop.destination.primary_key), _other_columns(hop)
    expected, found = _expected(hop, changes).drop(CHANGE), _found(hop, actual)
    stored = hop.destination if isinstance(hop.destination, StoresOtherValues) else None
    if stored is not None:
        expected = _as_stored(stored, expected, key, columns)
    places = [f"k{index}" for index in range(len(key))]
    names = [(place, place) for place in places] + [(f"e{index}", f"a{index}") for index in range(len(columns))]
    if hop.refused.keys().num_rows or not hashes_tell(expected, found, names):
        return JudgedRows(judged_rows(hop, changes, actual, keeps_change=keeps_change), NO_ROWS)
    bucket = bucket_of([F.col(place) for place in places]).alias(BUCKET)
    left = with_hashes(expected, [name for name, _ in names]).select(bucket, WANTED, *HASHES)
    right = with_hashes(found, [name for _, name in names]).select(bucket, *HASHES)
    differing, equal = equal_buckets(left, right)
    if len(differing) > _MOST_BUCKETS:  # to name them costs more than to join what is equal in the others
        return JudgedRows(judged_rows(hop, changes, actual, keeps_change=keeps_change), NO_ROWS)
    return JudgedRows(
        judged_rows(
            hop,
            changes.where(bucket_of(stored_key(hop.destination)).isin(*differing)),
            actual.where(bucket_of([_column(name) for name in key]).isin(*differing)),
            keeps_change=keeps_change,
        ),
        equal,
    )


def stored_key(destination: Destination) -> list[SparkColumn]:
    """Return the key columns of a change frame with the values that the rows of the destination have."""
    key = [(name, _column(name)) for name in destination.primary_key]
    if isinstance(destination, StoresOtherValues):
        return [destination.stored_value(name, value) for name, value in key]
    return [value for _, value in key]


def _other_columns(hop: DestinationHop) -> dict[str, Column]:
    key = hop.destination.primary_key
    return {column.name: column for column in hop.destination.columns if column.name not in key}


def _expected(hop: DestinationHop, changes: DataFrame) -> DataFrame:
    """Expected rows under the names that `judged_rows` gives them."""
    from pyspark.sql import functions as F

    from upsert_platform.changelog.compared_rows import REFUSED

    wanted = (F.col(OPERATION) == OPERATION_UPSERT).alias(WANTED)
    change = F.struct(*[_column(name) for name in changes.columns if name not in (GONE, FAILED)]).alias(CHANGE)
    more = [F.col(GONE)] if GONE in changes.columns else []
    # A row that cannot be computed has no value that could be expected: it is kept aside, not written.
    more += [F.col(FAILED).isNotNull().alias(REFUSED)] if FAILED in changes.columns else []
    return changes.select(*_placed(hop, "e"), wanted, F.col(SEQUENCE), change, *more)


def _found(hop: DestinationHop, actual: DataFrame) -> DataFrame:
    """Rows of the destination under the names that `judged_rows` gives them."""
    return actual.select(*_placed(hop, "a"))


def _placed(hop: DestinationHop, letter: str) -> list[SparkColumn]:
    keys = [_column(name).alias(f"k{index}") for index, name in enumerate(hop.destination.primary_key)]
    others = enumerate(_other_columns(hop).items())
    return [*keys, *(comparable(_column(name), kind).alias(f"{letter}{place}") for place, (name, kind) in others)]


def _as_stored(
    destination: StoresOtherValues, expected: DataFrame, key: Sequence[str], columns: Collection[str]
) -> DataFrame:
    """Expected rows with the values that the destination gives back."""
    from pyspark.sql import functions as F

    names = {f"k{index}": name for index, name in enumerate(key)}
    names |= {f"e{index}": name for index, name in enumerate(columns)}
    return expected.withColumns({place: destination.stored_value(name, F.col(place)) for place, name in names.items()})


def _may_have_expired(hop: DestinationHop) -> int:
    """The batch up to which rows were written so long ago that the destination may have let go of them; 0 if none."""
    seconds = hop.destination.time_to_live() if isinstance(hop.destination, ExpiresRows) else None
    if seconds is None:
        return 0
    moment = datetime.now(UTC) - timedelta(seconds=seconds) + EXPIRY_MARGIN
    return last_batch_before(hop.store, moment, as_noted=True)


def _compare(
    hop: DestinationHop, changes: DataFrame, actual: DataFrame, *, batch: int, complete: bool, by_sums: bool = True
) -> Comparison:
    """Compares rows by sums first, unless these are known to differ, and by a join."""
    joined, equal = judged_by_buckets(hop, changes, actual) if by_sums else (judged_rows(hop, changes, actual), NO_ROWS)
    judged = joined.persist()
    try:
        found = summed(hop, judged, batch=batch, complete=complete, equal=equal)
        settled = judged if found.passed else _settled_rows(hop, judged, after=batch)
        if settled is judged:
            return found
        return replace(summed(hop, settled, batch=batch, complete=complete, equal=equal), rows=found.rows)
    finally:
        judged.unpersist()


def _passed(equal: EqualRows, *, batch: int, complete: bool) -> Comparison:
    return Comparison(
        batch, complete, equal.rows, missing=0, extra=0, stale=0, refused=0, sample=(),
        rows=equal.wanted if complete else None,
    )  # fmt: skip


def _settled_rows(hop: DestinationHop, judged: DataFrame, *, after: int) -> DataFrame:
    """The rows of `judged_rows` without those of keys that later batches change: another run may be writing them."""
    head = hop.store.head()
    if head is None or head.batch <= after:
        return judged
    changes = hop.changes(judged.sparkSession, after=after, upto=head.batch)
    values = stored_key(hop.destination)
    moving = changes.select(*[value.alias(f"k{index}") for index, value in enumerate(values)])
    return join_by_key(judged, moving, [f"k{index}" for index in range(len(values))], "left_anti")


def summed(
    hop: DestinationHop,
    judged: DataFrame,
    *,
    batch: int,
    complete: bool,
    most: int = SHOWN_ROWS,
    equal: EqualRows = NO_ROWS,
) -> Comparison:
    """Counts what `judged_rows` found, and describes some rows that differ.

    Args:
        judged: persisted; it is read twice.
        equal: further rows, which are equal by their sums.
        most: rows that are described.
    """
    from pyspark.sql import functions as F

    key = list(hop.destination.primary_key)
    columns = [column.name for column in hop.destination.columns if column.name not in key]
    skips_nulls = isinstance(hop.destination, WritesByMode) and hop.destination.skips_nulls
    found = F.count(F.when(F.col(FOUND), 1)).alias("found")
    groups = judged.groupBy(STATUS).agg(F.count(F.lit(1)).alias("count"), found).collect()
    counts = {row[STATUS]: row["count"] for row in groups}
    differs = sum(count for status, count in counts.items() if status is not None and status not in NO_DIFFERENCE)
    # As texts: Python has no moment before the year 1 in any time zone, nor one after 9999.
    texts = [F.col(name).cast("string").alias(name) if _has_times(kind) else name for name, kind in judged.dtypes]
    wrong = judged.where(~F.col(STATUS).isin(*NO_DIFFERENCE)).limit(most)
    shown = wrong.select(*texts).collect() if differs and most else ()
    mask = Mask.of(hop.target.table)
    sample = tuple(describe(row.asDict(), key, columns, skips_nulls=skips_nulls, mask=mask) for row in shown)
    return Comparison(
        batch=batch,
        complete=complete,
        compared=equal.rows + sum(counts.values()),
        missing=counts.get("missing", 0),
        extra=counts.get("extra", 0),
        stale=counts.get("stale", 0),
        refused=counts.get("refused", 0),
        expired=counts.get("expired", 0),
        sample=sample,
        rows=equal.wanted + sum(row["found"] for row in groups) if complete else None,
    )


def _with_refused(expected: DataFrame, hop: DestinationHop, key: Sequence[str]) -> DataFrame:
    """Return the expected rows with `REFUSED`, if any key was refused."""
    from pyspark.sql import functions as F

    from upsert_platform.changelog.compared_rows import REFUSED

    kept = hop.refused.keys()
    if not kept.num_rows:
        return expected
    parsed = key_frame(expected.sparkSession, kept, columns=hop.destination.columns, key=key).drop(KEYS)
    joined = join_by_key(expected, F.broadcast(parsed), [f"k{index}" for index in range(len(key))], "left")
    refused = F.coalesce(F.col(SEQUENCE) <= F.col(REFUSED_IN), F.lit(False))
    if REFUSED in expected.columns:
        refused = refused | F.col(REFUSED)
    return joined.withColumn(REFUSED, refused).drop(REFUSED_IN)


def _has_times(kind: str) -> bool:
    """Return whether a type of Spark, as its text has it, holds dates or timestamps."""
    return "timestamp" in kind or "date" in kind


def _column(name: str) -> SparkColumn:
    from pyspark.sql import functions as F

    return F.col(quote_name(name))


def is_comparable(hop: DestinationHop) -> bool:
    """Return whether the changelog tells what rows of a batch's keys must be; else there are appended rows alone."""
    return bool(hop.destination.primary_key) or isinstance(hop.destination, ComparesRecords)


def _compare_records(
    spark: SparkSession,
    hop: DestinationHop,
    destination: ComparesRecords,
    *,
    after: int,
    upto: int,
    complete: bool = False,
) -> Comparison:
    """Has a destination compare the rows that records of a span touched, without a sample of others."""
    refused = hop.refused.keys()["key"].to_pylist()
    changes = hop.changes(spark, after=after, upto=upto)
    judged = destination.differences(changes, refused=refused, expired=_may_have_expired(hop)).collect()
    counts: Counter[str] = Counter()
    for row in judged:
        counts[row["status"]] += row["count"]
    wrong = [row for row in judged if row["key"] is not None][:SHOWN_ROWS]
    return Comparison(
        batch=upto,
        complete=complete,
        compared=sum(counts.values()),
        missing=counts["missing"],
        extra=counts["extra"],
        stale=counts["stale"],
        refused=counts["refused"],
        expired=counts["expired"],
        sample=tuple({"status": row["status"], "key": row["key"], "difference": row["difference"]} for row in wrong),
    )
