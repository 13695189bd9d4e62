"""Frames written from Python, as the connector's OdpsPipeline writes streams."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from upsert_platform.core.errors import DeclarationError, DestinationError, RecordError
from upsert_platform.maxcompute.pipeline import OdpsConf, OdpsPipeline, declared_type
from upsert_platform.maxcompute.stream_batches import MOST_QUERIES, StreamBatches
from upsert_platform_tests.local.maxcompute.server import ServerHandle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.whole_runs

KEYED = "CREATE TABLE {t} (id BIGINT NOT NULL, v STRING, PRIMARY KEY (id)) TBLPROPERTIES ('transactional'='true')"
PLAIN = "CREATE TABLE {t} (id BIGINT, v STRING)"


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


def test_a_batch_number_counts_within_its_query_alone(spark: SparkSession, maxcompute: ServerHandle) -> None:
    table = create(maxcompute, PLAIN)
    sink = pipeline(maxcompute, table)

    def one(number: int) -> DataFrame:
        return spark.createDataFrame([(number, "x")], "id LONG, v STRING")

    sink.sink(one(1))
    assert sink.sink(one(2), batch=0).upserts == 1  # not what the plain write before it made
    assert sink.sink(one(3), batch=0, query="a").upserts == 1
    assert sink.sink(one(4), batch=7, query="b").upserts == 1
    sink.sink(one(5))
    for number, query in ((0, "a"), (7, "b"), (0, None)):
        assert sink.sink(one(99), batch=number, query=query).metrics == {"already_applied": 1}
    assert sink.sink(one(6), batch=3, query="a").upserts == 1
    with pytest.raises(DestinationError, match="batch 2 of query 'a' comes after batch 3"):
        sink.sink(one(99), batch=2, query="a")
    with pytest.raises(DestinationError, match="0 or more, not -1"):
        sink.sink(one(99), batch=-1)
    assert rows(maxcompute, table) == [(number, "x") for number in range(1, 7)]


def test_a_streaming_query_started_anew_writes_its_first_batch(
    spark: SparkSession, maxcompute: ServerHandle, tmp_path: Path
) -> None:
    table = create(maxcompute, PLAIN)
    sink = pipeline(maxcompute, table)
    source = tmp_path / "source"
    source.mkdir()

    def run(checkpoint: str) -> None:
        stream = spark.readStream.schema("id LONG, v STRING").json(str(source))
        query = stream.writeStream.foreachBatch(lambda frame, batch: sink.sink(frame, batch=batch) and None)
        query.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()

    def add(number: int) -> None:
        (source / f"{number}.json").write_text(json.dumps({"id": number, "v": "x"}))

    add(1)
    run("first")
    add(2)
    run("first")
    assert rows(maxcompute, table) == [(1, "x"), (2, "x")]
    (tmp_path / "first" / "commits" / "1").unlink()  # as after a crash behind the write
    (tmp_path / "first" / "commits" / ".1.crc").unlink(missing_ok=True)
    run("first")
    assert rows(maxcompute, table) == [(1, "x"), (2, "x")]
    run("second")
    assert rows(maxcompute, table) == [(1, "x"), (1, "x"), (2, "x"), (2, "x")]


def test_queries_are_forgotten_in_the_order_in_which_they_wrote() -> None:
    written = StreamBatches()
    for number in range(MOST_QUERIES):
        written = written.with_batch(f"q{number}", number)
    written = StreamBatches.of(written.with_batch("q0", 5).with_batch("new", 0).to_text())
    assert len(written.last) == MOST_QUERIES
    assert written.holds("q0", 5)
    assert not written.holds("q1", 1)
    assert StreamBatches.of("another changelog").last == {}


@pytest.mark.parametrize(
    ("schema", "values", "message"),
    [
        ("_op STRING", [("d",)], "1 rows have something else, such as 'd'"),
        ("_op STRING", [("U",), ("-D",), ("DELETE",)], "2 rows have something else"),
        ("_op STRING", [(None,)], "1 rows have something else, such as None"),
        ("_op INT", [(1,)], "column '_op' is of type int"),
        ("_seq STRING", [("9",), ("10",)], "column '_seq' is of type string and takes whole numbers"),
        ("_seq LONG", [(1,), (None,)], "column '_seq' orders rows, and is null in 1 of them"),
    ],
)
@pytest.mark.parametrize("ddl", [KEYED, PLAIN], ids=["upsert", "insert"])
def test_what_a_row_does_is_checked_before_anything_is_written(
    spark: SparkSession, maxcompute: ServerHandle, ddl: str, schema: str, values: list[tuple[object]], message: str
) -> None:
    table = create(maxcompute, ddl)
    sink = pipeline(maxcompute, table, sink_operation="upsert" if ddl == KEYED else "insert")
    frame = spark.createDataFrame([(n, "x", *row) for n, row in enumerate(values)], f"id LONG, v STRING, {schema}")
    with pytest.raises(RecordError, match=message):
        sink.sink(frame)
    assert rows(maxcompute, table) == []


def test_two_rows_of_a_key_with_one_sequence_are_refused_unless_they_are_equal(
    spark: SparkSession, maxcompute: ServerHandle
) -> None:
    table = create(maxcompute, KEYED)
    sink = pipeline(maxcompute, table, sink_operation="upsert")
    schema = "id LONG, v STRING, _seq INT"
    sink.sink(spark.createDataFrame([(1, "a", 9), (1, "b", 10), (1, "b", 10), (1, "c", 9)], schema))
    assert rows(maxcompute, table) == [(1, "b")]
    with pytest.raises(RecordError, match="the key id = 1 has 2 different rows with '_seq' 11, its highest"):
        sink.sink(spark.createDataFrame([(1, "c", 11), (1, "d", 11)], schema))
    assert rows(maxcompute, table) == [(1, "b")]


def test_keys_that_are_stored_as_one_are_one(spark: SparkSession, maxcompute: ServerHandle) -> None:
    ddl = "CREATE TABLE {t} (id BIGINT NOT NULL, v STRING, PRIMARY KEY (id)) PARTITIONED BY (ds STRING)"
    table = create(maxcompute, f"{ddl} TBLPROPERTIES ('transactional'='true')")
    sink = pipeline(maxcompute, table, sink_operation="upsert")
    columns = "id LONG, v STRING, ds STRING"
    with pytest.raises(RecordError, match="comes 2 times"):
        sink.sink(spark.createDataFrame([(1, "a", None), (1, "b", "")], columns))
    changes = [(1, "a", "", 1), (1, "c", "__DEFAULT_PARTITION__", 3), (1, "b", None, 2)]
    sink.sink(spark.createDataFrame(changes, f"{columns}, _seq LONG"))
    assert rows(maxcompute, table) == [(1, "c", "__DEFAULT_PARTITION__")]


def test_an_insert_adds_and_overwrites(spark: SparkSession, maxcompute: ServerHandle) -> None:
    table = create(maxcompute, "CREATE TABLE {t} (id BIGINT, v STRING) PARTITIONED BY (ds STRING)")
    sink = pipeline(maxcompute, table)
    frame = spark.createDataFrame([(1, "a", "x"), (2, "b", "y")], "id LONG, v STRING, ds STRING")
    sink.sink(frame)
    sink.sink(frame)
    assert len(rows(maxcompute, table)) == 4
    sink.sink(frame.where("id = 1"), overwrite=True)
    assert rows(maxcompute, table) == [(1, "a", "x"), (2, "b", "y"), (2, "b", "y")]


def test_an_insert_into_a_table_with_a_key_puts_rows_by_it(spark: SparkSession, maxcompute: ServerHandle) -> None:
    table = create(maxcompute, KEYED)
    sink = pipeline(maxcompute, table)
    sink.sink(spark.createDataFrame([(1, "a"), (2, "a")], "id LONG, v STRING"))
    sink.sink(spark.createDataFrame([(2, "b", 1), (2, "c", 2)], "id LONG, v STRING, _seq INT"))
    with pytest.raises(RecordError, match="comes 2 times"):
        sink.sink(spark.createDataFrame([(1, "x"), (1, "y")], "id LONG, v STRING"))
    assert rows(maxcompute, table) == [(1, "a"), (2, "c")]


@pytest.mark.parametrize(
    ("options", "message", "error"),
    [
        ({"sink_operation": "replace"}, "sink.operation", DeclarationError),
        ({"partition": "ds"}, "sink.partition", DeclarationError),
        ({"sink_operation": "upsert"}, "no column 'ds', which is in the key", DestinationError),
        ({}, "PARTITIONED BY names 'ds', which is not a column", DeclarationError),
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
