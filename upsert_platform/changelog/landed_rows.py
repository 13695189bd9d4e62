"""Rows of a changelog as sources without records make them, and deletes of rows that a snapshot did not meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.latest import latest_per_key

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from upsert_platform.changelog.store import ChangelogStore


def change_rows(
    schema: pa.Schema, values: Mapping[str, pa.Array], *, stream: str, lane: int, given: Mapping[str, pa.Array]
) -> pa.RecordBatch:
    """Return changes of one lane; columns without values are null.

    Args:
        values: of declared columns.
        given: of the system columns but topic and partition.
    """
    import pyarrow as pa

    count = len(given[rows.KIND])
    places = {rows.TOPIC: pa.scalar(stream), rows.PARTITION: pa.scalar(lane, pa.int32())}
    columns: dict[str, Any] = {name: pa.repeat(value, count) for name, value in places.items()}
    columns |= {**given, **values}
    return pa.RecordBatch.from_arrays(
        [columns.get(item.name, pa.nulls(count, item.type)) for item in schema], schema=schema
    )


def account_row(schema: pa.Schema, account: RangeAccount) -> pa.RecordBatch:
    """Return the accounting row of a range."""
    import pyarrow as pa

    given = {rows.KIND: rows.KIND_ACCOUNTING, rows.ACCOUNTING: account.to_json()}
    return pa.RecordBatch.from_arrays([pa.array([given.get(item.name)], item.type) for item in schema], schema=schema)


def deletes_of_unmet(
    spark: SparkSession, store: ChangelogStore, *, before: int, upto: int, stream: str, lane: int, offset: int
) -> DataFrame:
    """Return deletes, as rows of the batch behind `upto`, of the keys whose last batch is before one.

    Args:
        before: the batch since which a snapshot would have met them.
        upto: the last committed batch.
    """
    from pyspark.sql import functions as F

    key = store.table.primary_key
    whole, count = store.read(spark, after=0, upto=upto), store.about_rows(upto=upto)
    found = latest_per_key(whole, key=key, columns=[], count=count)
    gone = found.where(f"_seq < {before} AND {rows.KIND} <> '{rows.KIND_DELETE}'")
    given = {
        rows.BATCH: F.lit(upto + 1),
        rows.KIND: F.lit(rows.KIND_DELETE),
        rows.TOPIC: F.lit(stream),
        rows.PARTITION: F.lit(lane),
        rows.OFFSET: F.lit(offset),
        rows.ROW: F.lit(0),
        rows.TIMESTAMP: F.current_timestamp(),
    }
    columns = [
        (F.col(f"`{item.name}`") if item.name in key else given.get(item.name, F.lit(None)))
        .cast(item.dataType)
        .alias(item.name)
        for item in spark.createDataFrame([], rows.spark_schema(store.table)).schema
    ]
    return gone.select(*columns)
