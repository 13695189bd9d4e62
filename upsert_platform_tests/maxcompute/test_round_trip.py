"""Every declared type: written by Spark's tasks, read by an unmodified PyODPS and by our reader (section 1.7)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.frames import frame, stored, write
from upsert_platform_tests.maxcompute.test_ddl import EVERY_TYPE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW = (
    1, "ab", "vär", "sträng \\ '", True, -128, 32_767, -(2**31), 1.5, -2.25, Decimal("-1234567890.12"),
    Decimal("9999999999"), dt.date(1969, 12, 31), 1_234_567_000, dt.datetime(1960, 1, 1, 0, 0, 0, 500_000),  # noqa: DTZ001
    dt.datetime(2021, 1, 1, 1, 2, 3, 123_456), dt.datetime(2023, 6, 16, 1, 59, 41, 116_000, tzinfo=dt.UTC),  # noqa: DTZ001
    bytearray(b"\x00\xe4="), [1, None, 3], {"k": 2**62, "n": None}, (7, "x"),
)  # fmt: skip
NULLS = (2, *[None] * (len(EVERY_TYPE) - 1))


def test_23_every_type_reads_back_equal(
    spark: SparkSession, maxcompute: ServerHandle, opened: Callable[..., MaxComputeDestination]
) -> None:
    destination = opened(EVERY_TYPE)
    changes = [("U", ROW), ("U", NULLS), ("U", (3, *ROW[1:]))]
    report = write(spark, destination, 1, changes)
    assert (report.upserts, report.refused_count) == (3, 0)
    write(spark, destination, 2, [("D", (3, *NULLS[1:]))])
    expected = frame(spark, destination.table, changes[:2]).drop("_op", "_seq").orderBy("id").collect()
    assert destination.read(spark).orderBy("id").collect() == expected

    columns = "i1, n, n0, day, clock, bin"
    assert stored(maxcompute, destination.table, columns)[0] == (
        -128,
        Decimal("-1234567890.12"),
        Decimal("9999999999"),
        dt.date(1969, 12, 31),
        "00:20:34.567",
        b"\x00\xe4=",
    )
    moments = "CAST(dt AS STRING) a, CAST(ts AS STRING) b, CAST(tz AS STRING) c"
    assert stored(maxcompute, destination.table, moments)[0] == (
        "1960-01-01 00:00:00.5",
        "2021-01-01 01:02:03.123456",
        "2023-06-16 01:59:41.116",
    )


def test_columns_stand_in_any_order_and_wider_types_are_used(
    spark: SparkSession,
    maxcompute: ServerHandle,
    opened: Callable[..., MaxComputeDestination],
    make_table: Callable[..., object],
) -> None:
    table = make_table({"ID": "BIGINT", "t": "TIMESTAMP(3)", "v": "VARCHAR(5)"}, key=["ID"])
    destination = MaxComputeDestination(table)  # type: ignore[arg-type]
    destination._client.run_sql(
        f"CREATE TABLE {destination.table.target.sql} (v STRING, id BIGINT NOT NULL, t TIMESTAMP_NTZ,"
        ' PRIMARY KEY (id)) TBLPROPERTIES ("transactional"="true", "write.bucket.num"="4")'
    )
    destination.prepare()
    moment = dt.datetime(2021, 1, 1, 0, 0, 0, 5000)  # noqa: DTZ001
    write(spark, destination, 1, [("U", (1, moment, "five!")), ("U", (2, None, "sixsix"))])
    assert destination.read(spark).collect() == [(1, moment, "five!"), (2, None, "sixsix")]
    assert stored(maxcompute, destination.table, "id, v") == [(1, "five!"), (2, "sixsix")]
    destination.close()
