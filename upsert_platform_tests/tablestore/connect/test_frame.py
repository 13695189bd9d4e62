"""The order in which records of one row are written: within a partition that of offsets, whatever their times."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from upsert_platform.tablestore.connect.frame import in_order
from upsert_platform_tests.changelog.places import Placed, last_values, random_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "topic STRING, partition INT, offset BIGINT, `timestamp` BIGINT, batch BIGINT, __upsert_key BINARY"


def row_of(record: Placed) -> tuple[object, ...]:
    at = None if record.at is None else round(record.at.timestamp() * 1000)
    return "t", record.partition, record.offset, at, record.batch, str(record.key).encode()


def test_the_record_that_is_written_last_is_the_one_that_counts(spark: SparkSession) -> None:
    records = random_records(random.Random(3), keys=40, batches=2, partitions=3, each=200)
    values = {(item.partition, item.offset): item.value for item in records}
    written: dict[int, list[tuple[int, int, int]]] = {}
    for row in in_order(spark.createDataFrame([row_of(item) for item in records], DDL), tasks=3).collect():
        written.setdefault(int(row["__upsert_key"]), []).append((row.batch, row.partition, row.offset))
    assert {key: values[places[-1][1:]] for key, places in written.items()} == last_values(records)
    for places in written.values():
        assert [batch for batch, _, _ in places] == sorted(batch for batch, _, _ in places)
        for partition in range(3):
            offsets = [offset for _, at, offset in places if at == partition]
            assert offsets == sorted(offsets)
