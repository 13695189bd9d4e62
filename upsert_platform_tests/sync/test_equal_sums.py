"""Sums of hashes say that rows are equal only where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from upsert_platform.sync.equal_sums import (
    BUCKET,
    WANTED,
    EqualRows,
    bucket_of,
    equal_buckets,
    hashes_tell,
    with_hashes,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.whole_runs

Row = tuple[Any, ...]
_TEXTS = "k STRING, a STRING, b STRING"
_SAME = [("1", "x", "y"), ("2", None, ""), ("3", "", None)]
DIFFERENT: dict[str, tuple[str, list[Row], list[Row]]] = {
    "a null moves to the next column": (_TEXTS, [("1", None, "x")], [("1", "x", None)]),
    "an empty text for a null": (_TEXTS, [("1", "", "x")], [("1", None, "x")]),
    "a text moves to the next column": (_TEXTS, [("1", "xy", "")], [("1", "x", "y")]),
    "values of keys are exchanged": (_TEXTS, [("1", "x", "z"), ("2", "y", "z")], [("1", "y", "z"), ("2", "x", "z")]),
    "one row too few": (_TEXTS, _SAME, _SAME[:2]),
    "one row too many": (_TEXTS, _SAME, [*_SAME, ("4", "x", "y")]),
    "one row for another": (_TEXTS, _SAME, [*_SAME[:2], ("4", "", None)]),
    "one row twice, another not at all": (_TEXTS, _SAME, [_SAME[0], _SAME[0], _SAME[1]]),
    "two rows twice for two that are missing": (
        _TEXTS, [("1", "a", "b"), ("2", "a", "b"), ("3", "a", "b"), ("4", "a", "b")],
        [("1", "a", "b"), ("1", "a", "b"), ("2", "a", "b"), ("2", "a", "b")],
    ),
    "nothing for something": (_TEXTS, _SAME, []),
    "the sign of a number": ("k INT, a BIGINT, b DOUBLE", [(1, 2, 0.5)], [(1, -2, 0.5)]),
    "a last digit": ("k INT, a DECIMAL(38, 18), b DOUBLE", [(1, None, 0.1)], [(1, None, 0.1 + 2**-55)]),
}  # fmt: skip


def _compared(expected: DataFrame, found: DataFrame) -> EqualRows | None:
    """The equal rows where no bucket of keys differs."""
    sides = [frame.withColumn(BUCKET, bucket_of([F.col("k")])) for frame in (expected, found)]
    buckets = equal_buckets(*(with_hashes(side, found.columns) for side in sides))
    return None if buckets.differing else buckets.equal


def _sides(spark: SparkSession, kinds: str, expected: list[Row], found: list[Row]) -> EqualRows | None:
    one, other = spark.createDataFrame(expected, kinds), spark.createDataFrame(found, kinds)
    return _compared(one.withColumn(WANTED, F.lit(True)), other)


@pytest.mark.parametrize("case", DIFFERENT)
def test_rows_that_differ_are_not_called_equal(spark: SparkSession, case: str) -> None:
    kinds, expected, found = DIFFERENT[case]
    assert _sides(spark, kinds, expected, found) is None
    assert _sides(spark, kinds, found, expected) is None


def test_equal_rows_are_counted_in_any_order(spark: SparkSession) -> None:
    assert _sides(spark, _TEXTS, _SAME, _SAME[::-1]) == EqualRows(3, 3)
    assert _sides(spark, _TEXTS, [], []) == EqualRows(0, 0)


def test_rows_that_are_not_wanted_have_to_be_absent(spark: SparkSession) -> None:
    given = spark.createDataFrame([("1", "x", True), ("2", "y", False)], f"k STRING, a STRING, {WANTED} BOOLEAN")
    for rows, equal in ([("1", "x")], EqualRows(2, 1)), ([("1", "x"), ("2", "y")], None), ([("2", "y")], None):
        found = spark.createDataFrame(rows, "k STRING, a STRING")
        assert _compared(given, found) == equal


def test_hashes_do_not_judge_where_equal_ones_may_be_of_different_values(spark: SparkSession) -> None:
    # 1.00 and 0.0100 are the same digits, and a null in a list leaves its hash as it was.
    one = spark.sql("SELECT CAST(1 AS DECIMAL(5, 2)) AS a, array('x', NULL) AS b, 1 AS c")
    other = spark.sql("SELECT CAST(0.01 AS DECIMAL(5, 4)) AS a, array(NULL, 'x') AS b, 1 AS c")
    assert [hashes_tell(one, other, [(name, name)]) for name in "abc"] == [False, False, True]
    assert not hashes_tell(one, one, [("b", "b")])


def test_buckets_that_differ_are_those_of_the_keys_that_differ(spark: SparkSession) -> None:
    def side(rows: list[Row]) -> DataFrame:
        given = spark.createDataFrame(rows, "k INT, a STRING, wanted BOOLEAN")
        hashed = with_hashes(given, ["k", "a"]).withColumns({BUCKET: bucket_of([F.col("k")])})
        return hashed.withColumnRenamed("wanted", WANTED)

    same: list[Row] = [(number, f"v{number}", True) for number in range(200)]
    expected = [*same, (900, "deleted", False), (901, "missing", True), (902, "stale", True), (903, None, True)]
    found = [*same, (902, "other", True), (903, "", True), (904, "extra", True)]
    compared = equal_buckets(side(expected), side(found))
    differing = side([(key, "", True) for key in range(901, 905)]).select(BUCKET).distinct().collect()
    assert set(compared.differing) == {row[BUCKET] for row in differing}
    rows = side([row for row in expected if row[0] < 901]).where(~F.col(BUCKET).isin(*compared.differing))
    assert compared.equal == EqualRows(rows.count(), rows.where(WANTED).count())
    assert equal_buckets(side(same), side(same[::-1])) == ((), EqualRows(200, 200))
