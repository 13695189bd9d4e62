"""Quotients, rounding, GREATEST and LEAST, and the calendar, as users write them: what Spark computes for what becomes
of them; and what has no form.
"""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from upsert_platform.core.types import arrow_type, parse_type
from upsert_platform.engine.steps import evaluate
from upsert_platform.sql.evaluation import flink_sql
from upsert_platform.sql.native import native_form
from upsert_platform_tests.sql.native_rows import TYPES, assert_same
from upsert_platform_tests.sql.test_native_written import rendered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUOTIENTS = [
    "f / g", "f / 2", "2 / f", "f / 0", "1 / 0e0", "r / r", "i / f", "d10 / f", "f / r", "f / g / 3", "SQRT(f)",
    "SQRT(i)", "SIGN(f)",
    "d10 / 3", "d10 / -3", "d10 / 0.3", "d10 / 7.5", "d10 / 0", "d10 / d5", "d5 / d10", "d38 / d24",
    "d38 / d38", "d24 / d24",
    "d10 / b", "b / d10", "d18 / d18", "d5 / d5", "small / small", "small / d5", "d0 / d5", "d38 / d5", "d24 / i",
    "d24 / b", "d5 / t", "s / d5", "1 / d10", "100.0 / d10", "d10 / 3 + 1", "d10 * 2 / 7", "d24 / d10 / d5",
    "d10 % 3", "d10 % -3", "d10 % d5", "d24 % d5", "d18 % d24", "MOD(i, d5)", "b % d10", "d10 % 0", "d5 % 0.3",
    "MOD(d38, 7)", "d0 % d0", "small % 0.3",
    "f / (d10 / d5)", "CASE WHEN f = 0 THEN g ELSE f / g END",
]  # fmt: skip
ROUNDED = [
    *(f"ROUND({name}, {digits})" for name in ("d10", "d24", "d38", "d0", "small") for digits in (0, 1, 3, 30)),
    "ROUND(d10)", "ROUND(d10, -2)", "ROUND(d10, -8)", "ROUND(d10, -9)", "ROUND(d10, -12)", "ROUND(d24, -5)",
    "ROUND(d24, -20)", "ROUND(d38, -4)", "ROUND(d38, -30)", "ROUND(small, -1)", "ROUND(d18, -13)",
    *(f"ROUND({name}, {digits})" for name in ("t", "s", "i", "b") for digits in (0, 2, -1, -2, -5, -10)),
    "ROUND(b, -18)", "ROUND(b, -19)", "ROUND(b, -20)", "ROUND(b, -25)", "ROUND(d10 / 7, 2)", "ROUND(d10 * 0.19, 2)",
    *(f"{name}({number})" for name in ("CEIL", "FLOOR") for number in ("d10", "d24", "d38", "small", "d5", "f", "r")),
    "FLOOR(CEIL(d10))", "CEIL(d0)",
    "TRUNCATE(d10, 1)", "TRUNCATE(d10)", "TRUNCATE(d10, -2)", "TRUNCATE(d10, -9)", "TRUNCATE(d24, 2)",
    "TRUNCATE(d18, 2)", "TRUNCATE(i, -1)", "TRUNCATE(b, -3)", "TRUNCATE(t, -1)", "TRUNCATE(i, 3)", "TRUNCATE(d5, 2)",
]  # fmt: skip
EXTREMES = [
    f"{name}({given})" for name in ("GREATEST", "LEAST") for given in (
        "i, j", "i, b", "i, j, t", "x, y", "x, 'b', v", "f, g", "g, f", "f, g, 0", "r, r", "ts, ts3", "ltz, ltz3",
        "`day`, day2", "d10, d10", "d10, CAST(d5 AS DECIMAL(10, 2))", "ok, yes", "x", "b, c, 0", "i, NULL",
    )
]  # fmt: skip
CALENDAR = [
    *(f"TIMESTAMPADD({unit}, {count}, {moment})" for unit in ("MONTH", "QUARTER", "YEAR") for count in (1, -1, 25)
      for moment in ("ts", "ltz3", "`day`")),
    *(f"TIMESTAMPADD({unit}, {count}, `day`)" for unit in ("DAY", "WEEK") for count in (1, -400, "s", "t")),
    *(f"TIMESTAMPADD({unit}, {count}, {moment})" for unit in ("HOUR", "MINUTE", "SECOND") for count in ("i", "t")
      for moment in ("ts", "ltz", "`day`")),
    "TIMESTAMPADD(DAY, i, `day`)", "ts + INTERVAL '1' MONTH", "ts - INTERVAL '13' MONTH", "`day` + INTERVAL '1' DAY",
    "`day` - INTERVAL '40' DAY", "`day` - INTERVAL '1-2' YEAR TO MONTH", "ltz + INTERVAL '9' YEAR",
    "ts + i * INTERVAL '1' HOUR", "ts - t * INTERVAL '2' MINUTE",
    *(f"{name}({value} TO {unit})" for name in ("FLOOR", "CEIL") for value in ("ts", "ltz3", "`day`")
      for unit in ("WEEK", "MONTH", "QUARTER", "YEAR", "DAY")),
    "FROM_UNIXTIME(b)", "FROM_UNIXTIME(c)", "FROM_UNIXTIME(i, 'yyyy-MM-dd')", "FROM_UNIXTIME(c, 'HH:mm') || x",
    "DATE_FORMAT(ts, 'yyyy') || 'yyyy'", "FROM_UNIXTIME(i) || DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm:ss')",
]  # fmt: skip
UNSURE = [
    "d38 % small", "d38 % d24", "ROUND(f, 2)", "ROUND(r)", "ROUND(d0, -3)", "POWER(f, 2)", "EXP(f)", "LN(f)",
    "LOG10(f)", "TIMESTAMPADD(MONTH, i, ts)", "TIMESTAMPADD(DAY, i, ts)", "TIMESTAMPADD(MONTH, i, `day`)",
    "TIMESTAMPADD(YEAR, 10001, ts)", "FROM_UNIXTIME(b, 'yyyy-MM-dd SSS')", "TRUNCATE(d38, 0)",
]  # fmt: skip
UNWRITTEN = [
    "`d10` / 3", "`d10` % 3", "3 / `d10`", "`f` / `g`", "`f` % `g`", "`i` / `j`", "GREATEST(`i`, `b`)",
    "LEAST(`d10`, `d5`)", "GREATEST(`x`, 1)", "ROUND(`d10`, `i`)", "ROUND(`x`, 1)", "CEIL(`i`)", "FLOOR(`f`)",
    "ADD_MONTHS(`day`, `i`)", "ADD_MONTHS(`ts`, 1)", "DATE_ADD(`day`, `b`)", "DATE_ADD(`ts`, 1)",
    "TRUNC(`day`, 'WEEK')", "TRUNC(`ts`, 'MONTH')", "SQRT(`i`)", "SIGNUM(`i`)",
    "CASE WHEN `g` = 0 THEN `f` * (CASE WHEN CAST(`f` AS STRING) = '-0.0' THEN -DOUBLE('Infinity')"
    " ELSE DOUBLE('Infinity') END) ELSE `f` / `g` END",
    "CASE WHEN ABS(`b` * 1000) < 9223372036854775807 THEN TIMESTAMP_MILLIS(`b` * 1000) END",
    "CASE WHEN ABS(`b` * 1000) < 5 THEN TIMESTAMP_MILLIS(`c` * 1000) END",
    "CONCAT(DATE_FORMAT(`ts`, 'y'), 'yyyy')", "CONCAT(DATE_FORMAT(`ts`, 'y'), DATE_FORMAT(`ltz`, 'yyyy'))",
]  # fmt: skip
DECIMALS = ["d5", "d10", "d18", "d24", "d38", "d0", "small", "i", "b", "t", "3", "-0.07", "19.0000"]


def spark_of(expressions: list[str]) -> list[str]:
    return [rendered(expression).sql for expression in expressions]


@pytest.mark.parametrize(
    "expressions", [QUOTIENTS, ROUNDED, EXTREMES, CALENDAR], ids=("quotients", "rounded", "extremes", "calendar")
)
def test_functions_give_what_spark_gives(spark: SparkSession, expressions: list[str]) -> None:
    assert_same(spark, spark_of(expressions))


def test_quotients_of_any_types_are_those_of_spark(spark: SparkSession) -> None:
    chance = random.Random(17)
    texts = []
    for _ in range(260):
        one, other, third = chance.choices(DECIMALS, k=3)
        scale = chance.randint(0, 14)
        kind = f"DECIMAL({chance.randint(scale + 1, 38)}, {scale})"
        texts.append(
            chance.choice([
                f"{one} / CAST({other} AS {kind})", f"CAST({one} AS {kind}) / {other}",
                f"CAST({one} AS {kind}) % {other}", f"{one} % CAST({other} AS {kind})",
                f"ROUND(CAST({one} AS {kind}), {chance.randint(-20, 20)})",
                f"TRUNCATE(CAST({one} AS {kind}), {chance.randint(-9, 9)})", f"FLOOR(CAST({one} AS {kind}))",
                f"CEIL(CAST({one} AS {kind}))", f"CAST({one} AS {kind}) * {other} / {third}",
            ])
        )  # fmt: skip
    known = [text for text in dict.fromkeys(spark_of(texts)) if native_form(text, TYPES) is not None]
    assert len(known) > len(texts) // 2
    assert_same(spark, known)


@pytest.mark.parametrize(
    "number", [(2**65 - 1) * 10**15, -18889465931478580854781 * 10**12, 9223372036854775806 * 10**16]
)
def test_numbers_of_more_than_64_bits_are_rounded_exactly(spark: SparkSession, number: int) -> None:
    """Arrow's division of such numbers errs in a few of them."""
    kind = parse_type("DECIMAL(36, 30)")
    texts = [
        "CAST(`n` AS DECIMAL(21, 15))",
        "CAST(`n` AS BIGINT)",
        "ROUND(`n`, 11)",
        "CAST(`n` / 3.0 AS DECIMAL(38, 9))",
    ]
    table = pa.table({"n": pa.array([Decimal(number).scaleb(-30), None], arrow_type(kind))})
    wanted = flink_sql(
        spark, f"SELECT {', '.join(texts)} FROM VALUES (CAST('{number}e-30' AS DECIMAL(36, 30))) AS t (n)"
    )
    found = [evaluate(native, table)[0].as_py() for text in texts if (native := native_form(text, {"n": kind}))]
    assert found == list(wanted.collect()[0])


@pytest.mark.parametrize("expression", UNSURE)
def test_what_is_not_sure_to_be_the_same_has_no_form(expression: str) -> None:
    assert native_form(rendered(expression).sql, TYPES) is None


@pytest.mark.parametrize("text", UNWRITTEN)
def test_what_the_platform_does_not_write_has_no_form(text: str) -> None:
    assert native_form(text, TYPES) is None
