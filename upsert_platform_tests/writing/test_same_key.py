"""One rule for keys in every join and sum: null is null, NaN is NaN, and zero has one value."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from upsert_platform.changelog.row_hashes import hash_cells
from upsert_platform.core.plain_values import comparable_values, shown_values
from upsert_platform.writing.same_key import join_by_key, without_null_keys


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", {(None, 1, "l", "r"), (1, None, "l", "r")}),
        ("left", {(None, 1, "l", "r"), (1, None, "l", "r"), (2, 2, "l", None)}),
        ("full_outer", {(None, 1, "l", "r"), (1, None, "l", "r"), (2, 2, "l", None), (3, None, None, "r")}),
        ("left_semi", {(None, 1, "l"), (1, None, "l")}),
        ("left_anti", {(2, 2, "l")}),
    ],
)
def test_rows_of_a_key_with_a_null_meet(spark: SparkSession, how: str, expected: set[tuple[object, ...]]) -> None:
    left = spark.createDataFrame([(None, 1, "l"), (1, None, "l"), (2, 2, "l")], "`a``b` INT, k1 INT, one STRING")
    right = spark.createDataFrame([(None, 1, "r"), (1, None, "r"), (3, None, "r")], "`a``b` INT, k1 INT, other STRING")
    found = join_by_key(left, right, ["a`b", "k1"], how)
    assert {tuple(row) for row in found.collect()} == expected
    assert found.columns == (["a`b", "k1", "one"] if how.startswith("left_") else ["a`b", "k1", "one", "other"])
    assert [tuple(row) for row in without_null_keys(left.select("`a``b`", "k1")).collect()] == [(2, 2)]


def test_numbers_that_are_equal_in_sql_are_the_same_in_joins_and_in_sums(spark: SparkSession) -> None:
    numbers = [(-0.0, 0.0), (math.nan, math.nan), (1.5, 1.5)]
    left = spark.createDataFrame([(one, place) for place, (one, _) in enumerate(numbers)], "k DOUBLE, one INT")
    right = spark.createDataFrame([(other, place) for place, (_, other) in enumerate(numbers)], "k DOUBLE, other INT")
    assert {row["one"] == row["other"] for row in join_by_key(left, right, ["k"], "full_outer").collect()} == {True}
    one, other = (pa.array([pair[side] for pair in numbers], pa.float64()) for side in (0, 1))
    assert hash_cells(one).tolist() == hash_cells(other).tolist()


def test_times_beyond_those_of_python_are_compared_and_shown() -> None:
    moments = pa.array([-62_135_596_800_000_000, 253_402_300_800_000_000], pa.timestamp("us", "UTC"))
    rows = pa.array(
        [{"at": moments[1], "all": [moments[0]]}], pa.struct([("at", moments.type), ("all", pa.list_(moments.type))])
    )
    with pytest.raises((OverflowError, ValueError)):
        rows.to_pylist()
    assert comparable_values(moments) == [-62_135_596_800_000_000, 253_402_300_800_000_000]
    assert comparable_values(rows) == [{"at": 253_402_300_800_000_000, "all": [-62_135_596_800_000_000]}]
    assert shown_values(pa.chunked_array([moments[:1]])) == ["0001-01-01 00:00:00.000000Z"]
