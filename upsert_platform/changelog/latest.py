"""Which row of a key counts: the one place that knows the order of rows, in Spark.

Of the rows that one topic-partition gave to a key the offset alone decides, whatever their times: producers set those,
and they may go back. Between partitions (the topic was widened, or producers partition differently) the last rows of
each are compared: the later batch wins, within a batch the later record time, then the greater partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.destination import OPERATION, OPERATION_DELETE
from upsert_platform.internal_columns import internal
from upsert_platform.types import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SEQUENCE: Final = "_seq"
PARTITIONS_MET: Final = internal("partitions")
"""INT column: 2 when the key was met in more than one topic-partition among the rows reduced, else 1."""

PLACE: Final = (rows.TOPIC, rows.PARTITION)
COMMITTED_IN: Final = internal("committed_in")
"""BIGINT column of rows whose `_batch` is the batch that had read them: the one that committed them, a replay say."""
IN_PARTITION: Final = (rows.BATCH, rows.OFFSET, rows.ROW)
"""What decides between rows of one partition. Offsets grow with batches, but for what a replay brought back, which
nothing had overtaken."""
_ORDERED_BY: Final = (rows.BATCH, rows.TIMESTAMP, *PLACE, rows.OFFSET, rows.ROW)
_LAST: Final = internal("last")
_ROW: Final = internal("row")


def last_rows(
    changes: DataFrame, *, key: Sequence[str], keep: Sequence[str] | None = None, greatest: str | None = None
) -> DataFrame:
    """The row of each key that counts.

    Args:
        changes: rows of a changelog, with the system columns that order them.
        key: names of the key columns, of which there is at least one.
        keep: the other columns to give; all if None.
        greatest: a column, not among `keep`, of which the greatest value among all rows of a key is given.

    Returns:
        The key, these columns, and `PARTITIONS_MET`.
    """
    from pyspark.sql import functions as F

    kept = [name for name in keep or changes.columns if name not in key]
    order = F.struct(*[F.col(f"{_LAST}.{name}") for name in (rows.BATCH, rows.TIMESTAMP)], *PLACE)
    places = [name for name in PLACE if name in kept]
    last = F.max_by(F.struct(_LAST, *places) if places else F.struct(_LAST), order).alias(_ROW)
    met = F.when(F.count(F.lit(1)) > 1, F.lit(2)).otherwise(F.lit(1)).alias(PARTITIONS_MET)
    summed = [] if greatest is None else [F.max(greatest).alias(greatest)]
    reduced = _last_of_partitions(changes, key=key, keep=kept, greatest=greatest)
    reduced = reduced.groupBy(*_named(key)).agg(last, met, *summed)
    return reduced.select(
        *_named(key),
        *[
            F.col(f"{_ROW}.{name}" if name in PLACE else f"{_ROW}.{_LAST}.{quote_name(name)}").alias(name)
            for name in kept
        ],
        *([] if greatest is None else [greatest]),
        PARTITIONS_MET,
    )


def last_rows_per_partition(changes: DataFrame, *, key: Sequence[str]) -> DataFrame:
    """The last row of each key in each topic-partition: all columns of `changes`. See `last_rows`."""
    from pyspark.sql import functions as F

    others = [name for name in changes.columns if name not in key and name not in PLACE]
    last = _last_of_partitions(changes, key=key, keep=others)
    return last.select(*_named(key), *PLACE, *[F.col(f"{_LAST}.{quote_name(name)}").alias(name) for name in others])


def _last_of_partitions(
    changes: DataFrame, *, key: Sequence[str], keep: Sequence[str], greatest: str | None = None
) -> DataFrame:
    """Key, topic and partition, and as `_LAST` the batch, the time and the columns to keep of the last row."""
    from pyspark.sql import functions as F

    held = dict.fromkeys([rows.BATCH, rows.TIMESTAMP, *(name for name in keep if name not in PLACE)])
    last = F.max_by(F.struct(*_named(held)), F.struct(*IN_PARTITION)).alias(_LAST)
    summed = [] if greatest is None else [F.max(greatest).alias(greatest)]
    # Each task reduces what it reads before anything is moved: of a partition of the topic only the last row can win.
    return changes.groupBy(*_named(key), *PLACE).agg(last, *summed)


def latest_per_key(
    changes: DataFrame, *, key: Sequence[str], columns: Sequence[str], ordered: bool = False
) -> DataFrame:
    """Reduces change rows to one per key.

    Args:
        changes: rows of a changelog.
        key: names of the primary key columns.
        columns: the other columns to keep.
        ordered: `_seq` is the struct that orders rows (see `last_written`), for keys that may prove to be the same.

    Returns:
        The key and the columns, `_kind`, `_seq` (BIGINT, the batch of the row) and `PARTITIONS_MET`.
    """
    if ordered:
        last = last_rows(changes, key=key, keep=[*columns, rows.KIND, *_ORDERED_BY])
        return last.withColumn(SEQUENCE, _sequence(last)).drop(*_ORDERED_BY)
    return last_rows(changes, key=key, keep=[*columns, rows.KIND, rows.BATCH]).withColumnRenamed(rows.BATCH, SEQUENCE)


def every_row(changes: DataFrame, *, columns: Sequence[str]) -> DataFrame:
    """Change rows of a table without a key, none left out, in the form of `latest_per_key`.

    Returns:
        The columns, `_kind`, `_seq` (a struct that orders the rows; see `last_written`) and `PARTITIONS_MET` (1).
    """
    from pyspark.sql import functions as F

    return changes.select(
        *_named(columns), rows.KIND, _sequence(changes).alias(SEQUENCE), F.lit(1).alias(PARTITIONS_MET)
    )


def _sequence(changes: DataFrame) -> Column:
    """What orders rows, and the batch that committed them, as a struct."""
    from pyspark.sql import functions as F

    committed = COMMITTED_IN if COMMITTED_IN in changes.columns else rows.BATCH
    return F.struct(*_ORDERED_BY, F.col(committed).alias(COMMITTED_IN))


def last_written(changes: DataFrame, *, key: Sequence[str]) -> DataFrame:
    """A change frame made of `every_row` or of ordered rows: the last row per key, or all rows without one.

    Returns:
        The frame's columns with `_seq` as the last batch that committed a row of the key, and `PARTITIONS_MET`: where a
        replayed row takes the place of a newer one of its own partition, an older one of another may count again.
    """
    from pyspark.sql import functions as F

    batch = F.col(f"{SEQUENCE}.{COMMITTED_IN}")
    changes = changes.drop(PARTITIONS_MET)  # of rows without a key it tells nothing
    if not key:
        return changes.withColumn(SEQUENCE, batch).withColumn(PARTITIONS_MET, F.lit(1))
    names = [name for name in changes.columns if name != SEQUENCE]
    order = (*_ORDERED_BY, COMMITTED_IN)
    ordered = changes.select(*_named(names), *[F.col(f"{SEQUENCE}.{name}").alias(name) for name in order])
    last = last_rows(ordered, key=key, keep=names, greatest=COMMITTED_IN).withColumnRenamed(COMMITTED_IN, SEQUENCE)
    return last.select(*_named(changes.columns), PARTITIONS_MET)


def last_per_place(changes: DataFrame, *, key: Sequence[str], places: Sequence[str]) -> DataFrame:
    """A change frame made of `every_row` for a table that keeps one row per key and place.

    A delete removes the key from every place, so puts before the last delete of their key are left out.

    Returns:
        As `last_written`: the last put of each key and place, and the last delete of each key that has one.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    deleted = F.col(OPERATION) == OPERATION_DELETE
    between = F.struct(*[F.col(f"{SEQUENCE}.{name}") for name in (rows.BATCH, rows.TIMESTAMP, *PLACE)])
    within = F.struct(*[F.col(f"{SEQUENCE}.{name}") for name in IN_PARTITION])
    partition = F.struct(*[F.col(f"{SEQUENCE}.{name}") for name in PLACE])
    order = F.struct(between.alias("between"), within.alias("within"))
    last = F.max(F.when(deleted, F.struct(order.alias("order"), partition.alias("partition"))))
    frame = changes.withColumn(_LAST, last.over(Window.partitionBy(*_named(key))))
    same = F.col(f"{_LAST}.partition") == partition
    overtaken = F.when(same, within < F.col(f"{_LAST}.order.within")).otherwise(
        between < F.col(f"{_LAST}.order.between")
    )
    kept = frame.where(deleted | F.col(_LAST).isNull() | ~overtaken).drop(_LAST)
    return last_written(kept, key=[*key, *places, OPERATION])


def _named(names: Iterable[str]) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.col(quote_name(name)) for name in names]
