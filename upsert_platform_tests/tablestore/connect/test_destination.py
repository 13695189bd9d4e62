"""The connector's destination under Spark: what becomes of a write whose reports cannot be delivered."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.core.destination import BatchSpan, RefusedRow
from upsert_platform.core.errors import DestinationError
from upsert_platform.tablestore.connect.destination import ConnectDestination
from upsert_platform.tablestore.connect.reports import ReportMessage
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.tablestore.connect.test_compare import sink_on

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.whole_runs

IN_TABLE = {
    "runtime.error.mode": "tablestore",
    "runtime.error.table.name": "{table}_errors",
    "retry.deadline": "300 ms",
}
IN_TOPIC = {
    "runtime.error.mode": "kafka",
    "runtime.error.topic.name": "errors",
    "runtime.error.bootstrap.servers": "127.0.0.1:1",
}


class BrokenReports:
    """Topics that take no message."""

    def prepare(self, topic: str, *, servers: str | None, create: bool, replication: int | None) -> None:
        """Finds the topic."""

    def send(self, topic: str, messages: Sequence[ReportMessage], *, servers: str | None) -> None:
        """Fails."""
        raise DestinationError(f"topic '{topic}' took none of {len(messages)} messages")


def _records(spark: SparkSession) -> DataFrame:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    rows = [("t", 0, offset, at, b"k", value, "U", 1) for offset, value in enumerate((b'{"A":1}', b"[1]"))]
    return spark.createDataFrame(
        rows,
        "topic STRING, partition INT, `offset` BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY,"
        " _op STRING, _seq BIGINT",
    )


DIRTY_RECORDS = 10_400
"""More than a declared table may refuse by default."""


@pytest.mark.parametrize("report", [{}, {"runtime.error.mode": "tablestore", "runtime.error.table.name": "{table}_e"}])
def test_all_is_tolerated_however_much_it_is_and_no_driver_collects_it(
    spark: SparkSession, server: ServerHandle, tmp_path: Path, report: dict[str, str]
) -> None:
    from pyspark.sql import functions as F

    converter = {"key.converter": "org.apache.kafka.connect.storage.StringConverter"}
    sink = sink_on(server, {**converter, **report})
    destination = ConnectDestination(sink)
    destination.prepare()
    good, bad = _records(spark).drop("offset").collect()
    many = spark.createDataFrame([bad, *[good] * 5], _records(spark).drop("offset").schema).select(
        F.explode(F.sequence(F.lit(0), F.when(F.col("value") == b"[1]", DIRTY_RECORDS - 1).otherwise(1))).alias("n"),
        "*",
    )
    changes = many.select("topic", "partition", F.monotonically_increasing_id().alias("offset"), *many.columns[3:])
    store = RefusedStore(str(tmp_path / "refused"))
    span = BatchSpan(0, 1, "log", "run")
    with destination.lease(owner="test", duration=timedelta(minutes=1)) as lease:
        found = destination.write(changes, span=span, lease=lease, keep_refused=store.of(span))
    assert (found.refused_count, found.upserts, len(found.refused)) == (DIRTY_RECORDS, 10, 20)
    assert destination.state().applied_batch == 1
    kept = store.read()
    assert kept.num_rows == DIRTY_RECORDS == len(set(kept["key"].to_pylist()))
    if report:
        reported = dataclasses.replace(sink, table_name=f"{sink.table_name}_e")
        assert ConnectDestination(reported).read(spark).count() == DIRTY_RECORDS
    destination.close()


@pytest.mark.parametrize(
    ("options", "fault", "message"),
    [
        (
            IN_TABLE,
            "row-error:code=OTSNotEnoughCapacityUnit,table={errors}",
            "1 rows could not be written within 0.3 s",
        ),
        (IN_TABLE, "row-error:code=OTSInvalidPK,table={errors}", "the error row of t_0@1 was not taken by table"),
        (IN_TOPIC, "", "topic 'errors' took none of 1 messages"),
    ],
    ids=["table is busy", "table refuses", "topic"],
)
def test_94_a_report_that_cannot_be_delivered_fails_the_write(
    spark: SparkSession, disturbed: ServerHandle, options: dict[str, str], fault: str, message: str
) -> None:
    converter = {"key.converter": "org.apache.kafka.connect.storage.StringConverter"}
    sink = sink_on(disturbed, {**converter, **options})
    destination = ConnectDestination(sink, reports=BrokenReports())
    destination.prepare()
    if fault:
        disturbed.faults(fault.format(errors=f"{sink.table_name}_errors"))
    kept: list[RefusedRow] = []
    span = BatchSpan(0, 1, "log", "run")
    with (
        pytest.raises(DestinationError, match=message),
        destination.lease(owner="test", duration=timedelta(minutes=1)) as lease,
    ):
        destination.write(_records(spark), span=span, lease=lease, keep_refused=kept.extend)
    assert destination.state().applied_batch == 0
    assert len(kept) == 1
    disturbed.faults()
    destination.close()
