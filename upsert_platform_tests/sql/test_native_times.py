"""Dates and times that Arrow computes: what Spark computes, before 1970 too; and what has no form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from upsert_platform.sql.native import native_form
from upsert_platform_tests.sql.native_rows import TYPES, assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
COMPARED = [
    ("`ts`", "`ts3`"), ("`ltz`", "`ltz3`"), ("`ts`", "`ltz`"), ("`ltz3`", "TIMESTAMP_NTZ'2024-02-29 13:14:15.12'"),
    ("`ts`", "TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'"), ("TIMESTAMP_NTZ'0001-01-01 00:00:00'", "`ts3`"),
    ("`day`", "`day2`"), ("`day`", "DATE'2000-02-29'"), ("DATE'0001-01-01'", "`day`"), ("CAST(`ts` AS DATE)", "`day`"),
]  # fmt: skip
MICROS = "UNIX_MICROS(CAST(`ts` AS TIMESTAMP))"
MILLIS = "UNIX_MILLIS(CAST(`ts` AS TIMESTAMP))"
DAY = f"DATE_FROM_UNIX_DATE(CAST({MILLIS} DIV 86400000 AS INT))"
COMPUTED = [
    MICROS, MILLIS, "UNIX_MILLIS(`ltz`)", "UNIX_MICROS(`ltz3`)", "CAST(`ts` AS TIMESTAMP)",
    "CAST(`ltz` AS TIMESTAMP_NTZ)",
    "CAST(`ts` AS TIMESTAMP_NTZ)", f"CAST(TIMESTAMP_MICROS({MICROS} - PMOD({MICROS}, 1000)) AS TIMESTAMP_NTZ)",
    f"TIMESTAMP_MICROS({MICROS} - PMOD({MICROS}, 1000000))", "TIMESTAMP_MICROS(`b` DIV 1000)",
    f"({MILLIS} % 86400000 DIV 3600000) >= 8", *(f"({MILLIS} % {span} DIV {size})" for span, size in
    ((86_400_000, 3_600_000), (3_600_000, 60_000), (60_000, 1_000))), f"({MILLIS} DIV 1000)",
    f"CAST(TIMESTAMP_MILLIS({MILLIS} - PMOD({MILLIS}, 3600000)) AS TIMESTAMP_NTZ)",
    f"CAST(TIMESTAMP_MILLIS({MILLIS} - PMOD({MILLIS}, 86400000)) AS TIMESTAMP)",
    f"TIMESTAMP_MILLIS(({MICROS} + 999) DIV 1000 + 59999 - PMOD(({MICROS} + 999) DIV 1000 + 59999, 60000))",
    DAY, "CAST(`ltz` AS DATE)", "CAST(`ts` AS DATE)", "CAST(`day` AS DATE)", "CAST(`day` AS TIMESTAMP_NTZ)",
    "CAST(`day` AS TIMESTAMP)", "DATE_FROM_UNIX_DATE(`i`) < `day`",
    *(f"CAST({part}({day}) AS BIGINT)" for day in (DAY, "`day`") for part in
      ("YEAR", "QUARTER", "MONTH", "DAYOFMONTH", "DAYOFYEAR", "DAYOFWEEK")), "(WEEKDAY(`day`) + 1)",
      "(YEAR(`day`) + 99) DIV 100",
    "(CASE WHEN CAST(`c` AS BIGINT) BETWEEN -62167219200000L AND 253402300799999L"
    " THEN TIMESTAMP_MILLIS(CAST(`c` AS BIGINT) * 1) END)",
    "(CASE WHEN CAST(`i` AS BIGINT) BETWEEN -62167219200L AND 253402300799L"
    " THEN TIMESTAMP_MILLIS(CAST(`i` AS BIGINT) * 1000) END)",
    "TIMESTAMP_NTZ'2024-02-29 00:00:00.5'", "DATE'1582-10-10'", "CAST('2024-02-29 00:00:00' AS TIMESTAMP)",
    f"CAST({MILLIS} DIV 86400000 AS INT)",
    "CAST((UNIX_MILLIS(CAST(`ts3` AS TIMESTAMP)) - UNIX_MILLIS(`ltz3`)) DIV 60000 AS INT)",
    "`ts` + INTERVAL '-1 02:03:04.005' DAY TO SECOND", "`ltz` + INTERVAL '400 00:00:00.000' DAY TO SECOND",
    "CAST(`day` AS TIMESTAMP_NTZ) + INTERVAL '0 01:00:00.500' DAY TO SECOND", "TIMESTAMPADD(WEEK, 3, `ltz3`)",
    *(f"CAST(TIMESTAMPADD({unit}, ({count}), `ts`) AS TIMESTAMP_NTZ)" for unit in ("SECOND", "MINUTE", "HOUR", "DAY")
      for count in (3, -100)),
    "COALESCE(`ts`, `ts3`)", "COALESCE(`day`, DATE'1970-01-01')", "CASE WHEN `ok` THEN `ltz` ELSE NULL END",
    "`ts` BETWEEN TIMESTAMP_NTZ'1969-01-01 00:00:00' AND TIMESTAMP_NTZ'2024-01-01 00:00:00'",
    "(`day` = DATE'1970-01-01') OR (`day` = DATE'1970-01-02') OR (`day` = DATE'2000-02-29')",
    "DATE_FORMAT(`ltz`, 'yyyy-MM-dd HH:mm')", "DATE_FORMAT(`ts`, 'yyyyMM')", "CAST(NULL AS DATE)",
    "CAST(NULL AS TIMESTAMP_NTZ)",
]  # fmt: skip
UNSURE = [
    "`ts` = `day`", "`ts` > '2024-01-01'", "`day` = '2024-01-01'", "`ts` = `b`", "`ts` > DATE'2024-01-01'",
    "`ts` > TIMESTAMP_NTZ'2024-01-01'", "`ts` > TIMESTAMP_NTZ'2024-1-1 00:00:00'", "`day` > DATE'2024-1-1'",
    "`ts` > TIMESTAMP_NTZ'2024-01-01 00:00:00.1234567'", "`ts` > TIMESTAMP_NTZ'2024-02-30 00:00:00'",
    "DATE'2023-02-29'",
    "`ts` > TIMESTAMP_NTZ'2024-01-01T00:00:00'", "`ltz` > TIMESTAMP'2024-01-01 00:00:00+01:00'", "CAST(`x` AS DATE)",
    "CAST(`x` AS TIMESTAMP)", "CAST(`b` AS TIMESTAMP)", "UNIX_MILLIS(`ts`)", "UNIX_MICROS(`day`)",
    "TIMESTAMP_MICROS(`i`)",
    "TIMESTAMP_MILLIS(`b`)", "TIMESTAMP_MILLIS(`b` * 1)", f"TIMESTAMP_MILLIS({MILLIS} + `b`)",
    f"TIMESTAMP_MILLIS({MILLIS} * 1)",
    "CASE WHEN `b` BETWEEN 0 AND 5 THEN TIMESTAMP_MILLIS(`c` * 1) END", "TIMESTAMP_MICROS(`f`)",
    "CASE WHEN `b` BETWEEN 0 AND 9223372036854775807 THEN TIMESTAMP_MILLIS(`b` * 1) END",
    "CASE WHEN `b` BETWEEN 0 AND 5 THEN TIMESTAMP_MILLIS(`b` * 1) ELSE TIMESTAMP_MILLIS(`b` * 1) END",
    "CASE WHEN `b` BETWEEN 0 AND 5 THEN TIMESTAMP_MILLIS(`b` * `c`) END", "DATE_FROM_UNIX_DATE(`b`)", "YEAR(`ts`)",
    "YEAR(`x`)",
    "WEEKOFYEAR(`day`)", "WEEKDAY(`ts`)", "EXTRACT(YEAROFWEEK FROM `day`)", "DATE_FORMAT(`day`, 'y')",
    "DATE_FORMAT(`ts`, 'yyyy-MM-dd SSS')",
    "`ts` + INTERVAL '1' DAY", "`ts` + INTERVAL '1' MONTH",
    "`ts` - INTERVAL '1 00:00:00.000' DAY TO SECOND", "`day` + INTERVAL '1 00:00:00.000' DAY TO SECOND",
    "`ts` + INTERVAL '1 00:00:00' DAY TO SECOND", "`ts` + INTERVAL '99999999 00:00:00.000' DAY TO SECOND",
    "`ts` + INTERVAL '1-2' YEAR TO MONTH", "TIMESTAMPADD(DAY, `i`, `ts`)",
    "TIMESTAMPADD(DAY, 1, `day`)", "TIMESTAMPADD(WEEK, 2147483647, `ts`)", "TIMESTAMPADD(SECOND, 2147483648, `ts`)",
    "CAST(`tod` AS TIMESTAMP)", "COALESCE(`ts`, `ltz`)", "CAST(`ts` AS STRING)",
    "CAST(`ts` AS BIGINT)",
    "`tod` DIV 1000", "`ts` - `ts3`", "TIMESTAMP_MICROS(`b`, `b`)",
    "`ts` = NULL",
]  # fmt: skip


def test_comparisons_hold_for_the_same_rows(spark: SparkSession) -> None:
    assert_same(spark, [f"{left} {operator} {right}" for left, right in COMPARED for operator in OPERATORS])


def test_times_are_those_that_spark_computes(spark: SparkSession) -> None:
    assert_same(spark, COMPUTED)


@pytest.mark.parametrize("text", UNSURE)
def test_what_is_not_sure_to_be_the_same_has_no_form(text: str) -> None:
    assert native_form(text, TYPES) is None
