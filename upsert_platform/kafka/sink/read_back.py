"""Reads a written topic back: the last value per key, of all of it or of what lies behind known offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import latest, rows
from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.core.destination import OPERATION, OPERATION_DELETE, OPERATION_UPSERT, SEQUENCE
from upsert_platform.core.errors import TopicError
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.model import Column
from upsert_platform.core.source import MODE_APPEND, MODE_UPSERT
from upsert_platform.core.types import quote_name, spark_type
from upsert_platform.kafka.source.offsets import discover
from upsert_platform.kafka.source.source import read_changes
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.writing.same_key import join_by_key

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_HELD: Final = internal("held")


def ranges_behind(table: KafkaTable, ends: Sequence[int] = ()) -> list[OffsetRange]:
    """Return the ranges of a topic's present records from given offsets on.

    Args:
        ends: per partition; partitions beyond them are new, and wholly meant.

    Returns:
        One range per partition that has any; none at all when there is no topic.
    """

    try:
        topics = discover(table)
    except TopicError:
        return []
    known = dict(enumerate(ends))
    return [
        OffsetRange(topic.name, item.partition, start, item.end)
        for topic in topics
        for item in topic.partitions
        if (start := max(item.low, known.get(item.partition, 0))) < item.end
    ]


def last_values(
    spark: SparkSession, table: KafkaTable, ranges: Sequence[OffsetRange], *, keys: DataFrame | None = None
) -> DataFrame:
    """The last value per key of ranges: the physical columns in declared types, without the deleted keys.

    Records that cannot be decoded (somebody else wrote them) count as absent, unless ``on-error`` is ``fail``.

    Args:
        keys: only rows with these primary keys.
    """
    from pyspark.sql import functions as F

    columns = table.table.physical_columns
    names = [quote_name(column.name) for column in columns]
    if not ranges:
        return _none(spark, columns)
    key = [F.col(quote_name(name)) for name in table.primary_key]
    found = _changes(spark, table, ranges)
    if keys is not None:
        found = join_by_key(found, keys.select(*key), table.primary_key, "left_semi")
    last = latest.latest_per_key(
        found,
        key=table.primary_key,
        columns=[column.name for column in columns],
        count=sum(item.offsets for item in ranges),
    )
    return last.where(F.col(rows.KIND) != rows.KIND_DELETE).select(*names)


def keys_in_several_partitions(spark: SparkSession, table: KafkaTable, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Return the keys whose last record in more than one partition is a value: the primary key, each key once."""
    from pyspark.sql import functions as F

    key = [column for column in table.table.physical_columns if column.name in table.primary_key]
    if not ranges:
        return _none(spark, key)
    names = [quote_name(name) for name in table.primary_key]
    last = latest.last_rows(
        _changes(spark, table, ranges),
        key=table.primary_key,
        count=sum(item.offsets for item in ranges),
        of_partitions=True,
    )
    held = last.where(F.col(rows.KIND) != rows.KIND_DELETE).groupBy(*names).agg(F.count(F.lit(1)).alias(_HELD))
    return held.where(F.col(_HELD) > 1).select(*names)


def _changes(spark: SparkSession, table: KafkaTable, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Return the change rows of ranges."""
    from pyspark.sql import functions as F

    mode = MODE_UPSERT if table.is_upsert else MODE_APPEND
    return read_changes(spark, table, ranges, batch=1, mode=mode).where(F.col(rows.KIND).isin(*rows.CHANGE_KINDS))


def _none(spark: SparkSession, columns: Sequence[Column]) -> DataFrame:
    """Return no rows, of declared columns."""
    return spark.createDataFrame([], ", ".join(f"{quote_name(c.name)} {spark_type(c.type)}" for c in columns if c.type))


@dataclass(frozen=True)
class TopicRows:
    """The function for ``mapInArrow`` that gets numbers of ranges, and gives the last record per key of each.

    Rows have the physical columns, `_op` and `_seq` (the offset); of a tombstone those of the key. A key that is in
    several ranges, in several parts of one that is long, or spelled in several ways, has a row for each.
    """

    table: KafkaTable
    ranges: tuple[OffsetRange, ...]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        from upsert_platform.kafka.source.read_range import RangeReader

        reader = RangeReader(self.table, reduces=True)
        names = [column.name for column in self.table.table.physical_columns]
        kinds = pa.array(rows.CHANGE_KINDS, pa.string())
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for part in reader.read(self.ranges[number]):
                    kind = part.column(rows.KIND).cast(pa.string())
                    deleted = pc.equal(kind, rows.KIND_DELETE)
                    told = part.select(names).append_column(
                        OPERATION, pc.if_else(deleted, OPERATION_DELETE, OPERATION_UPSERT)
                    )
                    told = told.append_column(SEQUENCE, part.column(rows.OFFSET))
                    yield told.filter(pc.is_in(kind, value_set=kinds))


def last_values_in_task(table: KafkaTable, ranges: Sequence[OffsetRange]) -> pa.Table:
    """As `last_values`, of all keys in the ranges; read by this process."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from upsert_platform.changelog.last_rows import last_rows
    from upsert_platform.kafka.source.read_range import RangeReader

    reader = RangeReader(table, reduces=True)
    known = rows.arrow_schema(table.table)
    schema = pa.schema([field for field in known if field.name != rows.BATCH])
    kinds = pa.array(rows.CHANGE_KINDS, pa.string())
    found = [schema.empty_table()]
    for wanted in ranges:
        for batch in reader.read(wanted):
            part = pa.Table.from_arrays([batch.column(field.name).cast(field.type) for field in schema], schema=schema)
            found.append(part.filter(pc.is_in(part.column(rows.KIND), value_set=kinds)))
    changes = pa.concat_tables(found)
    changes = changes.append_column(known.field(rows.BATCH), pa.repeat(pa.scalar(1, pa.int64()), changes.num_rows))
    last = last_rows(changes, key=table.primary_key)
    last = last.filter(pc.not_equal(last.column(rows.KIND), rows.KIND_DELETE))
    return last.select([column.name for column in table.table.physical_columns])
