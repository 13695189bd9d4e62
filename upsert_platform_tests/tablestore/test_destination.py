"""The destination as the graph drives it: Spark in between, the official SDK reading back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.testing import assertDataFrameEqual

from upsert_platform.core.destination import BatchSpan, DestinationState, RefusedRow, Verdict
from upsert_platform.core.errors import DestinationError, LeaseHeldError, RecordError
from upsert_platform.core.task_runner import RowsOfTask
from upsert_platform.core.types import spark_type
from upsert_platform.tablestore.destination import TablestoreDestination
from upsert_platform.tablestore.table import TablestoreTable
from upsert_platform.writing.lease import Tenure
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.tablestore.declared import change_batch, table_on
from upsert_platform_tests.task_rows import task_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "score": "DOUBLE"}
MINUTE = timedelta(minutes=1)
Stored = Callable[[ServerHandle, TablestoreTable], dict[Any, Any]]


def change_frame(
    spark: SparkSession, table: TablestoreTable, rows: Sequence[Mapping[str, Any]], *, sequence: int = 1
) -> DataFrame:
    import pyarrow as pa

    declared = ", ".join(f"`{column.name}` {spark_type(column.type)}" for column in table.columns if column.type)
    changes = pa.Table.from_batches([change_batch(table, rows, sequence=sequence)])
    return spark.createDataFrame(changes, f"{declared}, _op STRING, _seq BIGINT")


def _span(upto: int) -> BatchSpan:
    return BatchSpan(after=upto - 1, upto=upto, changelog_id="log", run=f"run {upto}")


def _write(destination: TablestoreDestination, changes: DataFrame | RowsOfTask, *, upto: int = 1) -> Any:
    destination.prepare()
    with destination.lease(owner="test", duration=MINUTE) as lease:
        return destination.write(changes, span=_span(upto), lease=lease)


def test_a_span_is_written_recorded_and_read_back(spark: SparkSession, server: ServerHandle, stored: Stored) -> None:
    table = table_on(server, COLUMNS, ["id"])
    destination = TablestoreDestination(table)
    assert destination.state() == DestinationState()
    rows = [{"id": row, "name": f"n{row}", "score": row / 4} for row in range(1000)]
    report = _write(destination, change_frame(spark, table, rows).repartition(3))
    assert (report.upserts, report.deletes, report.refused_count) == (1000, 0, 0)
    assert report.metrics["requests"] >= 5
    second = [{"id": 0, "_op": "D"}, {"id": 1, "name": "new"}, {"id": 5000, "_op": "D"}]
    report = _write(destination, change_frame(spark, table, second), upto=2)
    assert (report.upserts, report.deletes) == (1, 2)
    state = destination.state()
    assert (state.applied_batch, state.changelog_id, state.holder) == (2, "log", None)
    found = stored(server, table)
    assert len(found) == 999
    assert found[(1,)] == {"name": "new"}
    expected = [(1, "new", None), *((row["id"], row["name"], row["score"]) for row in rows[2:])]
    wanted = spark.createDataFrame(expected, "id BIGINT, name STRING, score DOUBLE")
    assertDataFrameEqual(destination.read(spark), wanted)
    keys = spark.createDataFrame([(1,), (7,), (7,), (0,), (None,), (99_999,)], "id BIGINT")
    assertDataFrameEqual(destination.read(spark, keys=keys), wanted.where("id in (1, 7)"))
    destination.close()
    destination.close()


def test_every_type_survives_the_round_trip(spark: SparkSession, server: ServerHandle) -> None:
    noon = datetime(2026, 11, 1, 10, 0, 0, 123_000)  # noqa: DTZ001 - TIMESTAMP has no zone
    columns = {
        "day": "DATE NOT NULL",
        "raw": "BYTES NOT NULL",
        "at": "TIMESTAMP(3) NOT NULL",
        "number": "DECIMAL(10, 2) NOT NULL",
        "tiny": "TINYINT",
        "small": "SMALLINT",
        "float": "FLOAT",
        "flag": "BOOLEAN",
        "time": "TIME(3)",
        "instant": "TIMESTAMP_LTZ(6)",
        "list": "ARRAY<STRING>",
        "map": "MAP<STRING, BIGINT>",
        "row": "ROW<a INT, b ROW<c DECIMAL(4, 1)>>",
    }
    row = {
        "day": date(2026, 1, 2),
        "raw": b"\x00k",
        "at": noon,
        "number": Decimal("12.30"),
        "tiny": -1,
        "small": 300,
        "float": 0.5,
        "flag": False,
        "time": 36_000_120_000,
        "instant": noon.replace(tzinfo=UTC),
        "list": ["a", None],
        "map": {"x": 1},
        "row": {"a": 1, "b": {"c": Decimal("2.5")}},
    }
    empty = {**dict.fromkeys(columns), "day": date(1, 1, 1), "raw": b"", "at": noon, "number": Decimal("-0.01")}
    table = table_on(server, columns, ["day", "raw", "at", "number"])
    destination = TablestoreDestination(table)
    changes = change_frame(spark, table, [row, empty])
    _write(destination, changes)
    wanted = changes.drop("_op", "_seq")
    for found in (destination.read(spark), destination.read(spark, keys=wanted)):
        assert found.schema.simpleString() == wanted.schema.simpleString()
        # A map cannot be compared by assertDataFrameEqual's sort.
        assert sorted(map(str, found.collect())) == sorted(map(str, wanted.collect()))


def test_refused_rows_are_kept_before_the_write_is_recorded(
    spark: SparkSession, server: ServerHandle, stored: Stored
) -> None:
    table = table_on(server, COLUMNS, ["id"])
    destination = TablestoreDestination(table)
    rows = [{"id": 1, "score": float("nan")}, {"id": 2, "score": 2.0}, {"id": None, "name": "é"}]
    changes = change_frame(spark, table, rows).repartition(2)
    with pytest.raises(RecordError, match="2 rows were refused"):
        _write(destination, changes)
    assert destination.state().applied_batch == 0
    kept: list[RefusedRow] = []
    with destination.lease(owner="test", duration=MINUTE) as lease:
        report = destination.write(changes, span=_span(1), lease=lease, keep_refused=kept.extend)
    assert (report.upserts, report.refused_count) == (1, 2)
    assert sorted(row.row for row in kept) == [
        '{"id":1,"name":null,"score":"nan","_op":"U"}',
        '{"id":null,"name":"é","score":null,"_op":"U"}',
    ]
    assert destination.state().applied_batch == 1
    assert stored(server, table) == {(2,): {"score": 2.0}}


def test_on_error_fail_records_nothing(spark: SparkSession, server: ServerHandle) -> None:
    table = table_on(server, COLUMNS, ["id"], {"on-error": "fail"})
    destination = TablestoreDestination(table)
    with pytest.raises(RecordError, match=r'does not take the row {"id":1}: column \'score\''):
        _write(destination, change_frame(spark, table, [{"id": 1, "score": float("inf")}]))
    assert destination.state().applied_batch == 0


def test_a_failed_write_records_nothing_and_a_replay_converges(
    spark: SparkSession, disturbed: ServerHandle, stored: Stored
) -> None:
    table = table_on(disturbed, COLUMNS, ["id"], {"retry.deadline": "300 ms", "max.concurrency": "1"})
    destination = TablestoreDestination(table)
    rows = [{"id": row, "name": "x"} for row in range(1000)]
    changes = change_frame(spark, table, rows).coalesce(1)
    destination.prepare()
    disturbed.faults("error:code=OTSServerUnavailable,operation=BatchWriteRow,skip=2")
    with pytest.raises(DestinationError, match=r"200 rows could not be written within 0.3 s"):
        _write(destination, changes)
    assert destination.state().applied_batch == 0
    assert 0 < len(stored(disturbed, table)) < 1000
    disturbed.faults()
    _write(destination, changes)
    assert destination.state().applied_batch == 1
    assert len(stored(disturbed, table)) == 1000


def test_a_lost_lease_records_nothing(spark: SparkSession, server: ServerHandle) -> None:
    table = table_on(server, COLUMNS, ["id"])
    destination = TablestoreDestination(table)
    destination.prepare()
    with destination.lease(owner="slow", duration=MINUTE) as lease:
        assert destination._control.swap(destination._control.tenure(), Tenure("t", 9e9, "thief", 2))
        with pytest.raises(LeaseHeldError, match="'thief' holds it now"):
            destination.write(change_frame(spark, table, [{"id": 1}]), span=_span(1), lease=lease)
    state = destination.state()
    assert (state.applied_batch, state.holder) == (0, "thief")


def test_two_writers_are_kept_apart(server: ServerHandle) -> None:
    table = table_on(server, COLUMNS, ["id"])
    first, second = TablestoreDestination(table), TablestoreDestination(table)
    for _ in range(2):  # looking creates none
        assert second.unprepared() == f"Tablestore table '{table.table_name}' does not exist"
    first.prepare()
    assert second.unprepared() == ""
    with first.lease(owner="run 1", duration=MINUTE):
        assert second.state().holder == "run 1"
        with pytest.raises(LeaseHeldError, match="run 1"), second.lease(owner="run 2", duration=MINUTE):
            pytest.fail("both hold the table")


def test_the_verdict_stands_beside_the_applied_batch(spark: SparkSession, server: ServerHandle) -> None:
    table = table_on(server, COLUMNS, ["id"])
    destination = TablestoreDestination(table)
    _write(destination, change_frame(spark, table, [{"id": 1}]))
    about = destination.state()
    at = datetime(2026, 1, 1, tzinfo=UTC)
    verdict = Verdict(1, False, True, at, "missing 1", about.changelog_id, about.table_id)
    destination.record_verdict(verdict)
    state = destination.state()
    assert (state.applied_batch, state.verdict) == (1, verdict)


def test_a_table_that_was_dropped_starts_again(
    spark: SparkSession, server: ServerHandle, sdk_client: Callable[[ServerHandle], Any]
) -> None:
    table = table_on(server, COLUMNS, ["id"])
    destination = TablestoreDestination(table)
    _write(destination, change_frame(spark, table, [{"id": 1}]), upto=9)
    sdk_client(server).delete_table(table.table_name)
    lost = destination.state()
    assert (lost.applied_batch, lost.changelog_id) == (0, "")
    assert "which held the batches up to 9, is gone" in lost.lost
    destination.prepare()
    state = destination.state()
    assert (state.applied_batch, state.changelog_id, state.last_verdict, state.lost) == (0, "", None, "")


def test_a_table_that_was_dropped_and_made_again_by_hand_is_written_again(
    spark: SparkSession, server: ServerHandle, stored: Stored, sdk_client: Callable[[ServerHandle], Any]
) -> None:
    from tablestore.metadata import CapacityUnit, ReservedThroughput, TableMeta, TableOptions

    table = table_on(server, COLUMNS, ["id"], {"auto.create": "false"})
    sdk = sdk_client(server)

    def make() -> None:
        meta = TableMeta(table.table_name, [("id", "INTEGER")])
        sdk.create_table(meta, TableOptions(), ReservedThroughput(CapacityUnit(0, 0)))

    make()
    destination = TablestoreDestination(table)
    _write(destination, change_frame(spark, table, [{"id": 1, "name": "x"}]), upto=9)
    before = destination.state()
    verdict = Verdict(9, True, True, datetime(2026, 1, 2, tzinfo=UTC), "", before.changelog_id, before.table_id)
    destination.record_verdict(verdict)
    state = destination.state()
    assert (state.applied_batch, state.verdict, state.lost) == (9, verdict, "")
    sdk.delete_table(table.table_name)
    make()
    state = destination.state()
    assert (state.applied_batch, state.changelog_id, state.verdict) == (0, "", None)
    assert "up to 9, was dropped and made anew" in state.lost
    _write(destination, change_frame(spark, table, [{"id": 1, "name": "x"}]), upto=9)
    state = destination.state()
    assert (state.applied_batch, state.changelog_id, state.lost) == (9, before.changelog_id, "")
    assert state.verdict is None, "nobody has looked at this table"
    assert stored(server, table) == {(1,): {"name": "x"}}


def test_a_table_that_is_made_again_during_a_write_is_not_recorded(
    spark: SparkSession, server: ServerHandle, sdk_client: Callable[[ServerHandle], Any]
) -> None:
    table = table_on(server, COLUMNS, ["id"])
    destination = TablestoreDestination(table)
    destination.prepare()
    sdk_client(server).delete_table(table.table_name)
    TablestoreDestination(table).prepare()
    with (
        pytest.raises(DestinationError, match="was dropped and made anew while this run wrote it"),
        destination.lease(owner="test", duration=MINUTE) as lease,
    ):
        destination.write(change_frame(spark, table, [{"id": 1}]), span=_span(1), lease=lease)
    assert destination.state().applied_batch == 0


def test_1_3_a_missing_table_is_named(server: ServerHandle) -> None:
    table = table_on(server, COLUMNS, ["id"], {"auto.create": "false"})
    with pytest.raises(DestinationError, match=rf"'{table.table_name}' does not exist.*'auto.create' = 'true'"):
        TablestoreDestination(table).prepare()


def test_1_3_every_difference_is_named(server: ServerHandle, sdk_client: Callable[[ServerHandle], Any]) -> None:
    from tablestore.metadata import PK_AUTO_INCR, CapacityUnit, ReservedThroughput, TableMeta, TableOptions

    table = table_on(server, {"id": "BIGINT", "day": "STRING", "name": "STRING"}, ["id", "day"])
    keys = [("id", "STRING"), ("dy", "STRING"), ("n", "INTEGER", PK_AUTO_INCR)]
    meta = TableMeta(table.table_name, keys, [("name", "INTEGER")])
    sdk_client(server).create_table(meta, TableOptions(), ReservedThroughput(CapacityUnit(0, 0)))
    with pytest.raises(DestinationError) as error:
        TablestoreDestination(table).prepare()
    for part in (
        "has 3 primary key columns (id STRING, dy STRING, n INTEGER), declared are 2 (id INTEGER, day STRING)",
        "primary key column 'id' is STRING, declared is INTEGER",
        "primary key column 2 is 'dy', declared is 'day'",
        "predefined column 'name' is INTEGER, declared is STRING",
    ):
        assert part in str(error.value)


def test_a_created_table_has_what_was_declared(
    disturbed: ServerHandle, sdk_client: Callable[[ServerHandle], Any]
) -> None:
    options = {
        "table.time-to-live": "86400",
        "table.max-versions": "3",
        "table.reserved-throughput.read": "1",
        "table.reserved-throughput.write": "2",
    }
    disturbed.faults("not-ready:seconds=0.5")
    table = table_on(disturbed, {"v": "INT", "b": "BYTES", "a": "STRING"}, ["a", "b"], options)
    destination = TablestoreDestination(table)
    destination.prepare()
    destination.prepare()
    described = sdk_client(disturbed).describe_table(table.table_name)
    assert [tuple(key) for key in described.table_meta.schema_of_primary_key] == [("a", "STRING"), ("b", "BINARY")]
    assert (described.table_options.time_to_live, described.table_options.max_version) == (86400, 3)
    capacity = described.reserved_throughput_details.capacity_unit
    assert (capacity.read, capacity.write) == (1, 2)


def test_a_foreign_cell_is_named(
    spark: SparkSession, server: ServerHandle, sdk_client: Callable[[ServerHandle], Any]
) -> None:
    from tablestore.metadata import Row

    table = table_on(server, COLUMNS, ["id"])
    destination = TablestoreDestination(table)
    destination.prepare()
    sdk_client(server).put_row(table.table_name, Row([("id", 1)], [("score", "high")]))
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=r"column 'score'.*holds a cell that is not DOUBLE"):
        destination.read(spark).collect()


def test_no_secret_in_plans_configuration_or_errors(spark: SparkSession, server: ServerHandle) -> None:
    table = table_on(server, COLUMNS, ["id"])
    destination = TablestoreDestination(table)
    destination.prepare()
    frame = destination.read(spark)
    shown = frame._jdf.queryExecution().toString() + str(spark.sparkContext.getConf().getAll()) + repr(table)
    assert server.access_key_secret not in shown
    assert server.access_key_secret not in destination.uri


def test_the_number_of_tasks_is_warned_of_once_where_no_task_writes(
    server: ServerHandle, stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    import pyarrow as pa

    table = table_on(server, COLUMNS, ["id"], {"sink.parallelism": "3"})
    destination = TablestoreDestination(table)
    for upto in (1, 2):
        batch = change_batch(table, [{"id": upto, "name": "n"}], sequence=upto)
        _write(destination, task_rows(pa.Table.from_batches([batch])), upto=upto)
    assert len(stored(server, table)) == 2
    assert (
        caplog.text.count("'sink.parallelism' = '3' has no effect on batches of few rows, which one task writes") == 1
    )
    destination.close()
