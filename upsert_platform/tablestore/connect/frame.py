"""Kafka records as a Spark frame: its columns, and the order in which records of one row are written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from upsert_platform.core.destination import SEQUENCE
from upsert_platform.core.internal_columns import internal
from upsert_platform.tablestore.connect.record import ConnectRecord
from upsert_platform.tablestore.connect.refusals import RefusedRecord
from upsert_platform.tablestore.connect.values import DirtyRecordError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")
"""Columns of a frame of records: STRING, INT, BIGINT, BIGINT (milliseconds, or null), BINARY, BINARY."""
HEADERS: Final = "headers"
"""ARRAY<STRUCT<key: STRING, value: BINARY>>; only in frames of tables that report records with their headers."""
BATCH: Final = "batch"
"""BIGINT, the changelog batch of the record."""
_AT, _END = internal("at"), internal("end")
KEY: Final = internal("key")
"""BINARY, the same for records of one row; null for records without a row of their own."""
ERROR: Final = internal("error")
"""STRING, class of the error that makes the record dirty; null if it is not."""
REASON: Final = internal("reason")

Batches = Iterator[pa.RecordBatch]
KeyOf = Callable[[ConnectRecord], bytes | None]
"""Key of the row that a record changes; None for a row that no other record changes. Raises DirtyRecordError."""

_RECORDS_DDL: Final = (
    "topic STRING, partition INT, `offset` BIGINT, `timestamp` BIGINT, `key` BINARY, `value` BINARY, batch BIGINT"
)
_JUDGED_DDL: Final = f"{KEY} BINARY, {ERROR} STRING, {REASON} STRING"
_HEADERS_DDL: Final = f"{HEADERS} ARRAY<STRUCT<key: STRING, value: BINARY>>"


def records_of(batch: pa.RecordBatch) -> Iterator[ConnectRecord]:
    """The records of a batch of a frame."""
    topic, partition, offset, timestamp, key, value = (batch.column(name).to_pylist() for name in RECORD_COLUMNS)
    with_headers = batch.schema.get_field_index(HEADERS) >= 0
    headers = batch.column(HEADERS).to_pylist() if with_headers else [None] * batch.num_rows
    for index in range(batch.num_rows):
        yield ConnectRecord(
            topic[index],
            partition[index],
            offset[index],
            key[index],
            value[index],
            timestamp[index],
            tuple((header["key"], header["value"]) for header in headers[index] or ()),
        )


def record_frame(changes: DataFrame) -> DataFrame:
    """The records of a change frame whose declared columns are those of records."""
    from pyspark.sql import functions as F

    more = [HEADERS] if HEADERS in changes.columns else []
    plain = [name for name in RECORD_COLUMNS if name != "timestamp"]
    return changes.select(
        *plain, *more, F.unix_millis("timestamp").alias("timestamp"), F.col(SEQUENCE).cast("bigint").alias(BATCH)
    ).select(*RECORD_COLUMNS, BATCH, *more)


def judged_frame(records: DataFrame, key_of: KeyOf) -> DataFrame:
    """Records with `KEY`, `ERROR` and `REASON`."""
    more = f", {_HEADERS_DDL}" if HEADERS in records.columns else ""
    return records.mapInArrow(judging_task(key_of), f"{_RECORDS_DDL}{more}, {_JUDGED_DDL}")


def judging_task(key_of: KeyOf) -> Callable[[Batches], Batches]:
    """The function for ``mapInArrow`` that adds `KEY`, `ERROR` and `REASON`."""

    def judge(batches: Batches) -> Batches:
        for batch in batches:
            found = [_judge(record, key_of) for record in records_of(batch)]
            keys, errors, reasons = zip(*found, strict=True) if found else ((), (), ())
            yield (
                batch.append_column(KEY, pa.array(keys, pa.binary()))
                .append_column(ERROR, pa.array(errors, pa.string()))
                .append_column(REASON, pa.array(reasons, pa.string()))
            )

    return judge


def _judge(record: ConnectRecord, key_of: KeyOf) -> tuple[bytes | None, str | None, str | None]:
    try:
        return key_of(record), None, None
    except DirtyRecordError as error:
        return None, type(error).__name__, str(error)


def in_order(judged: DataFrame, *, tasks: int | None) -> DataFrame:
    """Brings the records of a row into one partition, next to each other, in the order in which they count.

    That is by batch; within a batch those of one topic-partition follow each other by offset, whatever their times, and
    the partitions come by the time of the last record that each has of the row, then by topic and number. So the record
    that counts is the one of `upsert_platform.changelog.latest`.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    # Records without a row of their own are spread over the tasks by their place.
    row = F.coalesce(F.col(KEY), F.concat_ws("/", "topic", "partition", "offset").cast("binary"))
    keyed = judged.withColumn(KEY, row)
    together = keyed.repartition(KEY) if tasks is None else keyed.repartition(tasks, KEY)
    of_partition = Window.partitionBy(KEY, BATCH, "topic", "partition")
    timed = together.withColumn(_AT, F.max_by("timestamp", "offset").over(of_partition))
    return timed.sortWithinPartitions(KEY, BATCH, _AT, "topic", "partition", "offset").drop(_AT)


def first_errors(judged: DataFrame, errors: Collection[str]) -> list[RefusedRecord]:
    """The first record of every partition of a topic that met one of these errors, in the order of the frame."""
    from pyspark.sql import functions as F

    found = (
        judged.where(F.col(ERROR).isin(*errors))
        .groupBy("topic", "partition")
        .agg(F.min_by(F.struct("offset", "timestamp", "key", BATCH, ERROR, REASON), "offset").alias("first"))
        .orderBy(f"first.{BATCH}", "first.timestamp", "topic", "partition")
    )
    return [
        RefusedRecord(
            ConnectRecord(
                row["topic"],
                row["partition"],
                row["first"]["offset"],
                row["first"]["key"],
                None,
                row["first"]["timestamp"],
            ),
            row["first"][ERROR],
            row["first"][REASON],
        )
        for row in found.collect()
    ]


def before_stops(records: DataFrame, stops: Sequence[ConnectRecord]) -> DataFrame:
    """Records without those at and after a stop in the same partition of its topic."""
    if not stops:
        return records
    from pyspark.sql import functions as F

    places = [(stop.topic, stop.partition, stop.offset) for stop in stops]
    ends = records.sparkSession.createDataFrame(places, f"topic STRING, partition INT, {_END} BIGINT")
    joined = records.join(F.broadcast(ends), ["topic", "partition"], "left")
    return joined.where(F.col(_END).isNull() | (F.col("offset") < F.col(_END))).drop(_END)
