"""Expressions that are refused: what each message says."""

from __future__ import annotations

import pytest

from upsert_platform.sql.reader import Fault
from upsert_platform_tests.sql.declared_columns import spark_sql


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("JSON_VALUE(js, '$.a' EMPTY ARRAY ON EMPTY)", "JSON_VALUE takes RETURNING"),
        ("JSON_VALUE(js, '$..a')", "filters, slices and '..' are not supported"),
        ("JSON_QUERY(js, '$.a' RETURNING INT)", "JSON_QUERY gives a text"),
        ("JSON_OBJECT(s, 1)", "KEY <text> VALUE <value> expected"),
        ("ARRAY_SORT(ARRAY[TRUE, FALSE])", "ARRAY_SORT does not sort values of type BOOLEAN"),
        ("ARRAY_SORT(ARRAY[1], 1)", "ARRAY_SORT takes a condition, not INT"),
        ("i + 'a'", "'+' takes numbers, not CHAR(1)"),
        ("i + NULL", "'+' takes numbers, not NULL"),
        ("s || i", "CONCAT takes a text, not INT: write CAST(... AS STRING)"),
        ("i = '7'", "INT and CHAR(1) are not compared: write a CAST"),
        ("ts = DATE '2024-01-01'", "TIMESTAMP(3) and DATE are not compared"),
        ("CAST(i AS DATE)", "there is no CAST of INT AS DATE"),
        ("CAST(day AS BIGINT)", "there is no CAST of DATE AS BIGINT"),
        ("CASE WHEN i THEN 1 END", "WHEN takes a condition, not INT"),
        ("COALESCE(i, s)", "COALESCE takes values of one type, not INT, STRING"),
        ("GREATEST(d, 5)", "GREATEST takes decimals of one type"),
        ("TRUNCATE(f, 1)", "TRUNCATE takes exact numbers"),
        ("MOD(f, 2)", "MOD and % take exact numbers"),
        ("1e400", "the number 1e400 is out of range"),
        ("REGEXP(s, s)", "REGEXP takes its pattern as a literal"),
        ("DATE_FORMAT(ts, s)", "DATE_FORMAT takes its pattern as a literal"),
        ("s LIKE 'a!b' ESCAPE '!'", "the escape '!' stands before '%', '_' or itself"),
        ("JSON_VALUE(js, s)", "JSON_VALUE takes JSON and a path in quotes"),
        ("JSON_VALUE(js, 'a.b')", "a path begins with '$'"),
        ("CEIL(t TO DAY)", "CEIL takes a date or timestamp TO one of"),
        ("EXTRACT(MICROSECOND FROM ts)", "EXTRACT takes one of MILLENNIUM"),
        ("TIMESTAMPADD(CENTURY, 1, ts)", "TIMESTAMPADD takes a unit"),
        ("TO_TIMESTAMP_LTZ(1, 9)", "TO_TIMESTAMP_LTZ takes a number and its precision"),
        ("DATE_FORMAT(ts, 'ww')", "Spark has no pattern letter 'w'"),
        ("DATE_FORMAT(t, 'HH')", "DATE_FORMAT of a TIME"),
        ("CHAR_LENGTH(s, 1)", "CHAR_LENGTH does not take 2 arguments"),
        ("s LIKE 'a' ESCAPE n", "ESCAPE is not complete"),
        ("TIMESTAMP_LTZ '2024-01-01 00:00:00'", "a literal is written DATE, TIME or TIMESTAMP"),
        ("DATE '2024-02-30'", "there is no such DATE: a literal is written DATE '2024-12-31'"),
        ("DATE '2024-01-01 00:00:00'", "there is no such DATE"),
        ("ts > TIMESTAMP '2023-02-29 00:00:00'", "there is no such TIMESTAMP: a literal is written"),
        ("TIMESTAMP '2024-01-01 24:00:00'", "there is no such TIMESTAMP"),
        ("TIME '12:60:00'", "there is no such TIME: a literal is written TIME '23:59:59'"),
        ("(ts, ts, ts) OVERLAPS (ts, ts)", "OVERLAPS takes a beginning and an end on both sides"),
        ("CASE i WHEN 1, 2 END", "THEN expected in CASE"),
        ("CASE WHEN bo, bo THEN 1 END", "THEN expected in CASE"),
        ("ts + INTERVAL s DAY", "INTERVAL takes a text in quotes, or a whole number before one unit"),
        ("ts + INTERVAL i DAY TO HOUR", "INTERVAL takes a text in quotes, or a whole number before one unit"),
        ("INTERVAL '1' DAY - ts", "an interval stands on the right of '-'"),
        ("INTERVAL '1' DAY", "an INTERVAL stands behind a date or a time: ts + INTERVAL '1' DAY"),
        ("i + INTERVAL '1-6' YEAR TO MONTH", "an interval is added to a date or a time, not to INT"),
        ("t + INTERVAL '1' MONTH", "only SECOND, MINUTE, HOUR and DAY are added"),
        ("CURRENT_WATERMARK(ts)", "it stands in the select list, WHERE or GROUP BY of INSERT INTO ... SELECT"),
        ("unknown_column", "unknown column 'unknown_column'"),
        ("arr[1, 2]", "one index or key"),
    ],
)
def test_what_is_refused_in_an_expression(expression: str, message: str) -> None:
    with pytest.raises(Fault) as caught:
        spark_sql(expression)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("my_udf(s, 1)", "unknown function MY_UDF"),
        ("UPER(s)", "unknown function UPER; did you mean 'UPPER'?"),
        ("JSON_VALU(js, '$.a')", "unknown function JSON_VALU; did you mean 'JSON_VALUE'?"),
        ("HASH_CODE(s)", "HASH_CODE is not supported: use MD5"),
    ],
)
def test_a_function_that_is_not_known_is_refused(expression: str, message: str) -> None:
    with pytest.raises(Fault) as caught:
        spark_sql(expression)
    assert message in caught.value.message
