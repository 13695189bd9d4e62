"""Partitions: static, dynamic and both; values, limits, moves (sections 1.2, 2.8, 6.3)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.core.errors import DestinationError
from upsert_platform.maxcompute.assigners import BY_COLUMNS, BY_TIME, format_time
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.partition_spec import plan_partitions, refuse_value
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.frames import Change, frame, stored, write
from upsert_platform_tests.sync.expecting import checked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

COLUMNS = {"id": "BIGINT", "v": "STRING", "ds": "STRING"}
MOVES = {"sink_partition_move-rows": "true"}
Opened = Callable[..., MaxComputeDestination]


def by_day_of_id(batch: pa.RecordBatch) -> Mapping[str, pa.Array]:
    """An assigner: the partition is the last digit of the key."""
    return {"ds": pc.binary_join_element_wise("d", pc.subtract(batch.column("id"), 0).cast(pa.string()), "")}


def test_dynamic_partitions_follow_the_key_and_rows_read_back(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = opened(COLUMNS, key=["id", "ds"], partitioned_by=["ds"])
    report = write(spark, destination, 1, [("U", (1, "a", "x")), ("U", (1, "b", "y")), ("U", (2, "c", "x"))])
    assert report.metrics["partitions"] == 2
    assert stored(maxcompute, destination.table) == [(1, "a", "x"), (1, "b", "y"), (2, "c", "x")]
    write(spark, destination, 2, [("D", (1, None, "x"))])
    assert stored(maxcompute, destination.table) == [(1, "b", "y"), (2, "c", "x")]
    assert sorted(destination.read(spark).collect()) == [(1, "b", "y"), (2, "c", "x")]


def test_66_67_null_and_blank_go_to_the_default_partition_wherever_the_column_is(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    columns = {"p1": "STRING", "c1": "BIGINT", "p2": "STRING", "c2": "STRING"}
    destination = opened(columns, key=(), partitioned_by=["p1", "p2"], sink_partition="p1=1")
    rows = [("x", 1, None, "a"), ("x", 2, "  ", "b"), (None, 3, "p2v", "c")]
    write(spark, destination, 1, [("U", row) for row in rows])
    assert stored(maxcompute, destination.table, "c1, c2, p1, p2") == [
        (1, "a", "1", "__DEFAULT_PARTITION__"),
        (2, "b", "1", "__DEFAULT_PARTITION__"),
        (3, "c", "1", "p2v"),
    ]


def test_58_more_partitions_than_the_limit_is_an_error_before_anything_is_written(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = opened(COLUMNS, key=(), partitioned_by=["ds"], **{"sink_dynamic-partition_limit": "3"})
    changes = [("U", (number, "v", f"p{number}")) for number in range(4)]
    with pytest.raises(DestinationError, match="more than 3 partitions"):
        write(spark, destination, 1, changes)
    assert stored(maxcompute, destination.table) == []
    assert destination.state().applied_batch == 0
    write(spark, destination, 1, changes[:3])
    assert len(stored(maxcompute, destination.table)) == 3


def test_60_static_partition_overrides_the_rows(spark: SparkSession, maxcompute: ServerHandle, opened: Opened) -> None:
    destination = opened(COLUMNS, key=["id"], partitioned_by=["ds"], sink_partition="ds='fixed'")
    write(spark, destination, 1, [("U", (1, "a", "other")), ("U", (2, "b", None))])
    write(spark, destination, 2, [("D", (1, None, None))])
    assert stored(maxcompute, destination.table) == [(2, "b", "fixed")]
    assert destination.read(spark).collect() == [(2, "b", "fixed")]


def test_61_static_parent_and_dynamic_child_with_grouping(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    columns = {"id": "BIGINT", "author": "STRING", "date": "DATE"}
    options = {"sink_partition": "author=me", "sink_group-partition_enable": "true", "sink_parallelism": "2"}
    destination = opened(columns, key=["id", "date"], partitioned_by=["author", "date"], **options)
    days = [dt.date(2024, 2, 28), dt.date(2024, 2, 29)]
    write(spark, destination, 1, [("U", (n, None, days[n % 2])) for n in range(10)])
    rows = stored(maxcompute, destination.table, "id, author, `date`")
    assert rows == [(n, "me", str(days[n % 2])) for n in range(10)]
    assert sorted(destination.read(spark).collect()) == [(n, "me", days[n % 2]) for n in range(10)]


def test_static_partitions_of_one_table_do_not_meet(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    first = opened(COLUMNS, key=["id"], partitioned_by=["ds"], sink_partition="ds=1")
    shared = {"table_name": first.table.target.table, "control_table": first.table.settings.control_table}
    second = opened(COLUMNS, key=["id"], partitioned_by=["ds"], sink_partition="ds=2", **shared)
    write(spark, first, 1, [("U", (1, "a", None))])
    assert second.state().applied_batch == 0
    write(spark, second, 1, [("U", (1, "b", None))])
    assert second.read(spark).collect() == [(1, "b", "2")]
    assert stored(maxcompute, first.table) == [(1, "a", "1"), (1, "b", "2")]


def test_a_row_moves_when_its_partition_changes_and_is_deleted_where_it_is(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    destination = opened(COLUMNS, key=["id"], partitioned_by=["ds"], **MOVES)
    assert destination.places == ()
    write(spark, destination, 1, [("U", (n, "a", "old")) for n in range(4)])
    assert "PARTITIONED BY" not in caplog.text
    write(spark, destination, 2, [("U", (1, "b", "new")), ("D", (2, None, None)), ("D", (7, None, None))])
    expected = [(0, "a", "old"), (1, "b", "new"), (3, "a", "old")]
    assert stored(maxcompute, destination.table) == expected
    write(spark, destination, 3, [("U", (1, "c", "new")), ("U", (2, "d", "new"))])
    assert stored(maxcompute, destination.table) == [
        (0, "a", "old"),
        (1, "c", "new"),
        (2, "d", "new"),
        (3, "a", "old"),
    ]


def test_rows_stay_where_they_were_by_default_and_a_delete_is_for_every_partition(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    destination = opened(COLUMNS, key=["id"], partitioned_by=["ds"])
    assert destination.places == ("ds",)
    destination.state()
    assert "is written for the first time: PARTITIONED BY (ds) is outside the PRIMARY KEY" in caplog.text
    caplog.clear()
    write(spark, destination, 1, [("U", (1, "a", "old")), ("U", (2, "a", "old"))])
    report = write(spark, destination, 2, [("U", (1, "b", "new")), ("U", (2, "b", "new"))])
    assert (report.upserts, report.deletes) == (2, 0)
    older = [(1, "a", "old"), (1, "b", "new"), (2, "a", "old"), (2, "b", "new")]
    assert stored(maxcompute, destination.table) == older
    report = write(spark, destination, 3, [("U", (1, "c", "new")), ("D", (2, None, None)), ("D", (7, None, None))])
    assert (report.upserts, report.deletes) == (1, 2)
    assert stored(maxcompute, destination.table) == [(1, "a", "old"), (1, "c", "new")]
    destination.state()
    assert "for the first time" not in caplog.text
    assert caplog.text.count("'sink.partition.move-rows' = 'true' keeps one row per key") == 1
    shared = {"table_name": destination.table.target.table, "control_table": destination.table.settings.control_table}
    moves = opened(COLUMNS, key=["id"], partitioned_by=["ds"], **shared, **MOVES)
    assert moves.places == ()
    report = write(spark, moves, 4, [("U", (1, "d", "newer"))])
    assert (report.upserts, report.deletes) == (1, 2)
    assert stored(maxcompute, moves.table) == [(1, "d", "newer")]


def test_a_batch_puts_a_row_per_partition_after_the_delete_of_its_key(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = opened(COLUMNS, key=["id"], partitioned_by=["ds"])
    write(spark, destination, 1, [("U", (1, "a", "x")), ("U", (1, "a", "y")), ("U", (2, "a", "x"))])
    assert stored(maxcompute, destination.table) == [(1, "a", "x"), (1, "a", "y"), (2, "a", "x")]
    write(spark, destination, 2, [("D", (1, None, None)), ("U", (1, "b", "y")), ("U", (1, "b", "z"))])
    assert stored(maxcompute, destination.table) == [(1, "b", "y"), (1, "b", "z"), (2, "a", "x")]


def test_a_row_that_moves_with_a_null_where_none_may_be_leaves_the_old_one(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = opened({**COLUMNS, "v": "STRING NOT NULL"}, key=["id"], partitioned_by=["ds"], **MOVES)
    write(spark, destination, 1, [("U", (1, "old", "a")), ("U", (2, "old", "a"))])
    report = write(spark, destination, 2, [("U", (1, None, "b")), ("U", (2, "new", "b"))])
    assert report.refused_count == 1
    assert stored(maxcompute, destination.table) == [(1, "old", "a"), (2, "new", "b")]


def test_checks_look_at_the_partition_of_the_last_value_when_rows_stay(
    spark: SparkSession, opened: Opened, tmp_path: Path
) -> None:
    destination = opened(COLUMNS, key=["id"], partitioned_by=["ds"], **{"sink_partition_move-rows": "false"})
    write(spark, destination, 1, [("U", (n, "a", "old")) for n in range(5)])
    write(spark, destination, 2, [("U", (n, "b", "new")) for n in range(3)])
    expected: list[Change] = [
        ("U", (0, "b", "new")),
        ("U", (1, "c", "new")),  # another value there
        ("D", (2, None, None)),  # still in two partitions
        ("U", (3, "a", "new")),  # only in another partition
        ("U", (5, "a", "old")),  # nowhere
    ]  # and a key 4 that nobody knows
    changes = frame(spark, destination.table, expected)
    found = checked(spark, destination, changes, RefusedStore(str(tmp_path / "refused")), upto=2)
    assert (found.stale, found.missing, found.extra) == (1, 2, 3)


def test_a_row_without_a_partition_value_is_not_taken_for_a_stale_one(
    spark: SparkSession, opened: Opened, tmp_path: Path
) -> None:
    columns = {"id": "BIGINT", "ds": "STRING", "day": "DATE", "hour": "BIGINT"}
    options = {"key": ["id"], "partitioned_by": ["ds", "day", "hour"], "sink_partition_default-value": "-1", **MOVES}
    destination = opened(columns, **options)
    day = dt.date(2024, 2, 29)
    rows: list[Change] = [("U", (0, None, None, None)), ("U", (1, " ", day, 7)), ("U", (2, "x", day, None))]
    write(spark, destination, 1, rows)
    # No day is written -1, so what is read back is null.
    read = [(0, "-1", None, -1), (1, "-1", day, 7), (2, "x", day, -1)]
    assert sorted(destination.read(spark).collect()) == read
    changes = frame(spark, destination.table, [*rows[:2], ("U", (2, None, day, None))])
    found = checked(spark, destination, changes, RefusedStore(str(tmp_path / "refused")), upto=1)
    assert (found.compared, found.stale, found.missing, found.extra) == (3, 1, 0, 0)
    assert found.sample[0]["difference"] == "ds: expected '-1', found 'x'"


@pytest.mark.soak
def test_a_key_with_a_blank_or_a_fixed_partition_is_found_where_it_is_stored(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened, tmp_path: Path
) -> None:
    columns = {"id": "BIGINT", "area": "STRING", "region": "STRING", "ds": "STRING"}
    declared = {
        "key": ["id", "area", "region"],
        "partitioned_by": ["area", "region", "ds"],
        "sink_partition": "area=eu",
    }
    destination = opened(columns, **declared, **MOVES)
    write(spark, destination, 1, [("U", (1, "uk", " ", "old")), ("U", (2, "uk", "r", "old"))])
    rows: list[Change] = [("U", (1, "uk", " ", "new")), ("U", (2, "uk", "r", "old"))]
    write(spark, destination, 2, rows[:1])
    stays = [(1, "eu", "__DEFAULT_PARTITION__", "new"), (2, "eu", "r", "old")]
    assert stored(maxcompute, destination.table) == stays
    keys = spark.createDataFrame([(1, "uk", " ")], "id BIGINT, area STRING, region STRING")
    assert destination.read(spark, keys=keys).collect() == stays[:1]
    changes = frame(spark, destination.table, rows)
    assert checked(spark, destination, changes, RefusedStore(str(tmp_path / "refused")), upto=2).passed


def test_63_an_assigner_computes_the_partition(spark: SparkSession, maxcompute: ServerHandle, opened: Opened) -> None:
    options = {"sink_partition_assigner_class": f"{__name__}:by_day_of_id"}
    destination = opened({"id": "BIGINT", "v": "STRING"}, key=(), partitioned_by=["ds"], **options)
    write(spark, destination, 1, [("U", (1, "a")), ("U", (2, "b"))])
    assert stored(maxcompute, destination.table) == [(1, "a", "d1"), (2, "b", "d2")]


def test_62_83_both_columns_dynamic_and_grouped(spark: SparkSession, maxcompute: ServerHandle, opened: Opened) -> None:
    columns = {"id": "BIGINT", "author": "STRING", "date": "STRING"}
    options = {"sink_group-partition_enable": "true", "sink_dynamic-partition_limit": "2"}
    destination = opened(columns, key=(), partitioned_by=["author", "date"], **options)
    rows = [(n, f"a{n % 2}", f"2024010{n % 2}") for n in range(10)]
    assert write(spark, destination, 1, [("U", row) for row in rows]).metrics["partitions"] == 2
    assert stored(maxcompute, destination.table) == rows


def test_68_static_columns_come_first_and_dynamic_ones_as_declared() -> None:
    assert plan_partitions((("p3", "1"),), ["p3", "p2", "p1"]) == ((("p3", "1"),), ("p2", "p1"))


@pytest.mark.parametrize(
    ("pattern", "at", "zone", "text"),
    [
        ("yyyy-MM-dd--HH", dt.datetime(2016, 6, 22, 19, 5, tzinfo=dt.UTC), "UTC", "2016-06-22--19"),
        ("yyyy-MM-dd--HH", dt.datetime(2017, 11, 10, 16, 0, tzinfo=dt.UTC), "Asia/Shanghai", "2017-11-11--00"),
        ("yyyy-MM-dd", dt.datetime(2016, 6, 22, 1, 2, 3, tzinfo=dt.UTC), "UTC", "2016-06-22"),
        ("'day' yyMMdd HH.mm.ss ''", dt.datetime(2016, 6, 2, 1, 2, 3, tzinfo=dt.UTC), "UTC", None),
        ("'day' yyMMdd HH.mm.ss", dt.datetime(2016, 6, 2, 1, 2, 3, tzinfo=dt.UTC), "UTC", "day 160602 01.02.03"),
    ],
)
def test_70_the_time_of_a_batch_as_partition_text(pattern: str, at: dt.datetime, zone: str, text: str | None) -> None:
    if text is None:
        with pytest.raises(ValueError, match="contains a control character or one of"):
            format_time(pattern, at, zone)
    else:
        assert format_time(pattern, at, zone) == text


def test_70_classes_of_the_connector_have_their_equal(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened, make_table: Callable[..., MaxComputeTable]
) -> None:
    by_columns = make_table(COLUMNS, key=(), partitioned_by=["ds"], sink_partition_assigner_class=BY_COLUMNS)
    assert not by_columns.partitions.computed
    options = {"sink_partition_assigner_class": BY_TIME, "sink_partition_assigner_format": "'y'yyyy"}
    before = dt.datetime.now(dt.UTC)
    destination = opened({"id": "BIGINT"}, key=(), partitioned_by=["p1", "dt"], sink_partition="p1=3", **options)
    write(spark, destination, 1, [("U", (1,)), ("U", (2,))])
    years = {f"y{before.year}", f"y{dt.datetime.now(dt.UTC).year}"}
    assert stored(maxcompute, destination.table) in [[(1, "3", year), (2, "3", year)] for year in years]


def test_values_that_no_partition_can_have_are_refused(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = opened(COLUMNS, key=(), partitioned_by=["ds"])
    report = write(spark, destination, 1, [("U", (1, "a", "x/y")), ("U", (2, "b", "ok"))])
    assert report.refused_count == 1
    assert "partition column 'ds'" in report.refused[0].reason
    assert stored(maxcompute, destination.table) == [(2, "b", "ok")]


@pytest.mark.parametrize(
    ("value", "fits"),
    [("2024-01-01", True), ("a b:c.d", True), ("", False), (" ", False), ("a=b", False), ("a,b", False),
     ("a/b", False), ("it's", False), ("tab\t", False), ("x" * 255, True), ("x" * 256, False), ("ü" * 128, False)],
)  # fmt: skip
def test_partition_values(value: str, fits: bool) -> None:
    assert (refuse_value(value) is None) is fits


def test_an_assigner_that_is_not_there_is_named(spark: SparkSession, opened: Opened) -> None:
    options = {"sink_partition_assigner_class": "no_such_module:f"}
    destination = opened({"id": "BIGINT"}, key=(), partitioned_by=["ds"], **options)
    with pytest.raises(DestinationError, match="no_such_module"):
        write(spark, destination, 1, [("U", (1,))])
