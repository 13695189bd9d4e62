"""Frames written from Python, as the connector's OdpsPipeline writes streams."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from upsert_platform.errors import DeclarationError, DestinationError, RecordError
from upsert_platform.maxcompute.pipeline import OdpsConf, OdpsPipeline, declared_type
from upsert_platform_tests.local.maxcompute.server import ServerHandle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pipeline(server: ServerHandle, table: str, *, partition: str = "", **configuration: str) -> OdpsPipeline:
    named = {name.replace("_", "."): value for name, value in configuration.items()}
    conf = OdpsConf(server.access_id, server.access_key, server.endpoint, server.project)
    return OdpsPipeline(
        project_name=server.project,
        table_name=table,
        odps_conf=conf,
        partition=partition,
        configuration={"control.table": f"control_{table}", **named},
    )


def rows(server: ServerHandle, table: str) -> list[tuple[object, ...]]:
    with server.odps().execute_sql(f"SELECT * FROM {table}").open_reader(tunnel=True) as reader:
        return sorted(tuple(record.values) for record in reader)


def create(server: ServerHandle, statement: str) -> str:
    name = f"pipeline_{uuid.uuid4().hex[:8]}"
    server.odps().execute_sql(statement.format(t=name))
    return name


def test_an_upsert_stream_converges_and_repeats_nothing(spark: SparkSession, maxcompute: ServerHandle) -> None:
    table = create(
        maxcompute,
        "CREATE TABLE {t} (id BIGINT NOT NULL, v STRING, PRIMARY KEY (id)) PARTITIONED BY (ds STRING)"
        " TBLPROPERTIES ('transactional'='true')",
    )
    sink = pipeline(maxcompute, table, partition="ds=1", sink_operation="upsert")
    first = spark.createDataFrame(
        [(1, "a", "U", 1), (1, "b", "U", 2), (2, "c", "U", 3)], "id LONG, v STRING, _op STRING, _seq LONG"
    )
    assert sink.sink(first, batch=0).upserts == 2
    assert sink.sink(first, batch=0).metrics == {"already_applied": 1}
    change = spark.createDataFrame([(1, None, "D"), (3, "d", "U")], "id LONG, v STRING, _op STRING")
    assert sink.sink(change, batch=1).deletes == 1
    assert rows(maxcompute, table) == [(2, "c", "1"), (3, "d", "1")]
    with pytest.raises(RecordError, match=r"the key id = 7 comes 2 times; add a column '_seq'"):
        sink.sink(spark.createDataFrame([(7, "x"), (7, "y")], "id LONG, v STRING"))


def test_an_insert_adds_and_overwrites(spark: SparkSession, maxcompute: ServerHandle) -> None:
    table = create(maxcompute, "CREATE TABLE {t} (id BIGINT, v STRING) PARTITIONED BY (ds STRING)")
    sink = pipeline(maxcompute, table)
    frame = spark.createDataFrame([(1, "a", "x"), (2, "b", "y")], "id LONG, v STRING, ds STRING")
    sink.sink(frame)
    sink.sink(frame)
    assert len(rows(maxcompute, table)) == 4
    sink.sink(frame.where("id = 1"), overwrite=True)
    assert rows(maxcompute, table) == [(1, "a", "x"), (2, "b", "y"), (2, "b", "y")]


@pytest.mark.parametrize(
    ("options", "message", "error"),
    [
        ({"sink_operation": "replace"}, "sink.operation", DeclarationError),
        ({"partition": "ds"}, "sink.partition", DeclarationError),
        ({"sink_operation": "upsert"}, "no column 'ds', which is in the key", DestinationError),
        ({}, "PARTITIONED BY names 'ds', which is no column", DeclarationError),
    ],
)
def test_what_does_not_fit_is_told_before_anything_is_written(
    spark: SparkSession, maxcompute: ServerHandle, options: Mapping[str, str], message: str, error: type[Exception]
) -> None:
    table = create(maxcompute, "CREATE TABLE {t} (id BIGINT, v STRING) PARTITIONED BY (ds STRING)")
    frame = spark.createDataFrame([], "id LONG, v STRING")
    with pytest.raises(error, match=message) as raised:
        pipeline(maxcompute, table, **options).sink(frame)
    assert maxcompute.access_key not in str(raised.value)


def test_a_table_that_is_missing_is_named(spark: SparkSession, maxcompute: ServerHandle) -> None:
    sink = pipeline(maxcompute, "no_such_table")
    assert maxcompute.access_key not in repr(sink)
    with pytest.raises(DestinationError, match="no_such_table does not exist"):
        sink.sink(spark.createDataFrame([], "id LONG"))


def test_types_of_spark() -> None:
    from pyspark.sql.types import CalendarIntervalType, StructType

    declared = StructType.fromDDL(
        "a STRUCT<b: ARRAY<DECIMAL(5,2)>>, m MAP<STRING, TIMESTAMP>, n TIMESTAMP_NTZ, x BINARY"
    )
    assert [declared_type(item.dataType) for item in declared.fields] == [
        "ROW<`b` ARRAY<DECIMAL(5, 2)>>", "MAP<STRING, TIMESTAMP_LTZ(6)>", "TIMESTAMP(6)", "BYTES",
    ]  # fmt: skip
    with pytest.raises(DestinationError, match="interval"):
        declared_type(CalendarIntervalType())
