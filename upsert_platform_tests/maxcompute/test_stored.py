"""Values that a table holds in another form than rows have: found, moved and deleted where they are stored."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from upsert_platform.changelog import rows
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import Insert
from upsert_platform.core.types import parse_type, spark_type
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.stored import MOST_PREDICATE_BYTES, key_predicate
from upsert_platform.maxcompute.table import MaxComputeTable, read_maxcompute_table
from upsert_platform.maxcompute.types import maxcompute_type
from upsert_platform.sync.binding import Target
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.verify import check_everything
from upsert_platform_tests.campaign import first_of
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.declare import declare
from upsert_platform_tests.maxcompute.frames import stored, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

Opened = Callable[..., MaxComputeDestination]
UPSERT = {"sink.operation": "upsert"}
MOVES = {"sink_partition_move-rows": "true"}
HOUR = 3_600_000_000


KEYS: dict[str, tuple[Any, Any]] = {
    "CHAR(5)": ("ab  ", "c"),
    "DECIMAL(38, 18)": (Decimal("-1e-18"), Decimal("1e-18")),
    "TIME(3)": (3 * HOUR + 4_005_000, 0),
    "TIME(6)": (3 * HOUR + 4_005_006, 23 * HOUR),
    "VARCHAR(20)": ("it's \\ ab ", "\\'"),
    "DATE": (dt.date(1960, 2, 29), dt.date(2024, 1, 1)),
    "BOOLEAN": (True, False),
    "DOUBLE": (0.1, -2.5),
}


@pytest.mark.parametrize("api", first_of(["tunnel", "maxstorage"], every=2))
def test_rows_move_and_go_by_keys_of_every_stored_form(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened, api: str
) -> None:
    key = [f"k{index}" for index in range(len(KEYS))]
    columns = {**dict(zip(key, KEYS, strict=True)), "v": "STRING", "ds": "STRING"}
    destination = opened(columns, key=key, partitioned_by=["ds"], write_api=api, **MOVES)
    first, second = zip(*KEYS.values(), strict=True)
    write(spark, destination, 1, [("U", (*first, "a", "old")), ("U", (*second, "b", "old"))])
    write(spark, destination, 2, [("U", (*first, "c", "new")), ("D", (*second, None, None))])
    assert stored(maxcompute, destination.table, "v, ds") == [("c", "new")]
    schema = ", ".join(f"{name} {spark_type(parse_type(kind))}" for name, kind in zip(key, KEYS, strict=True))
    keys = spark.createDataFrame([first, second], schema)
    assert [row["v"] for row in destination.read(spark, keys=keys).collect()] == ["c"]


def test_blanks_at_the_end_of_a_char_are_one_key_and_one_row(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = opened({"k": "CHAR(3)", "v": "STRING"}, key=["k"], write_api="tunnel")
    for number, key in enumerate(["x", "x ", "x  ", "x     "], start=1):
        write(spark, destination, number, [("U", (key, f"v{number}"))])
    assert stored(maxcompute, destination.table, "v") == [("v4",)]


def test_a_row_that_is_refused_moves_and_deletes_nothing(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    columns = {"id": "BIGINT", "v": "VARCHAR(3)", "ds": "STRING"}
    destination = opened(columns, key=["id"], partitioned_by=["ds"], **MOVES)
    write(spark, destination, 1, [("U", (n, "old", "a")) for n in range(3)])
    report = write(
        spark, destination, 2, [("U", (0, "too long", "b")), ("U", (1, "new", "b/c")), ("U", (2, "new", "b"))]
    )
    assert (report.upserts, report.deletes, report.refused_count) == (1, 1, 2)
    assert stored(maxcompute, destination.table) == [(0, "old", "a"), (1, "old", "a"), (2, "new", "b")]


@pytest.mark.parametrize("api", first_of(["tunnel", "maxstorage"], every=2))
def test_partition_values_with_blanks_around_them_are_refused_and_take_no_row_away(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened, api: str
) -> None:
    columns = {"id": "BIGINT", "v": "STRING", "ds": "STRING"}
    destination = opened(columns, key=["id"], partitioned_by=["ds"], write_api=api)
    write(spark, destination, 1, [("U", (1, "a", "x")), ("U", (2, "a", "in side"))])
    for number in (2, 3):
        report = write(spark, destination, number, [("U", (1, "b", " x ")), ("U", (2, "b", "in side"))])
        assert report.refused_count == 1
        assert "begins or ends with a blank" in report.refused[0].reason
    assert stored(maxcompute, destination.table) == [(1, "a", "x"), (2, "b", "in side")]


def test_a_number_partition_without_a_fitting_default_refuses_rows_that_have_none(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = opened({"id": "BIGINT", "hour": "INT"}, key=["id"], partitioned_by=["hour"])
    report = write(spark, destination, 1, [("U", (1, None)), ("U", (2, 7))])
    assert "partition column 'hour' has no value" in report.refused[0].reason
    assert destination.read(spark).collect() == [(2, 7)]
    write(spark, destination, 2, [("D", (2, None)), ("D", (1, None))])
    assert stored(maxcompute, destination.table) == []


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("INT", {"sink.partition.default-value": "none"}, "'none' is not a INT, the type of partition column 'ds'"),
        ("TINYINT", {"sink.partition.default-value": "128"}, "is not a TINYINT"),
        ("BIGINT", {"sink.partition.default-value": "07"}, "is not a BIGINT"),
        ("STRING", {"sink.partition.default-value": "a/b"}, "takes a value that a partition can have"),
        ("INT", {"sink.partition": "ds=x"}, "fixes 'ds' to 'x', which is not a INT"),
        ("DATE", {"sink.partition": "ds=20240229"}, "fixes 'ds' to '20240229', which is not a DATE"),
        ("STRING", {"sink.partition": "ds=' x'"}, "begins or ends with a blank"),
        ("INT", {"sink.partition.default-value": "-1"}, None),
        ("DATE", {"sink.partition": "ds=2024-02-29"}, None),
    ],
)
def test_partition_values_are_judged_by_the_type_of_their_column(
    kind: str, options: dict[str, str], message: str | None
) -> None:
    declared = declare({"id": "BIGINT", "ds": kind}, key=["id"], partitioned_by=["ds"], options={**UPSERT, **options})
    table, problems = read_maxcompute_table(declared)
    errors = [problem.message for problem in problems if problem.severity == "error"]
    assert (table is None, len(errors)) == ((True, 1) if message else (False, 0)), errors
    assert not message or message in errors[0]


@pytest.mark.parametrize(
    ("declared", "actual", "fits"),
    [("STRING", "BIGINT", False), ("BIGINT", "INT", False), ("DATE", "BIGINT", False), ("INT", "BIGINT", True),
     ("BIGINT", "STRING", True), ("DATE", "STRING", True)],
)  # fmt: skip
def test_partition_columns_of_another_type_are_named(
    opened: Opened, make_table: Callable[..., MaxComputeTable], declared: str, actual: str, fits: bool
) -> None:
    from upsert_platform.core.errors import DestinationError

    table = make_table({"id": "BIGINT", "ds": declared}, key=(), partitioned_by=["ds"])
    destination = MaxComputeDestination(table)
    destination._client.run_sql(f"CREATE TABLE {table.target.sql} (id BIGINT) PARTITIONED BY (ds {actual})")
    if fits:
        destination.prepare()
    else:
        with pytest.raises(DestinationError, match=f"partition column 'ds' is {actual} in the table"):
            destination.prepare()
    destination.close()


def test_keys_that_may_be_stored_as_one_are_known(opened: Opened) -> None:
    columns = {"a": "BIGINT", "c": "CHAR(3)", "s": "STRING", "ds": "STRING", "day": "DATE", "hour": "INT"}
    destination = opened(columns, key=list(columns), partitioned_by=["ds", "day", "hour"])
    assert destination.folded_key() == ("c", "ds")
    fixed = opened(columns, key=["a", "hour", "ds"], partitioned_by=["hour", "ds"], sink_partition="hour=1,ds=x")
    assert fixed.folded_key() == ("hour", "ds")
    assert opened({"a": "BIGINT", "ds": "STRING"}, key=["a"], partitioned_by=["ds"]).folded_key() == ()


@pytest.mark.parametrize("keyed", [True, False], ids=["upsert-kafka", "kafka"])
def test_of_keys_that_are_stored_as_one_the_last_row_counts_and_is_what_checks_expect(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened, tmp_path: Path, keyed: bool
) -> None:
    columns = {"id": "BIGINT", "ds": "STRING", "v": "STRING"}
    destination = opened(columns, key=["id", "ds"], partitioned_by=["ds"])
    values = [(1, "", "a"), (1, None, "b"), (1, " ", "c"), (2, None, "d"), (2, "__DEFAULT_PARTITION__", None)]
    source = declare(columns, key=["id", "ds"] if keyed else [], name="users")
    store = ChangelogStore(str(tmp_path / "users"), source)
    written = [
        {
            rows.BATCH: 1,
            rows.KIND: rows.KIND_UPDATE_AFTER if value is not None else rows.KIND_DELETE,
            **{rows.TOPIC: "users", rows.PARTITION: 0, rows.OFFSET: offset, rows.ROW: 0},
            rows.TIMESTAMP: dt.datetime(2026, 1, 1, tzinfo=dt.UTC) - dt.timedelta(seconds=offset),
            **{"id": key, "ds": ds, "v": value},
        }
        for offset, (key, ds, value) in enumerate(values)
    ]
    head = store.create()
    batch = pa.Table.from_pylist(written, schema=rows.arrow_schema(source))
    frame = spark.createDataFrame(batch, schema=rows.spark_schema(source))
    assert store.append(store.write(frame, batch=1), head=head, positions=head.positions, run="run") is not None
    insert = Insert("users", "t", ("`id`", "`ds`", "`v`"), None, "", SourceLocation("tables.sql", 1))
    target_table = declare(columns, key=["id", "ds"], partitioned_by=["ds"], options=UPSERT)
    target = Target(target_table, insert, SimpleNamespace(table=source), None, destination.table)  # type: ignore[arg-type]
    hop = DestinationHop(target, store, destination, refused=RefusedStore(str(tmp_path / "refused")), run="run")
    done = hop.execute(OnDemand.dividing(spark), hop.plan())
    assert done is not None
    assert (done.report.upserts, done.report.deletes) == (1, 1)
    assert stored(maxcompute, destination.table, "id, v, ds") == [(1, "c", "__DEFAULT_PARTITION__")]
    found = check_everything(spark, hop, upto=1)
    assert (found.compared, found.passed) == (2, True)


def places(*kinds: str) -> list[tuple[str, Any, Any]]:
    return [(f"c{index}", parse_type(kind), maxcompute_type(parse_type(kind))) for index, kind in enumerate(kinds)]


def test_a_predicate_names_every_column_once_and_never_leaves_a_key_out() -> None:
    keys = [(1, "a", "x"), (2, "a", "y"), (1, None, "x")]
    assert key_predicate(keys, places("INT", "STRING", "CHAR(2)")) == (
        "`c0` IN (1, 2) AND `c1` IN ('a') AND `c2` IN ('x', 'x ', 'y', 'y ')"
    )
    moments = [(1, dt.datetime(2024, 1, 1, tzinfo=dt.UTC)), (2, None)]
    assert key_predicate(moments, places("INT", "TIMESTAMP_LTZ(3)")) == "`c0` IN (1, 2)"
    assert key_predicate([(1.5,)], places("DOUBLE")) == ""
    assert key_predicate([], places("INT")) == ""
    assert key_predicate([("x" * MOST_PREDICATE_BYTES,)], places("STRING")) == ""
    many = [(number, f"{number}") for number in range(5_000)]
    assert len(key_predicate(many, places("INT", "STRING"))) < 20 * 5_000
