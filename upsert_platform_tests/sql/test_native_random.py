"""Expressions made at random of the pieces that have a native form: Arrow computes what Spark does, over rows of every
kind of value.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from upsert_platform.core.types import parse_type
from upsert_platform.sql.casts import parse_timestamp
from upsert_platform.sql.native import native_form
from upsert_platform_tests.sql.native_rows import TYPES, assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLES = {
    "TINYINT": ["`t`"],
    "SMALLINT": ["`s`"],
    "INT": ["`i`", "`j`", "5", "-3"],
    "BIGINT": ["`b`", "`c`", "3000000000"],
}
DECIMALS = ["`d5`", "`d10`", "`d18`", "`d24`", "`d38`", "`d0`", "`small`", "1.5", "-0.05", "CAST(7 AS DECIMAL(3,1))"]
TEXTS = ["`x`", "`y`", "`v`", "`w`", "`w`", "'a'", "'é😀'", "''"]
_EXPRESSIONS = 240


class Pieces:
    """Expressions by what they give, each of a few more."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def any(self) -> str:
        return getattr(
            self, self.chance.choice(["whole", "decimal", "double", "text", "truth", "truth", "moment", "day"])
        )(3)

    def whole(self, depth: int) -> str:
        leaf = self.chance.choice(WHOLES[self.chance.choice(list(WHOLES))])
        if depth <= 0:
            return leaf
        one, other, literal = (
            self.whole(depth - 1),
            self.whole(depth - 1),
            self.chance.choice(["7", "1000", "86400000"]),
        )
        return self.chance.choice([
            f"({one} + {other})", f"({one} - {other})", f"({one} * {other})", f"({one} DIV {literal})", f"(-({one}))",
            f"({one} % {other})", f"({one} DIV {other})", f"PMOD({one}, {literal})", f"ABS({one})",
            f"CAST({one} AS {self.chance.choice(list(WHOLES))})", f"CHAR_LENGTH({self.text(depth - 1)})",
            f"LOCATE('b', {self.text(depth - 1)})", f"UNIX_MILLIS(CAST({self.moment(depth - 1)} AS TIMESTAMP))",
            f"UNIX_MICROS(CAST({self.moment(depth - 1)} AS TIMESTAMP))", f"YEAR({self.day(depth - 1)})",
            f"DAYOFMONTH({self.day(depth - 1)})", f"CAST({self.truth(depth - 1)} AS INT)",
            f"ROUND({one}, {self.chance.randint(-20, 2)})", f"GREATEST({one}, {other})",
            f"LEAST({one}, {other}, {one})",
            f"CAST({self.text(depth - 1)} AS {self.chance.choice(list(WHOLES))})",
        ])  # fmt: skip

    def decimal(self, depth: int) -> str:
        leaf = self.chance.choice(DECIMALS)
        if depth <= 0:
            return leaf
        one, other = self.decimal(depth - 1), self.decimal(depth - 1)
        scale = self.chance.randint(0, 12)
        kind = f"DECIMAL({self.chance.randint(max(scale, 1), 38)},{scale})"
        return self.chance.choice([
            f"CAST({one} AS {kind})", f"CAST({one} AS {kind})", f"CAST({self.whole(depth - 1)} AS {kind})",
            f"({one} + {other})",
            f"({one} - {other})", f"({one} * {other})", f"(-({one}))", f"ABS({one})",
            f"({one} / {other})", f"({one} % {other})", f"({one} / CAST({self.whole(depth - 1)} AS {kind}))",
            f"ROUND({one}, {self.chance.randint(-9, 20)})", f"CEIL({one})", f"FLOOR({one})", f"GREATEST({one}, {one})",
            f"CAST({self.text(depth - 1)} AS {kind})",
        ])  # fmt: skip

    def double(self, depth: int) -> str:
        if depth <= 0:
            return self.chance.choice(["`f`", "`g`", "CAST(`r` AS DOUBLE)", "CAST(0.1 AS DOUBLE)", "-0.0D", "1e3D"])
        one, other = self.double(depth - 1), self.double(depth - 1)
        endless = f"CASE WHEN CAST({other} AS STRING) = '-0.0' THEN -DOUBLE('Infinity') ELSE DOUBLE('Infinity') END"
        quotient = f"(CASE WHEN {other} = 0 THEN {one} * ({endless}) ELSE {one} / {other} END)"
        return self.chance.choice([
            f"({one} + {other})", f"({one} * {other})", f"({one} - {other})", f"(-({one}))", f"ABS({one})",
            f"CAST({self.whole(depth - 1)} AS DOUBLE)", f"CAST({self.decimal(depth - 1)} AS DOUBLE)",
            f"SQRT({one})", f"SIGNUM({one})", f"LEAST({one}, {other})", f"GREATEST({one}, {other})", quotient,
            f"CAST({self.text(depth - 1)} AS DOUBLE)", f"CAST(CAST({self.text(depth - 1)} AS FLOAT) AS DOUBLE)",
            f"CAST(CAST({one} AS FLOAT) AS DOUBLE)", f"CAST(CAST({self.decimal(depth - 1)} AS FLOAT) AS DOUBLE)",
        ])  # fmt: skip

    def text(self, depth: int) -> str:
        if depth <= 0:
            return self.chance.choice(TEXTS)
        one, other = self.text(depth - 1), self.text(depth - 1)
        start, length = self.chance.randint(-3, 3), self.chance.randint(-1, 4)
        return self.chance.choice([
            f"CONCAT({one}, {other})", f"CONCAT_WS('-', {one}, {other})", f"SUBSTRING({one}, {start}, {length})",
            f"SUBSTRING({one}, {start})", f"TRIM(BOTH FROM {one})", f"TRIM(LEADING 'a ' FROM {one})",
            f"RIGHT({one}, {length})",
            f"REPLACE({one}, 'ab', 'é')", f"CAST({self.whole(depth - 1)} AS STRING)", f"COALESCE({one}, {other})",
            f"CASE WHEN {self.truth(depth - 1)} THEN {one} ELSE {other} END",
            f"CAST({self.truth(depth - 1)} AS STRING)", f"UPPER({one})", f"LOWER({one})", f"REVERSE({one})",
            f"GREATEST({one}, {other})",
            f"CAST({self.truth(depth - 1)} AS STRING)", f"RIGHT(DATE_FORMAT({self.day(depth - 1)}, 'yyyy-MM-dd'), 10)",
            f"DATE_FORMAT({self.moment(depth - 1)}, 'yyyy-MM-dd HH:mm:ss.SSS')",
        ])  # fmt: skip

    def moment(self, depth: int) -> str:
        if depth <= 0:
            return self.chance.choice(
                ["`ts`", "`ts3`", "CAST(`ltz` AS TIMESTAMP_NTZ)", "TIMESTAMP_NTZ'1969-12-31 23:59:59.5'"]
            )
        one, other = self.moment(depth - 1), self.moment(depth - 1)
        micros, step = f"UNIX_MICROS(CAST({one} AS TIMESTAMP))", self.chance.choice([1000, 1_000_000])
        return self.chance.choice([
            f"CAST(TIMESTAMP_MICROS({micros} - PMOD({micros}, {step})) AS TIMESTAMP_NTZ)", f"COALESCE({one}, {other})",
            f"CASE WHEN {self.truth(depth - 1)} THEN {one} ELSE {other} END",
            f"CAST({self.day(depth - 1)} AS TIMESTAMP_NTZ)", f"LEAST({one}, {other})",
            f"CAST(TIMESTAMPADD(MONTH, {self.chance.randint(-9, 30)}, {one}) AS TIMESTAMP_NTZ)",
            f"CAST({self.day(depth - 1)} AS TIMESTAMP_NTZ)", parse_timestamp(self.text(0), parse_type("TIMESTAMP(3)")),
        ])  # fmt: skip

    def day(self, depth: int) -> str:
        if depth <= 0:
            return self.chance.choice(["`day`", "`day2`", "DATE'2000-02-29'"])
        millis = f"UNIX_MILLIS(CAST({self.moment(depth - 1)} AS TIMESTAMP))"
        return self.chance.choice([
            f"DATE_FROM_UNIX_DATE(CAST({millis} DIV 86400000 AS INT))", f"CAST({self.moment(depth - 1)} AS DATE)",
            f"COALESCE({self.day(depth - 1)}, {self.day(depth - 1)})", f"TRUNC({self.day(depth - 1)}, 'QUARTER')",
            f"ADD_MONTHS({self.day(depth - 1)}, {self.chance.randint(-20, 20)})",
            f"DATE_ADD({self.day(depth - 1)}, CAST(`s` AS INT))",
        ])  # fmt: skip

    def truth(self, depth: int) -> str:
        if depth <= 0:
            return self.chance.choice(["`ok`", "`yes`", "TRUE"])
        operator = self.chance.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"])
        make = getattr(self, self.chance.choice(["whole", "decimal", "double", "text", "moment", "day"]))
        value = make(depth - 1)
        return self.chance.choice([
            f"({value} {operator} {make(depth - 1)})", f"({value} {operator} {make(depth - 1)})",
            f"({value} IS NULL)",
            f"({self.truth(depth - 1)} AND {self.truth(depth - 1)})",
            f"({self.truth(depth - 1)} OR {self.truth(depth - 1)})",
            f"(NOT {self.truth(depth - 1)})", f"({self.truth(depth - 1)} IS TRUE)",
            f"({self.text(depth - 1)} LIKE '%a_')",
            f"({self.truth(depth - 1)} IS FALSE)", f"CAST({self.text(depth - 1)} AS BOOLEAN)",
            f"({self.whole(depth - 1)} BETWEEN -5 AND {self.whole(depth - 1)})",
        ])  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2])
def test_any_expression_gives_what_spark_gives(spark: SparkSession, seed: int) -> None:
    pieces = Pieces(seed)
    made = [pieces.any() for _ in range(4 * _EXPRESSIONS)]
    texts = [text for text in dict.fromkeys(made) if native_form(text, TYPES) is not None]
    assert len(texts) > len(set(made)) // 2
    assert_same(spark, texts[:_EXPRESSIONS])
