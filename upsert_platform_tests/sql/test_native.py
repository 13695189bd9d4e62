"""Conditions that Arrow evaluates: the rows that Spark finds, and nothing that is not sure to be the same."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from upsert_platform.core.types import arrow_type, parse_type, spark_type
from upsert_platform.engine.steps import evaluate
from upsert_platform.sql.native import native_condition, native_form, type_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TYPES = {name: parse_type(kind) for name, kind in {
    "id": "BIGINT", "small": "TINYINT", "region": "STRING", "odd `name": "STRING", "ok": "BOOLEAN",
    "price": "DECIMAL(8, 2)",
    "ratio": "DOUBLE", "at": "TIMESTAMP(3)", "place": "ROW<city STRING, n BIGINT, `in` ROW<x INT, since TIMESTAMP(3)>>",
}.items()}  # fmt: skip
NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001 - TIMESTAMP has no zone
ROWS = [
    (1, 1, "eu", "a", True, None, None, NOON, {"city": "eu", "n": 1, "in": {"x": 7, "since": NOON}}),
    (2, -3, "test", None, False, None, 0.5, None, None),
    (3, None, None, "b", None, None, float("nan"), NOON, {"city": None, "n": None, "in": None}),
    (None, 127, "", "tést", True, None, -0.0, None, {"city": "b", "n": -5, "in": {"x": None, "since": None}}),
    (-5, 0, "eu ", "Z", False, Decimal("-999999.99"), None, None, {"city": "", "n": -5, "in": None}),
    (2**63 - 1, -128, "EU", "it's", True, Decimal("999999.99"), 1.5, NOON, {"city": "Eu", "n": 2**63 - 1, "in": None}),
    (-(2**63), 5, "a\\b", "B", False, Decimal("0.05"), 2.5, NOON, {"city": "ß", "n": -(2**63), "in": None}),
]
SAME = [
    "UPPER(`region`) < 'EU'", "LOWER(`region`) = 'é'", "LOWER(`region`) = `region`",
    "CASE WHEN `ok` THEN UPPER(`region`) END = 'EU'",
    "`region` <> 'test'", "`region` = ''", "`region` < 'eu '", "`odd ``name` >= 'b'", "`id` > 1", "`small` <= 1",
    "`id` = `small`", "2 < `id`", "`ok`", "NOT `ok`", "`ok` = TRUE", "`region` IS NULL", "NOT (`region` IS NULL)",
    "(`id` > 1) AND `ok`", "(`region` = 'eu') OR (`id` = 2)", "NOT ((`region` = 'eu') OR (`id` = 2))",
    "`odd ``name` = 'tést'", "`place`.`city` = 'eu'", "`place`.`in`.`x` > 1", "`place`.`in` IS NULL",
    "`place`.`n` = `id`",
    "CASE WHEN `id` > 1 THEN `place`.`city` WHEN `ok` THEN `region` END = 'eu'",
    "UPPER(`region`) = 'EU'", "'b' <> LOWER(`odd ``name`)", "LOWER(`place`.`city`) = 'EU'", "`region` = 'a\\\\b'",
    "`odd ``name` <> 'it\\'s'", "REGEXP_LIKE(`region`, '^e.')", "NOT REGEXP_LIKE(`region`, '(e|t)s?u|t+')",
    "CASE WHEN `id` > 1 THEN NULL WHEN `ok` IS NULL THEN NULL ELSE `ok` END", "(CASE WHEN `ok` THEN 1 ELSE 0 END) = 1",
    "`price` > 1", "`region` LIKE 'e%'", "`id` + `small` = 2", "2147483647 * 2 = 1",
    "CASE WHEN `ok` THEN 2147483647 ELSE 1 END * 2 = 1", "`id` % 0 = 1", "`small` % 5 = 1", "`id` % `id` = 1",
    "CAST(`id` AS STRING) = '1'", "CASE WHEN `ok` THEN `ok` = TRUE END", "`price` * `price` = 1",
    "CAST(`price` AS DECIMAL(7, 2)) = 1", "CAST(`price` AS DECIMAL(9, 1)) = 1",
]  # fmt: skip
VALUES = [
    "`id` + `id`", "`small` + `small`", "`small` * `small`", "`id` * 4611686018427387904", "`id` - `place`.`n`",
    "`id` % 2", "CAST(`id` % CAST(3 AS INT) AS INT)", "CAST(`id` AS TINYINT)", "CAST(`id` * 1000000007 AS SMALLINT)",
    "`small` % CAST(5 AS TINYINT)", "CAST(`small` AS BIGINT) + `id`", "CAST(300 AS TINYINT)",
    "CAST(`small` AS INT) * CAST(70000 AS INT)", "`place`.`city`", "`place`.`n`", "`place`.`in`.`since`",
    "`place`.`in`", "CASE WHEN `id` = 1 THEN `at` WHEN `id` = 3 THEN `place`.`in`.`since` END",
    "CASE WHEN NOT `ok` THEN `place` END", "CASE WHEN `ok` THEN `ratio` WHEN `id` > 2 THEN `ratio` END",
    "`price` * `price`", "CAST(`price` AS DECIMAL(9, 3))", "CAST(`id` AS DECIMAL(19, 0))",
    "CAST(0.908 AS DECIMAL(4, 3))",
    "CAST(CAST(0.908 AS DECIMAL(4, 3)) * CAST(`id` AS DECIMAL(19, 0)) AS DECIMAL(23, 3))",
    "CAST(`price` * CAST(`small` AS DECIMAL(3, 0)) AS DECIMAL(11, 2))",
    "GET(SPLIT(`region`, CONCAT('\\\\Q', 'u', '\\\\E')), 1)",
    "GET(SPLIT(`odd ``name`, CONCAT('\\\\Q', 'é', '\\\\E')), 0)",
    "REGEXP_EXTRACT(`region`, '(e|t)(.)', 2)", "REGEXP_EXTRACT(`region`, 's', 0)",
    "CAST(NULL AS STRING)", "CAST(NULL AS DECIMAL(5, 2))", "CAST(NULL AS TIMESTAMP_NTZ)", "CAST(NULL AS TIMESTAMP)",
    "CASE `id` WHEN 1 THEN `ok` WHEN -5 THEN FALSE END", "CASE `region` WHEN 'eu' THEN 1 ELSE 3 END",
    "CAST(CAST(NULL AS INT) AS BIGINT)", "CASE WHEN `ok` THEN CAST(NULL AS BIGINT) ELSE `id` END",
    "CASE WHEN `place` IS NULL THEN 'none' WHEN `ok` THEN `place`.`city` ELSE `region` END",
]  # fmt: skip
UNSURE = [
    "`ratio` = 1", "`region` = 1", "`id` = '1'", "`ok` = 1",
    "`region` = 'a\\u0041'", "LOWER(`id`) = '1'",
    "`id` / 2 = 1",
    "`ratio` + 1 = 1", "`price` * 2 = 1", "`id` + CAST(1 AS STRING) = 2",
    "CAST(`ratio` AS INT) = 1", "TRY_CAST(`id` AS INT) = 1", "CAST(`region` AS BINARY) = 1",
    "TRY_CAST(`region` AS INT) = 1",
    "`id` IN (1, 2)",
    "`other` = 1", "`region` AND `ok`", "`at` > '2024-01-01'",
    "`id` = 9223372036854775808", "region.name = 'x'", "NOT `id`", "`id`", "'true'", "`place`.`City` = 'eu'",
    "`place`.`other` = 'eu'", "`place` = `place`", "CASE WHEN `ok` THEN 1 ELSE 'a' END = 1",
    "CASE WHEN `id` THEN `ok` END", "CASE WHEN `ok` THEN NULL END",
    "CASE WHEN `ok` THEN `small` ELSE `id` END = 1",
"REGEXP_LIKE(`region`, `region`)",
    "REGEXP_LIKE(`region`, 't$')", "REGEXP_LIKE(`id`, '1')",
]  # fmt: skip


def test_conditions_hold_for_the_same_rows(spark: SparkSession) -> None:
    answers = _frame(spark).selectExpr(*[f"COALESCE({text}, FALSE)" for text in SAME]).collect()
    for place, text in enumerate(SAME):
        native = native_condition(text, TYPES)
        assert native is not None, text
        found = pc.fill_null(evaluate(native, _table()), False).to_pylist()
        assert found == [row[place] for row in answers], text


@pytest.mark.parametrize("chunks", [1, 2])
def test_values_are_those_that_spark_computes(spark: SparkSession, chunks: int) -> None:
    rows = _frame(spark).selectExpr(*[f"{text} AS v{place}" for place, text in enumerate(VALUES)]).toArrow()
    table = _table()
    table = pa.concat_tables([table.slice(0, 2), table.slice(2)]) if chunks == 2 else table
    for place, text in enumerate(VALUES):
        native = native_form(text, TYPES)
        assert native is not None, text
        kind = type_of(native, TYPES)
        assert kind is not None, text
        found = evaluate(native, table)
        assert found.type == arrow_type(kind), text
        assert repr(found.to_pylist()) == repr(rows.column(place).to_pylist()), text


def _table() -> pa.Table:
    columns = zip(zip(*ROWS, strict=True), TYPES.items(), strict=True)
    return pa.table({name: pa.array(values, arrow_type(kind)) for values, (name, kind) in columns})


def _frame(spark: SparkSession) -> DataFrame:
    ddl = ", ".join(f"`{name.replace('`', '``')}` {spark_type(kind)}" for name, kind in TYPES.items())
    return spark.createDataFrame(ROWS, ddl)


@pytest.mark.parametrize("text", UNSURE)
def test_what_is_not_sure_to_be_the_same_has_no_form(text: str) -> None:
    assert native_condition(text, TYPES) is None


@pytest.mark.parametrize(("text", "native"), [("`id`", ("column", "id")), ("NULL", None), ("ABS(`region`)", None)])
def test_columns_have_a_form(text: str, native: object) -> None:
    assert native_form(text, TYPES) == native
