"""Conditions that Arrow evaluates: the rows that Spark finds, and nothing that is not sure to be the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from upsert_platform.core.types import arrow_type, parse_type, spark_type
from upsert_platform.engine.steps import evaluate
from upsert_platform.sql.native import native_condition, native_form

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = {name: parse_type(kind) for name, kind in {
    "id": "BIGINT", "small": "TINYINT", "region": "STRING", "odd `name": "STRING", "ok": "BOOLEAN",
    "price": "DECIMAL(8, 2)",
    "ratio": "DOUBLE", "at": "TIMESTAMP(3)",
}.items()}  # fmt: skip
ROWS = [
    (1, 1, "eu", "a", True, None, None, None),
    (2, -3, "test", None, False, None, None, None),
    (3, None, None, "b", None, None, None, None),
    (None, 127, "", "tést", True, None, None, None),
    (-5, 0, "eu ", "Z", False, None, None, None),
]
SAME = [
    "`region` <> 'test'", "`region` = ''", "`region` < 'eu '", "`odd ``name` >= 'b'", "`id` > 1", "`small` <= 1",
    "`id` = `small`", "2 < `id`", "`ok`", "NOT `ok`", "`ok` = TRUE", "`region` IS NULL", "NOT (`region` IS NULL)",
    "(`id` > 1) AND `ok`", "(`region` = 'eu') OR (`id` = 2)", "NOT ((`region` = 'eu') OR (`id` = 2))",
    "`odd ``name` = 'tést'",
]  # fmt: skip
UNSURE = [
    "`price` > 1", "`ratio` = 1", "`region` = 1", "`id` = '1'", "`ok` = 1", "UPPER(`region`) = 'EU'",
    "`region` LIKE 'e%'",
    "`region` = 'a\\\\b'", "`id` + 1 = 2", "`id` IN (1, 2)", "CAST(`id` AS STRING) = '1'", "`other` = 1",
    "`region` AND `ok`",
    "`at` > '2024-01-01'", "`id` = 9223372036854775808", "region.name = 'x'", "NOT `id`", "`id`", "'true'",
]  # fmt: skip


def test_conditions_hold_for_the_same_rows(spark: SparkSession) -> None:
    schema = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in TYPES.items()])
    table = pa.table([pa.array(values) for values in zip(*ROWS, strict=True)], names=list(TYPES)).cast(schema)
    ddl = ", ".join(f"`{name.replace('`', '``')}` {spark_type(kind)}" for name, kind in TYPES.items())
    answers = spark.createDataFrame(ROWS, ddl).selectExpr(*[f"COALESCE({text}, FALSE)" for text in SAME]).collect()
    for place, text in enumerate(SAME):
        native = native_condition(text, TYPES)
        assert native is not None, text
        found = pc.fill_null(evaluate(native, table), False).to_pylist()
        assert found == [row[place] for row in answers], text


@pytest.mark.parametrize("text", UNSURE)
def test_what_is_not_sure_to_be_the_same_has_no_form(text: str) -> None:
    assert native_condition(text, TYPES) is None


@pytest.mark.parametrize(("text", "native"), [("`id`", ("column", "id")), ("NULL", None), ("ABS(`id`)", None)])
def test_columns_have_a_form(text: str, native: object) -> None:
    assert native_form(text, TYPES) == native
