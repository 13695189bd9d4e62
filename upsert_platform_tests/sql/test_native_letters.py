"""UPPER, LOWER, INITCAP, REVERSE and padding: what Spark gives, of every character there is and between any others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from upsert_platform.core.types import parse_type
from upsert_platform.engine.steps import evaluate
from upsert_platform.sql.evaluation import flink_sql
from upsert_platform.sql.native import native_form
from upsert_platform_tests.sql.declared_columns import spark_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = {"s": parse_type("STRING")}
EVERY = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
PLACES = ["{}", "a{}Z", "{}Σ", "a{}Σ", "aΣ{}", "aΣ{}b"]
"""Where a character stands: a sigma looks for letters before and behind it, and passes over marks."""
AT_ONCE = 4_000
LETTERS = "aZ1éÉßẞİıΣσς\u0301\u02b0ǅŉﬁ中😀𐐀𐐨'. -\u00ad\u0295\u0897\ua7cb\U00010d50\U00010d70\U00016ea0\U0001df25\n"
FUNCTIONS = [
    "UPPER(s)", "LOWER(s)", "INITCAP(s)", "REVERSE(s)", "LOWER(UPPER(s))",
    "UPPER(LOWER(UPPER(s)))", "LOWER(LOWER(s))",
    "UPPER(INITCAP(s)) || LOWER(s)",
    "LPAD(s, 5, 'ab')", "RPAD(s, 5, 'ab')", "LPAD(s, 0, 'ab')", "RPAD(s, 1, 'é')", "LPAD(s, 9, '😀b')",
    "RPAD(s, 30, 'é😀')", "RPAD(REVERSE(s), 3, ' ')", "LPAD(s, 1000, 'xyz')",
]  # fmt: skip
UNSURE = [
    "LPAD(s, 1001, 'a')", "LPAD(s, CHAR_LENGTH(s), 'a')", "LPAD(s, 3, s)", "LOWER(CONCAT(UPPER(s), s))",
    "UPPER(COALESCE(LOWER(s), s))",
    "RPAD(s, 3, '')", "REPEAT(s, 2)",
]  # fmt: skip


def found_and_wanted(spark: SparkSession, texts: Sequence[str | None], asked: Sequence[str]) -> list[list[object]]:
    """The values of each expression by its form, and by Spark."""
    table = pa.table({"s": pa.array(texts, pa.string()), "_row": pa.array(range(len(texts)), pa.int64())})
    parts = pa.concat_tables([table.slice(0, 2), table.slice(2, 0), table.slice(2)])
    spark.createDataFrame(table).coalesce(1).createOrReplaceTempView("_letters")
    listed = ", ".join(f"{text} AS v{place}" for place, text in enumerate(asked))
    answers = flink_sql(spark, f"SELECT _row, {listed} FROM _letters").toArrow().sort_by("_row")
    found: list[list[object]] = []
    for place, text in enumerate(asked):
        native = native_form(text, TYPES)
        assert native is not None, text
        assert len(evaluate(native, table.slice(0, 0))) == 0
        values, wanted = evaluate(native, parts).to_pylist(), answers.column(f"v{place}").to_pylist()
        found.append([text, values, wanted])
    return found


def test_every_character_has_the_letters_that_spark_knows(spark: SparkSession) -> None:
    lines = [place.replace("{}", sign) for place in PLACES for sign in EVERY]
    texts = ["\n".join(lines[at : at + AT_ONCE]) for at in range(0, len(lines), AT_ONCE)]
    for name, values, wanted in found_and_wanted(spark, texts, ["UPPER(s)", "LOWER(s)"]):
        for at, (one, other) in enumerate(zip(values, wanted, strict=True)):  # type: ignore[call-overload]
            if one != other:
                given = texts[at].split("\n")
                pairs = zip(given, one.split("\n"), other.split("\n"), strict=False)
                pytest.fail(f"{name}: {[pair for pair in pairs if pair[1] != pair[2]][:5]}")


def test_texts_of_any_letters_become_those_that_spark_makes(spark: SparkSession) -> None:
    chance = random.Random(3)
    made = ["".join(chance.choices(LETTERS, k=chance.randint(0, 9))) for _ in range(3_000)]
    texts = [None, "", "HELLO wORLD", "ὈΔΥΣΣΕΎΣ", "a1b2C3", "x" * 40, "x" * 1001, "😀" * 6, *made, None]
    for name, values, wanted in found_and_wanted(spark, texts, [spark_sql(text) for text in FUNCTIONS]):
        assert values == wanted, name


@pytest.mark.parametrize("expression", UNSURE)
def test_what_is_not_sure_to_be_the_same_has_no_form(expression: str) -> None:
    assert native_form(spark_sql(expression), TYPES) is None


@pytest.mark.parametrize(
    "text", ["LPAD(`s`, 5, 'a')", "LPAD(`s`, 5)", "INITCAP(`s`)", "ARRAY_JOIN(SPLIT(`s`, ','), '')"]
)
def test_what_the_platform_does_not_write_has_no_form(text: str) -> None:
    assert native_form(text, TYPES) is None
