"""Patterns that Arrow reads as Spark does, over many made at random; and what has no form."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from upsert_platform.core.types import parse_type
from upsert_platform.engine.steps import evaluate
from upsert_platform.sql.arithmetic import arithmetic
from upsert_platform.sql.casts import cast
from upsert_platform.sql.native import native_form
from upsert_platform.sql.native_patterns import re2_pattern
from upsert_platform.sql.rendered import Rendered, quote_text
from upsert_platform_tests.sql.declared_columns import spark_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = {"s": parse_type("STRING")}
SIGNS = "ab&=_-1 .\n\r\u0085\u2028é中😀^$|()\\t\x0b"
UNLIKE = [
    "a$",
    "(a|b)*",
    "(a)+",
    "(?i)a",
    "(?=a)",
    "a*+",
    "a++",
    "a?+",
    r"\bab",
    r"\1",
    r"(a)\1",
    "[[a]]",
    "[a&&b]",
    r"\p{L}",
    r"\Qa\E",
    "[^]",
    "[]a]",
    "a)",
    "(a",
    "[a",
    "*a",
    "a|*b",
    "^*",
    "^+",
    "[a-é]",
    "[+--]",
    r"[\W]",
    r"\D",
    "a{2}{3}",
    "a{1001}",
    "a{2,1}",
    "a{\u0663}",
    ".{0,200}.{1}",
    "(" * 31 + ")" * 31,
    "{",
    "a}",
    "]",
    "[b-a]",
    "\\",
    r"[a-\w]",
    "[a^b]",
    r"(?<n>a)",
    r"\u0041",
    "a**",
]
"""Patterns that RE2 would read otherwise, or that nobody looked at."""


def random_pattern(chance: random.Random, depth: int = 0) -> str:
    parts = []
    for _ in range(chance.randint(1, 4)):
        kind = chance.random()
        if kind < 0.2 and depth < 3:
            parts.append(f"({chance.choice(['', '?:'])}{random_pattern(chance, depth + 1)})")
            continue
        if kind < 0.3:
            parts.append("^")
            continue
        item = chance.choice(
            ["a", "b", "&", "=", ".", r"\d", r"\w", r"\s", r"\.", "[$]", "é", "中", "[^&]", "[a-b1]", r"[\s=]", "[a-]",
             r"[^\d]", "[=&]"]
        )  # fmt: skip
        parts.append(item + chance.choice(["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,1}?"]))
    found = "".join(parts)
    return f"{found}|{random_pattern(chance, depth + 1)}" if chance.random() < 0.2 and depth < 2 else found


def random_text(chance: random.Random) -> str:
    return "".join(chance.choice(SIGNS) for _ in range(chance.randint(0, 8)))


def test_groups_of_patterns_are_those_that_spark_finds(spark: SparkSession) -> None:
    chance = random.Random(11)
    texts = [None, "", *(random_text(chance) for _ in range(300))]
    table = pa.table({"s": pa.chunked_array([pa.array(texts[:100]), pa.array(texts[100:], pa.string())])})
    asked = []
    for _ in range(220):
        pattern = random_pattern(chance)
        groups = pattern.count("(") - pattern.count("(?:")
        for group in range(groups + 1):
            asked.append(f"REGEXP_EXTRACT(`s`, {quote_text(pattern)}, {group})")
        asked.append(f"REGEXP_LIKE(`s`, {quote_text(pattern)})")
    frame = spark.createDataFrame(pa.table({"s": texts}))
    for begin in range(0, len(asked), 150):
        some = asked[begin : begin + 150]
        expected = frame.selectExpr(*[f"{text} AS v{place}" for place, text in enumerate(some)]).toArrow()
        for place, text in enumerate(some):
            native = native_form(text, TYPES)
            assert native is not None, text
            assert evaluate(native, table).to_pylist() == expected.column(place).to_pylist(), text


@pytest.mark.parametrize("pattern", UNLIKE)
def test_a_pattern_with_a_sign_that_may_mean_another_has_no_form(pattern: str) -> None:
    assert re2_pattern(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "group", "always"),
    [
        ("(a)(b)", 2, True), ("(a)|b", 1, False), ("(?:x|(a))", 1, False), ("(a|b)c", 1, True), ("a(b(c|d)e)", 2, True),
        ("a(b(c)|d)", 2, False), ("(&|^)id=([^&]*)", 2, True), ("(a)", 0, True), ("((a)|b)|c", 1, False),
    ],
)  # fmt: skip
def test_a_group_beside_an_alternative_may_take_no_part(pattern: str, group: int, always: bool) -> None:
    found = re2_pattern(pattern, group)
    assert found is not None
    assert found[1] is always


@pytest.mark.parametrize(
    "expression",
    [
        "REGEXP_EXTRACT(s, '(&|^)a=([^&]*)', 2)", "REGEXP_EXTRACT(s, '(a|b)=([&=]*)', 1)", "REGEXP_EXTRACT(s, 'a(b?)')",
        "SPLIT_INDEX(s, '&', 0)", "SPLIT_INDEX(s, '&', 1)", "SPLIT_INDEX(s, '=&', 1)", "SPLIT_INDEX(s, '.', 2)",
        "SPLIT_INDEX(s, 'é', 1)", "SPLIT_INDEX(s, '^', 1)",
    ],
)  # fmt: skip
def test_functions_as_users_write_them_have_a_form_with_the_same_values(spark: SparkSession, expression: str) -> None:
    text = spark_sql(expression)
    chance = random.Random(5)
    texts = [None, "", "a=&b", "&a=b&", "a==&&", "&", "&&", *(random_text(chance) for _ in range(200))]
    native = native_form(text, TYPES)
    assert native is not None, text
    expected = spark.createDataFrame(pa.table({"s": texts})).selectExpr(f"{text} AS v").toArrow().column(0)
    assert evaluate(native, pa.table({"s": pa.array(texts)}), {}).to_pylist() == expected.to_pylist()


@pytest.mark.parametrize(
    ("left", "right", "column", "fails"),
    [
        ("DECIMAL(4, 3)", "BIGINT", "DECIMAL(23, 3)", False), ("DECIMAL(4, 3)", "BIGINT", "DECIMAL(22, 3)", True),
        ("DECIMAL(4, 3)", "BIGINT", "DECIMAL(22, 2)", True), ("DECIMAL(4, 3)", "BIGINT", "DECIMAL(23, 2)", False),
        # Fraction digits are rounded away, so that 9.99... times itself is 100.
        ("DECIMAL(38, 37)", "DECIMAL(38, 37)", "DECIMAL(38, 36)", True),
        ("DECIMAL(38, 28)", "DECIMAL(38, 28)", "DECIMAL(38, 18)", True),
    ],
)  # fmt: skip
def test_a_product_needs_no_look_where_its_column_has_room(left: str, right: str, column: str, *, fails: bool) -> None:
    sides = [Rendered(name, parse_type(kind), simple=True) for name, kind in (("a", left), ("b", right))]
    assert (cast(arithmetic("*", *sides), parse_type(column), implicit=True).fails is not None) is fails
