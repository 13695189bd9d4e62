"""The last row of each key in Spark frames: tasks receive the rows of some keys, and `last_rows` decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.rows import ORDER, PARTITIONS_MET
from upsert_platform.core.destination import OPERATION
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.types import quote_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

SEQUENCE: Final = "_seq"
COMMITTED_IN: Final = internal("committed_in")
"""BIGINT column of rows whose `_batch` is the batch that had read them: the one that committed them, a replay say."""
TASK_ROWS: Final = 500_000
"""Rows of which one task finds those that count."""
_WORTHWHILE_ROWS: Final = 100_000
"""A task more costs more than it gains for fewer rows."""
_OUTPUT_ROWS: Final = 1 << 16


@dataclass(frozen=True)
class LastRows:
    """The function for ``mapInArrow`` that gets all rows of some keys, and gives those that count.

    Attributes:
        columns: of the rows that it gives, in their order.
        places: see `last_rows.last_per_place`; without any there is one row of a key.
        of_partitions, greatest: see `last_rows.last_rows`.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    places: tuple[str, ...] = ()
    of_partitions: bool = False
    greatest: str | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from upsert_platform.changelog.last_rows import last_per_place, last_rows

        held: list[pa.RecordBatch] = []
        count, most = 0, 2 * TASK_ROWS
        told_apart = [*self.key, *self.places, *([OPERATION] if self.places else [])]
        for batch in batches:
            held.append(batch)
            count += batch.num_rows
            if count > most:  # rows that cannot count any more are let go
                part = _with_normal_keys(pa.Table.from_batches(held), self.key)
                left = last_rows(part, key=told_apart, of_partitions=True, greatest=self.greatest)
                held = left.drop_columns([PARTITIONS_MET]).to_batches()
                count, most = left.num_rows, max(most, 2 * left.num_rows)
        if not count:
            return
        part = _with_normal_keys(pa.Table.from_batches(held), self.key)
        if self.places:
            part = last_per_place(part, key=self.key)
        last = last_rows(part, key=told_apart, of_partitions=self.of_partitions, greatest=self.greatest)
        yield from last.select(self.columns).to_batches(max_chunksize=_OUTPUT_ROWS)


def _with_normal_keys(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """Keys that are equal get one value: no -0.0, and one NaN."""
    import pyarrow as pa

    from upsert_platform.changelog.row_hashes import normal

    for name in key:
        if pa.types.is_floating(table.schema.field(name).type):
            table = table.set_column(table.schema.get_field_index(name), name, normal(table.column(name)))
    return table


def last_rows(
    changes: DataFrame,
    *,
    key: Sequence[str],
    keep: Sequence[str] | None = None,
    count: int | None = None,
    greatest: str | None = None,
    places: Sequence[str] = (),
    of_partitions: bool = False,
) -> DataFrame:
    """The row of each key that counts.

    Args:
        changes: rows of a changelog, with the system columns that order them.
        key: names of the key columns, of which there is at least one.
        keep: the other columns to give; all if None.
        count: of the rows, about: it decides among how many tasks they are divided. None where nobody knows.
        greatest: a column, not among `keep`, of which the greatest value among all rows of a key is given.
        places: columns that identify a row beside the key: see `last_per_place`.
        of_partitions: the last row of each key in each topic-partition is given.

    Returns:
        The key, these columns, and `PARTITIONS_MET`.
    """
    from pyspark.sql.types import IntegerType, MapType, StructField, StructType

    others = changes.columns if keep is None else keep
    given = tuple(dict.fromkeys([*key, *others, *(() if greatest is None else (greatest,))]))
    read = changes.select(*_named(dict.fromkeys([*given, *ORDER])))
    schema = StructType([*(read.schema[name] for name in given), StructField(PARTITIONS_MET, IntegerType())])
    task = LastRows(tuple(key), (*given, PARTITIONS_MET), tuple(places), of_partitions, greatest)
    tasks = int(read.sparkSession.sparkContext.defaultParallelism)
    if count is not None:
        tasks = max(min(tasks, -(-count // _WORTHWHILE_ROWS)), -(-count // TASK_ROWS), 1)
    # Maps have no hash.
    hashed = [name for name in key if not isinstance(read.schema[name].dataType, MapType)]
    divided = read.repartition(tasks, *_named(hashed)) if hashed else read.repartition(1)
    return divided.mapInArrow(task, schema)


def latest_per_key(
    changes: DataFrame,
    *,
    key: Sequence[str],
    columns: Sequence[str],
    ordered: bool = False,
    count: int | None = None,
) -> DataFrame:
    """Reduces change rows to one per key.

    Args:
        changes: rows of a changelog.
        key: names of the primary key columns.
        columns: the other columns to keep.
        ordered: `_seq` is the struct that orders rows (see `last_written`), for keys that may prove to be the same.
        count: see `last_rows`.

    Returns:
        The key and the columns, `_kind`, `_seq` (BIGINT, the batch of the row) and `PARTITIONS_MET`.
    """
    if ordered:
        last = last_rows(changes, key=key, keep=[*columns, rows.KIND, *ORDER], count=count)
        return last.withColumn(SEQUENCE, _sequence(last)).drop(*ORDER)
    last = last_rows(changes, key=key, keep=[*columns, rows.KIND, rows.BATCH], count=count)
    return last.withColumnRenamed(rows.BATCH, SEQUENCE)


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
    """Return a struct of the columns that order rows, and of the batch that committed them."""
    from pyspark.sql import functions as F

    committed = COMMITTED_IN if COMMITTED_IN in changes.columns else rows.BATCH
    return F.struct(*ORDER, F.col(committed).alias(COMMITTED_IN))


def last_written(
    changes: DataFrame, *, key: Sequence[str], places: Sequence[str] = (), count: int | None = None
) -> DataFrame:
    """A change frame made of `every_row` or of ordered rows: the last row per key, or all rows without one.

    Args:
        places: columns that identify a row beside its key, of a table that keeps one row per key and place: then the
            last put of each key and place is given, and the last delete of each key and place (`last_per_place`).
        count: see `last_rows`.

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
    order = (*ORDER, COMMITTED_IN)
    ordered = changes.select(*_named(names), *[F.col(f"{SEQUENCE}.{name}").alias(name) for name in order])
    last = last_rows(ordered, key=key, keep=names, greatest=COMMITTED_IN, places=places, count=count)
    return last.withColumnRenamed(COMMITTED_IN, SEQUENCE).select(*_named(changes.columns), PARTITIONS_MET)


def _named(names: Iterable[str]) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.col(quote_name(name)) for name in names]
