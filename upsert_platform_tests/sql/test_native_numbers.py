"""Numbers that Arrow computes: what Spark computes, over the extremes of every kind; and what has no form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from upsert_platform.sql.native import native_form
from upsert_platform_tests.sql.native_rows import TYPES, assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
COMPARED = [
    ("`d10`", "`d24`"), ("`d24`", "`d18`"), ("`d38`", "`t`"), ("`d10`", "`b`"), ("`i`", "`d5`"), ("`t`", "`d24`"),
    ("`d5`", "1"), ("-1", "`d10`"), ("`d10`", "0.01"), ("`d18`", "-0.0005"), ("`d10`", "9999999999"), ("`small`",
    "`d5`"),
    ("`f`", "`g`"), ("`r`", "CAST(1.5 AS FLOAT)"), ("`f`", "CAST(0 AS DOUBLE)"), ("`f`", "CAST(`r` AS DOUBLE)"),
    ("`f`", "CAST(0.1 AS DOUBLE)"), ("CAST(`d10` AS DOUBLE)", "`f`"), ("`i`", "`b`"), ("`t`", "`s`"), ("`i`", "12"),
    ("`b`", "-100"), ("`t`", "300"), ("`d0`", "`b`"), ("`f`", "1e308D"), ("`f`", "-1.5D"), ("`r`", "`r`"),
    ("`tod`", "`tod`"), ("`t`", "CAST(1000.5 AS DECIMAL(5,1))"), ("CAST(`t` AS DECIMAL(19,0))", "1000.5"),
    ("`t`", "CAST(-1000 AS DECIMAL(4,0))"), ("CAST(`b` AS DECIMAL(19,0))", "9223372036854775807.5"),
]  # fmt: skip
COMPUTED = [
    "`b` + `i`", "`t` + `s`", "`t` - `i`", "`t` * `t`", "`s` * `i`", "`i` * `b`", "`i` + 1", "`t` + 1", "1 - `b`",
    "`i` - 2147483647", "`i` * 3000000000", "2147483647 * 2", "2147483647 + 1", "`i` + CAST(`t` AS INT)",
    "-`t`", "-`i`", "-`b`", "-`d10`", "-`f`", "-`r`", "-5", "-(5)", "-0.50", "-2147483648L", "-(-`i`)",
    "ABS(`t`)", "ABS(`i`)", "ABS(`b`)", "ABS(`d24`)", "ABS(`f`)", "CAST(ABS(`s`) AS SMALLINT)",
    "`i` DIV 3", "`b` DIV 86400000", "`b` DIV -1", "`b` DIV 0", "`i` DIV `j`", "`t` DIV `b`", "`b` DIV `c`",
    "`b` % 7", "`i` % -3", "`b` % `c`", "`t` % `s`", "`i` % 0", "`t` % 5", "`s` % CAST(-1 AS SMALLINT)",
    "PMOD(`b`, 1000)", "PMOD(`i`, 7)", "PMOD(`t`, 100)", "PMOD(`b`, 86400000000)", "`b` % 86400000 DIV 3600000",
    "`i` + `j` * 2 - 3", "`i` * 2 % 5", "CASE WHEN `ok` THEN 2147483647 ELSE 1 END * 2",
    "`d10` + `d10`", "CAST(`d10` + `d5` AS DECIMAL(11,2))", "`d10` - `d24`", "`d18` + `d5`", "`d10` * `d5`",
    "`d5` + 1.50", "CAST(`d10` + CAST(`i` AS DECIMAL(10,0)) AS DECIMAL(13,2))", "CAST(`d24` - `d10` AS DECIMAL(25,3))",
    "CAST(`d24` AS DECIMAL(23,3))", "CAST(`d24` AS DECIMAL(24,2))", "CAST(`d24` AS DECIMAL(4,0))",
    "CAST(`d5` AS DECIMAL(3,1))",
    "CAST(`d10` AS DECIMAL(9,1))", "CAST(`d10` AS DECIMAL(8,0))", "CAST(`d38` AS DECIMAL(38,0))",
    "CAST(`d38` AS DECIMAL(37,0))",
    "CAST(`d0` AS DECIMAL(38,2))", "CAST(`d0` AS DECIMAL(10,2))", "CAST(`d38` AS DECIMAL(38,20))",
    "CAST(`small` AS DECIMAL(5,4))",
    "CAST(`small` AS DECIMAL(1,0))", "CAST(`d5` AS DECIMAL(2,2))", "CAST(`d10` AS DECIMAL(38,30))",
    "CAST(`i` AS DECIMAL(5,2))", "CAST(`b` AS DECIMAL(19,0))", "CAST(`b` AS DECIMAL(18,0))",
    "CAST(`b` AS DECIMAL(20,2))",
    "CAST(`b` AS DECIMAL(38,30))", "CAST(`t` AS DECIMAL(2,0))", "CAST(`t` AS DECIMAL(3,0))",
    "CAST(`i` AS DECIMAL(10,2))",
    "CAST(300 AS DECIMAL(2,0))", "CAST(12345678901234567890 AS DECIMAL(20,0))", "CAST(1.25 AS DECIMAL(2,1))",
    "CAST(-1.25 AS DECIMAL(3,1))", "CAST(NULL AS DECIMAL(3,1))", "CAST(`d38` AS DECIMAL(1,1))",
    "CAST(`d5` AS BIGINT)", "CAST(CAST(`d10` AS BIGINT) AS INT)", "CAST(CAST(`d10` AS BIGINT) AS TINYINT)",
    "CAST(`d18` AS BIGINT)", "CAST(`d10` AS TINYINT)", "CAST(`d18` AS INT)", "CAST(`ok` AS INT)", "CAST(`b` AS INT)",
    "CAST(300 AS TINYINT)", "CAST(-200 AS TINYINT)",
    "CAST(`t` AS DOUBLE)", "CAST(`b` AS DOUBLE)", "CAST(`b` AS FLOAT)", "CAST(`i` AS FLOAT)", "CAST(`r` AS DOUBLE)",
    "CAST(`f` AS FLOAT)", "CAST(`d5` AS DOUBLE)", "CAST(`d18` AS DOUBLE)", "CAST(`d24` AS DOUBLE)",
    "CAST(`d38` AS DOUBLE)",
    "CAST(`small` AS DOUBLE)", "CAST(`d10` AS FLOAT)", "CAST(`d24` AS FLOAT)", "CAST(`small` AS FLOAT)",
    "CAST(2 AS DOUBLE)", "CAST(0.1 AS FLOAT)", "CAST(16777217 AS FLOAT)", "CAST(-0.1 AS DOUBLE)", "1.5e-7D",
    "`f` + `g`", "`f` - `g`", "`f` * `g`", "`r` * `r`", "CAST(`r` + `r` AS FLOAT)",
    "CAST(`f` * CAST(2 AS DOUBLE) AS DOUBLE)",
    "`f` + CAST(`r` AS DOUBLE)", "-0.0D", "-CAST(0.0 AS DOUBLE)", "1.5", "0.05", "0.00", "007.50", "3000000000", "0L",
    "COALESCE(`i`, `j`)", "COALESCE(`d10`, CAST(0 AS DECIMAL(10,2)))", "COALESCE(NULL, `f`, `g`)", "COALESCE(`f`)",
    "CASE WHEN `i` = `j` THEN NULL ELSE `i` END", "CASE WHEN `f` = `g` THEN `f` ELSE -`f` END",
    "(`i` = 1) OR (`i` = 2) OR (`i` = -1)", "(`b` = 1) OR (`b` = 9223372036854775807) OR (`b` = 12) OR (`b` = -7)",
    "(`d10` = 0.01) OR (`d10` = 0.5) OR (`d10` = 1)", "NOT ((`t` = 1) OR (`t` = 2) OR (`t` = 99))",
    "`i` BETWEEN -1 AND 100", "`b` BETWEEN -62167219200000L AND 253402300799999L", "`d10` BETWEEN 0.01 AND 10",
    "(`i` >= -1) AND (`i` <= `j`)", "`i` IS NULL", "NOT (`f` IS NULL)", "(`i` > `j`) IS TRUE", "(`i` > `j`) IS FALSE",
    "NOT ((`i` > `j`) IS TRUE)", "NOT ((`f` > `g`) IS FALSE)", "`ok` IS NULL", "`ok` = `yes`", "`ok` <=> `yes`",
    "NOT (`i` <=> `j`)", "`ok` < `yes`", "CASE WHEN `ok` THEN `ok` = TRUE END",
    "`ok` AND `yes` OR `i` > 0 AND `b` > 0 OR `i` < -5",
    "`ok` OR `yes` OR (`i` IS NULL)",
    "CASE WHEN `d24` IS NOT NULL AND (CAST(`d24` AS DECIMAL(23,3))) IS NULL"
    " THEN 'a number does not fit DECIMAL(23, 3)' END",
    "COALESCE(CASE WHEN `d24` IS NOT NULL AND (CAST(`d24` AS DECIMAL(6,3))) IS NULL THEN 'one' END,"
    " CASE WHEN `i` IS NOT NULL AND (CAST(`i` AS DECIMAL(3,0))) IS NULL THEN 'two' END)",
    "CASE WHEN `i` > 3 THEN CASE WHEN `b` IS NOT NULL AND `c` = 0 THEN 'division by zero' END END",
    "CASE WHEN `i` > 3 THEN NULL ELSE CASE WHEN `b` IS NULL THEN 'none' END END",
]  # fmt: skip
UNSURE = [
    "`t` < 1000.5", "-(1.5) = `i`", "`b` <> 0.5", "`d38` = `small`", "`d0` < 0.5", "`d0` = `d38`", "`small` = `b`",
    "`f` = 1", "`f` = `r`", "`f` = `i`",
    "`d10` = `f`", "`i` = '1'",
    "`d38` + `d10`", "`d0` - `small`", "`d24` * `d24`", "`d10` * 2", "`d10` + 1",
    "`f` / `g`", "`f` % `g`",
    "`f` + 1", "`f` + `r`", "`i` / `j`", "`d10` DIV `d5`", "`f` DIV `g`", "PMOD(`b`, 0)", "PMOD(`b`, -3)",
    "PMOD(`b`, `c`)", "PMOD(`f`, `g`)",
    "CAST(`f` AS INT)", "CAST(`f` AS DECIMAL(10,2))", "CAST(`d24` AS BIGINT)", "CAST(`d10` AS INT) = `x`",
    "CAST(`day` AS INT)",
    "CAST(`ts` AS BIGINT)", "CAST(`ok` AS DOUBLE)", "CAST(`f` AS BOOLEAN)", "-2147483648", "-9223372036854775808",
    "9223372036854775808",
    "12345678901234567890", "-`x`", "-`ok`", "-`d38`", "ABS(`d0`)", "ABS(`x`)", "`x` + 1", "COALESCE(`i`, `b`)",
    "COALESCE(`i`, 'a')",
    "COALESCE(`d10`, `d5`)",
    "COALESCE(NULL, NULL)", "`i` IN (1, 2)", "`i` IS TRUE", "(`i`) OR `ok`",
    "TRY_CAST(`d24` AS DECIMAL(23,3))",
    "CAST(`i` AS DECIMAL)", "CAST(`d24` AS DECIMAL(39,3))", "1e3", "`i` <=> '1'", "`f` <=> `i`",
    "`i` BETWEEN 'a' AND 'b'",
    "`f` BETWEEN 0 AND 1", "1.0e400D", "`tod` + 1", "`tod` = 1",
]  # fmt: skip


def test_comparisons_hold_for_the_same_rows(spark: SparkSession) -> None:
    assert_same(spark, [f"{left} {operator} {right}" for left, right in COMPARED for operator in OPERATORS])


def test_numbers_are_those_that_spark_computes(spark: SparkSession) -> None:
    assert_same(spark, COMPUTED)


@pytest.mark.parametrize("text", UNSURE)
def test_what_is_not_sure_to_be_the_same_has_no_form(text: str) -> None:
    assert native_form(text, TYPES) is None
