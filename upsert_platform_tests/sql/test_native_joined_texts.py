"""Texts that Arrow joins, cuts, measures and searches: what Spark makes of them; and what has no form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from upsert_platform.sql.native import native_form
from upsert_platform.sql.rendered import quote_text
from upsert_platform_tests.sql.native_rows import TYPES, assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATTERNS = [
    "a%", "%b", "%b%", "a_", "_", "__", "%_%", "", "%", "%%", "a%b%c", "_😀%", "%é%", "a\\_b", "a\\%b", "a\\\\b",
    "%\\\\%",
    "%\n%", "%.%", "$1", "[ab]", "%\u2028", "it's", "a%_c%", "%a_%b%",
]  # fmt: skip
COMPUTED = [
    "CONCAT(`x`, '-', `y`)", "CONCAT(`x`)", "CONCAT(`x`, `v`, 'é😀')", "CONCAT('a', 'b')", "CONCAT_WS(', ', `x`, `y`)",
    "CONCAT_WS(`v`, `x`, `y`, 'z')", "CONCAT_WS('', `x`)", "CONCAT_WS(CAST(NULL AS STRING), `x`)",
    *(f"SUBSTRING(`x`, {start})" for start in (0, 1, 2, 7, -1, -2, -9, 2147483647)),
    *(f"SUBSTRING(`x`, {start}, {length})" for start in (0, 1, 2, -1, -3, -9)
      for length in (0, 1, 2, 3, -1, 2147483647)),
    "CASE WHEN (-3) < 0 AND CHAR_LENGTH(`x`) + (-3) < 0 THEN '' ELSE SUBSTRING(`x`, -3, 2) END",
    "CASE WHEN (-1) < 0 THEN NULL ELSE SUBSTRING(`x`, 1, -1) END",
    *(f"{name}(`x`, {length})" for name in ("LEFT", "RIGHT") for length in (0, 1, 2, 9, -1)),
    *(f"TRIM({side} FROM `x`)" for side in ("BOTH", "LEADING", "TRAILING")),
    *(f"TRIM({side} 'ba ' FROM `x`)" for side in ("BOTH", "LEADING", "TRAILING")), "TRIM(BOTH '😀a' FROM `x`)",
    "REPLACE(`x`, 'a', 'b')", "REPLACE(`x`, 'ab', '')", "REPLACE(`x`, '😀', 'é')", "REPLACE(`x`, 'abcabc', '\\\\1$1')",
    "REPLACE(`x`, '.', '')", "REPLACE(`x`, '\\\\', '/')", "REPLACE(`x`, 'aa', 'a')",
    "CHAR_LENGTH(`x`)", "CHAR_LENGTH(`v`) > 2", "CHAR_LENGTH(CONCAT(`x`, `y`)) + 1",
    *(f"LOCATE('{text}', `x`)" for text in ("a", "b", "", "😀", "ab", "é", "zz", "\u0301")), "INSTR(`x`, 'b')",
    *(f"`x` LIKE {quote_text(text)}" for text in PATTERNS), "NOT (`x` LIKE '%a%')", "`x` LIKE 'a!%b' ESCAPE '!'",
    "`x` LIKE 'a!_b' ESCAPE '!'", "`x` LIKE '%!!%' ESCAPE '!'", "`x` LIKE 'a\\\\b' ESCAPE '!'",
    "`x` LIKE REPLACE('a\\\\b', '\\\\', '\\\\\\\\')", "STARTSWITH(`x`, 'a')", "ENDSWITH(`x`, 'b')",
    "STARTSWITH(`x`, '')",
    *(f"CAST(`{name}` AS STRING)" for name in ("t", "s", "i", "b", "ok", "d10", "d24", "d38", "d0", "x", "v")),
    "CAST(`x` AS VARCHAR(5))",
    "UPPER(CAST(`ok` AS STRING))", "CONCAT(CAST(`i` AS STRING), ':', `x`)", "CAST(-5 AS STRING)",
    "COALESCE(`x`, `y`)", "COALESCE(`x`, 'none')", "COALESCE(CAST(NULL AS STRING), `x`, '')",
    "CASE WHEN `x` = `y` THEN NULL ELSE `x` END", "CASE WHEN `x` = '' THEN NULL WHEN `ok` THEN `v` ELSE 'é' END",
    "(`x` = 'a') OR (`x` = 'é') OR (`x` = '')", "NOT ((`x` = 'a') OR (`x` = 'ab') OR (`x` = '😀'))",
    "`x` <=> `y`", "NOT (`x` <=> 'a')", "`x` BETWEEN 'a' AND 'b'", "(`x` LIKE 'a%') IS TRUE",
    "CASE WHEN `x` IS NULL AND (`y`) IS NOT NULL THEN CONCAT('a text: ', SUBSTRING(`y`, 1, 100)) END",
    "COALESCE(CASE WHEN `x` = 'a' THEN 'one' END, CASE WHEN `y` = 'a' THEN 'two' END)",
]  # fmt: skip
UNSURE = [
    "CONCAT(`x`, `i`)", "CONCAT(`x`, NULL)", "CONCAT()", "CONCAT_WS(', ')", "CONCAT_WS(', ', `x`, `i`)",

    "SUBSTRING(`x`, `i`)", "SUBSTRING(`x`, 1, `i`)", "SUBSTRING(`x`, 3000000000)",
    "SUBSTRING(`i`, 1)",
    "SUBSTRING(`x`, 1.5)", "LEFT(`x`, `i`)", "RIGHT(`i`, 1)", "TRIM(BOTH `y` FROM `x`)", "TRIM(BOTH '' FROM `x`)",
    "TRIM(BOTH FROM `i`)",
    "REPLACE(`x`, '', 'a')", "REPLACE(`x`, `y`, 'a')", "REPLACE(`x`, 'a', `y`)", "REPLACE(`x`, 'a')",
    "CHAR_LENGTH(`i`)", "OCTET_LENGTH(`x`)",
    "LOCATE(`x`, 'a')", "LOCATE('a', `x`, 2)", "LOCATE('a', `i`)", "`x` LIKE `y`", "`x` LIKE 'a\\\\b'",
    "`x` LIKE 'a\\\\'", "`i` LIKE '1%'",
    "`x` LIKE 'a!b' ESCAPE '!'", "`x` LIKE 'a!' ESCAPE '!'", "`x` LIKE 'a' ESCAPE '!!'", "`x` LIKE 'a' ESCAPE `y`",
    "`x` LIKE REPLACE(`y`, 'a', 'b')",
    "STARTSWITH(`x`, `y`)", "CAST(`f` AS STRING)", "CAST(`small` AS STRING)", "CAST(`day` AS STRING)",
    "`x` RLIKE `y`", "REPEAT(`x`, 2)", "`x` ILIKE 'A%'", "LPAD(`x`, 3, ' ')",
]  # fmt: skip


def test_texts_are_those_that_spark_makes(spark: SparkSession) -> None:
    assert_same(spark, COMPUTED)


@pytest.mark.parametrize("text", UNSURE)
def test_what_is_not_sure_to_be_the_same_has_no_form(text: str) -> None:
    assert native_form(text, TYPES) is None
