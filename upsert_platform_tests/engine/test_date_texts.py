"""Moments as text in Arrow: the text that Spark's DATE_FORMAT has, of every year."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from upsert_platform.core.types import parse_type
from upsert_platform.engine.steps import evaluate
from upsert_platform.sql.native import native_form

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATTERNS = ["yyyy-MM-dd", "HH:mm", "yyyyMMddHHmmss", "dd/MM/yyyy HH:mm:ss", "ss", "MM.yyyy", "mm ss", "yyyy"]
PATTERNS += [f"yyyy-MM-dd HH:mm:ss.{'S' * digits}" for digits in range(1, 7)] + ["ss.SS"]
OTHER = [
    "y", "yy", "YYYY", "yyyyyyyy", "M", "MMM", "EEE", "hh:mm", "HH:mm:ss.SSSSSSS", "HH:mm:ss SSS", "SSS",
    "yyyy-MM-dd'T'HH", "D", "",
]  # fmt: skip
TEXTS = [
    "1970-01-01T00:00:00", "2026-02-28T23:59:59.999999", "1969-12-31T23:59:59.999999", "2000-02-29T12:00:00.5",
    "0001-01-01T00:00:00", "9999-12-31T23:59:59.999999", "10000-01-01T00:00:00", "0000-12-31T23:59:59.999999",
    "-0001-03-01T01:02:03", "-9999-01-01T00:00:00", "294000-12-31T23:59:59", "1582-10-10T00:00:00",
    "0099-07-06T00:00:59", "-10000-12-31T23:59:59", "-290000-06-01T00:00:00",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_text_is_that_of_spark(spark: SparkSession, pattern: str) -> None:
    micros = [int(np.datetime64(text, "us").astype(np.int64)) for text in TEXTS]
    parts = [divmod(number, 86_400_000_000) for number in micros]
    values = ", ".join(f"({at}, {days}, {rest}L)" for at, (days, rest) in enumerate(parts))
    moment = "TIMESTAMP_NTZ '1970-01-01 00:00:00' + days * INTERVAL '1' DAY + rest * INTERVAL '0.000001' SECOND"
    select = f"SELECT DATE_FORMAT({moment}, '{pattern}') FROM VALUES {values} AS t(i, days, rest) ORDER BY i"
    found = spark.sql(select).collect()
    native = native_form(f"DATE_FORMAT(`at`, '{pattern}')", {"at": parse_type("TIMESTAMP(3)")})
    assert native is not None
    table = pa.table({"at": pa.chunked_array([pa.array([*micros, None]).cast(pa.timestamp("us"))])})
    assert evaluate(native, table).to_pylist() == [*(row[0] for row in found), None]


@pytest.mark.parametrize("pattern", OTHER)
def test_other_patterns_are_sparks(pattern: str) -> None:
    assert native_form(f"DATE_FORMAT(`at`, '{pattern}')", {"at": parse_type("TIMESTAMP(3)")}) is None


@pytest.mark.parametrize("kind", ["STRING", "TIME(3)"])
def test_what_is_no_moment_is_sparks(kind: str) -> None:
    assert native_form("DATE_FORMAT(`at`, 'yyyy')", {"at": parse_type(kind)}) is None


def test_a_pattern_is_none_that_stands_beside_it() -> None:
    one, other = "DATE_FORMAT(`at`, 'y-MM')", "DATE_FORMAT(`at`, 'yyyy-MM')"
    kinds = {"at": parse_type("TIMESTAMP(3)"), "ok": parse_type("BOOLEAN")}
    assert native_form(f"CASE WHEN `ok` THEN {one} ELSE {other} END", kinds) is None
    assert native_form(f"CASE WHEN `ok` THEN {other} ELSE {other} END", kinds) is not None
    assert native_form("DATE_FORMAT(`at`, '%Y')", kinds) is None
