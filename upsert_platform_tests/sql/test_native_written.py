"""Expressions as users write them, in Flink SQL: what becomes of them has a form, and the values that Spark gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from upsert_platform.core.types import parse_type, quote_name
from upsert_platform.sql.casts import cast
from upsert_platform.sql.expressions import Scope, render
from upsert_platform.sql.flink import parse_query
from upsert_platform.sql.lexer import tokenize
from upsert_platform.sql.native import native_form
from upsert_platform.sql.rendered import Rendered
from upsert_platform_tests.sql.native_rows import TYPES, assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN = [
    "d10 > 1", "d10 = d24", "d10 <= 9.99", "i >= 1.5", "b <> d10", "f > 1.5", "f = i", "r < 2", "r <> f", "t = 1",
    "b > i",
    "ts > TIMESTAMP '2024-01-01 00:00:00'", "ts3 <= ts", "ltz >= TIMESTAMP '1969-12-31 23:59:59.5'",
    "`day` < DATE '2000-01-01'",
    "CAST(ts AS DATE) = `day`", "i BETWEEN 1 AND 10", "d10 NOT BETWEEN -1 AND 1.5", "x IN ('a', 'b', 'ab')",
    "i NOT IN (1, 2, 3)",
    "d10 IN (1, 2.5)", "x IS NULL", "(i > j) IS TRUE", "(i > j) IS NOT FALSE", "i IS DISTINCT FROM j",
    "x IS NOT DISTINCT FROM y",
    "COALESCE(x, y, 'none')", "COALESCE(i, 0)", "COALESCE(d10, 0)", "IF(i > 1, x, y)", "NULLIF(i, 0)", "NULLIF(x, '')",
    "IFNULL(f, 0)",
    "CASE WHEN d10 > 100 THEN 'much' WHEN d10 > 10 THEN 'some' ELSE 'little' END", "CASE WHEN ok THEN b ELSE i END",
    "x || '-' || y", "CONCAT(x, ':', CAST(b AS STRING))", "CONCAT_WS(',', x, y)", "CAST(ok AS STRING)",
    "CAST(d10 AS STRING)",
    "SUBSTRING(x, 1, 3)", "SUBSTRING(x FROM 2)", "SUBSTR(x, -2)", "SUBSTRING(x, 0, 2)", "TRIM(x)", "LTRIM(x)",
    "RTRIM(x)", "TRIM(BOTH 'ab' FROM x)",
    "REPLACE(x, 'a', 'b')", "CHAR_LENGTH(x)", "LEFT(x, 2)", "RIGHT(x, 2)", "POSITION('b' IN x)", "LOCATE('b', x)",
    "INSTR(x, 'b')",
    "x LIKE 'a%'", "x NOT LIKE '%b'", "x LIKE '%a!_%' ESCAPE '!'", "x LIKE 'a\\b'", "STARTSWITH(x, 'a')",
    "b + i", "i + 1", "t * 2", "s - b", "-i", "ABS(i)", "d10 + d10", "d10 - 1", "d5 * d10", "d10 * 2", "d10 + 0.5",
    "i % 3", "MOD(b, 10)",
    "i / 3", "b / i", "f * 2", "f + d10", "f - i", "r * 1.5", "CAST(d24 AS DECIMAL(23, 3))",
    "CAST(i AS DECIMAL(5, 2))", "CAST(d10 AS BIGINT)",
    "CAST(d10 AS INT)", "CAST(b AS DOUBLE)", "CAST(d10 AS DOUBLE)", "CAST(f AS FLOAT)", "CAST(b AS INT)",
    "CAST(ok AS INT)",
    "EXTRACT(HOUR FROM ts)", "EXTRACT(MINUTE FROM ltz3)", "EXTRACT(SECOND FROM ts3)", "EXTRACT(DAY FROM ts)",
    "EXTRACT(MONTH FROM `day`)",
    "EXTRACT(YEAR FROM ts)", "HOUR(ts)", "YEAR(`day`)", "DAYOFWEEK(ts)", "QUARTER(ts)", "CAST(ts AS TIMESTAMP(3))",
    "CAST(ltz AS TIMESTAMP_LTZ(0))",
    "CAST(ts AS TIMESTAMP_LTZ(3))", "CAST(ltz AS DATE)", "CAST(`day` AS TIMESTAMP(3))", "TO_TIMESTAMP_LTZ(c, 3)",
    "TO_TIMESTAMP_LTZ(i, 0)",
    "ts + INTERVAL '1' DAY", "ltz - INTERVAL '90' MINUTE", "ts3 + INTERVAL '1 02:03:04.5' DAY TO SECOND",
    "FLOOR(ts TO HOUR)", "FLOOR(ts TO DAY)", "CEIL(ts TO MINUTE)", "TIMESTAMPDIFF(SECOND, ts, ltz)",
    "TIMESTAMPDIFF(DAY, ts3, ts)",
    "DATE_FORMAT(ltz3, 'yyyy-MM-dd')", "HOUR(ts) >= 8 AND HOUR(ts) <= 18 OR DAYOFWEEK(ts) = 1",
    "CASE WHEN HOUR(ts) BETWEEN 8 AND 18 THEN 'dayTime'"
    " WHEN HOUR(ts) <= 6 OR HOUR(ts) >= 20 THEN 'nightTime' ELSE 'otherTime' END",
    "JSON_VALUE('{\"a\": ' || CAST(i AS STRING) || '}', '$.a')", "JSON_VALUE(x, '$.a' DEFAULT 'none' ON EMPTY)",
    "JSON_QUERY('[' || CAST(i AS STRING) || ', {\"b\": 1}]', '$[1]' WITH CONDITIONAL ARRAY WRAPPER)",
    "JSON_EXISTS('{\"a\": ' || CAST(i AS STRING) || '}', '$.a')", "JSON_EXISTS(x, 'strict $.a')", "x IS JSON",
    "CAST(i AS STRING) IS JSON SCALAR", "CASE x WHEN 'a' THEN 1 WHEN 'ab' THEN 2 ELSE i END",
    "CASE f WHEN g THEN x END",
    "CAST(NULL AS STRING)", "CAST(NULL AS INT) + i", "CAST(w AS INT) + i", "TRY_CAST(w AS BIGINT) > b",
    "CAST(w AS DOUBLE)", "CAST(CAST(w AS DECIMAL(10, 2)) AS STRING)", "CAST(w AS DECIMAL(30, 3)) + d24",
    "CAST(w AS BOOLEAN) AND ok", "TO_TIMESTAMP(w) > ts3", "TO_DATE(w) = `day`",
    "CAST(TO_TIMESTAMP(w, 'yyyy-MM-dd') AS DATE)", "CAST(`day` AS STRING)", "CAST(ts AS STRING) || '!'",
    "CAST(ts3 AS STRING)", "CAST(CAST(ts AS TIMESTAMP(0)) AS STRING)", "CAST(ltz3 AS STRING)", "CAST(tod AS STRING)",
    "DATE_FORMAT(ts, 'HH:mm:ss.S')", "CAST('12' AS INT) + i",
    "DATE_FORMAT(TO_TIMESTAMP(w), 'dd.MM.yyyy')", "CAST(SUBSTRING(w, 1, 4) AS SMALLINT)",
    "COALESCE(TRY_CAST(w AS INT), -1)",
    "CAST(SPLIT_INDEX(w, '-', 0) AS INT)", "EXTRACT(YEAR FROM TO_TIMESTAMP(w))",
    "CAST(CAST(w AS DATE) AS STRING)", "CAST(CAST(ok AS STRING) AS BOOLEAN)",
]  # fmt: skip
FAILING = [
    ("d24", "DECIMAL(23, 3)"), ("d10", "DECIMAL(8, 1)"), ("i", "DECIMAL(10, 2)"), ("b", "DECIMAL(10, 0)"),
    ("CASE WHEN i > 3 THEN d24 ELSE 1.5 END", "DECIMAL(6, 3)"), ("COALESCE(d24, 0)", "DECIMAL(8, 0)"),
    ("JSON_VALUE(x, 'strict $.a' ERROR ON ERROR)", "STRING"), ("JSON_VALUE(x, 'lax $.a' ERROR ON EMPTY)", "STRING"),
    ("CAST(w AS INT)", "INT"), ("CAST(w AS DECIMAL(8, 2))", "DECIMAL(6, 1)"),
    ("CAST(x || w AS TIMESTAMP(3))", "TIMESTAMP(3)"),
    ("CAST(TRIM(w) AS DATE)", "DATE"), ("CAST(w AS FLOAT)", "FLOAT"), ("CAST(w AS BOOLEAN)", "BOOLEAN"),
    ("b / c", "BIGINT"), ("i / NULLIF(j, 0)", "INT"), ("MOD(b, i) + b / c", "DECIMAL(4, 0)"),
]  # fmt: skip
"""Expressions that may have no value for a row, and the type of the column that they are written to."""


def rendered(expression: str) -> Rendered:
    columns = {name: Rendered(quote_name(name), kind, simple=True, column=name) for name, kind in TYPES.items()}
    tokens, problems = tokenize(expression, "f")
    assert problems == []
    return render(parse_query(tuple(tokens), "expression"), Scope(columns), 1)


def test_what_users_write_has_a_form_with_the_same_values(spark: SparkSession) -> None:
    assert_same(spark, [rendered(expression).sql for expression in WRITTEN])


def test_the_reason_of_a_failure_is_the_one_that_spark_gives(spark: SparkSession) -> None:
    values = [cast(rendered(expression), parse_type(kind), implicit=True) for expression, kind in FAILING]
    assert_same(spark, [value.sql for value in values])
    assert_same(spark, [value.fails for value in values if value.fails is not None])


@pytest.mark.parametrize(
    "expression", ["ROUND(f, 2)", "LN(f)", "d38 % small", "CAST(x AS TIME)", "ts + i * INTERVAL '1' MONTH"]
)
def test_what_spark_alone_computes_has_no_form(expression: str) -> None:
    assert native_form(rendered(expression).sql, TYPES) is None
