"""Expressions against what Flink gives for them; `vectors/README.md` tells where the results come from."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from upsert_platform.core.types import parse_type, quote_name, spark_type
from upsert_platform.sql.casts import to_text
from upsert_platform.sql.evaluation import flink_sql
from upsert_platform.sql.expressions import Scope, render
from upsert_platform.sql.flink import parse_query
from upsert_platform.sql.lexer import tokenize
from upsert_platform.sql.reader import Fault
from upsert_platform.sql.rendered import STRING, Rendered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VECTORS: Final = Path(__file__).parent / "vectors"
INPUT: Final = json.loads((VECTORS / "functions_input.json").read_text(encoding="utf-8"))
CASES: Final = [
    json.loads(line) for line in gzip.decompress((VECTORS / "functions.jsonl.gz").read_bytes()).splitlines()
]
TYPES: Final = {name: parse_type(text) for name, text in INPUT["columns"].items()}
AT_ONCE: Final = 60
"""Expressions of one query: Spark compiles a query once, but not one of any length."""
ROOTS: Final = {"STRING": "VARCHAR", "BYTES": "VARBINARY", "TIMESTAMP_LTZ": "LOCALZONEDTIMESTAMP"}

LAST_DIGIT: Final = "Spark computes logarithms by StrictMath, Flink by Math: they differ in the last digit"
DEVIATIONS: Final = {
    "CAST(f AS BIGINT)": "Flink's planner takes the lower 64 bits of 1E20; TRY_CAST, as Java, the greatest BIGINT",
    "CAST(f AS VARCHAR(5))": "Flink's planner leaves the cast out, and the text is longer than its type",
    "EXTRACT(MINUTE FROM dt)": "Flink takes the number of the day for milliseconds; a date has no minutes",
    "SECOND(dt)": "Flink takes the number of the day for milliseconds; a date has no seconds",
    "TO_DATE(s, 'yyyy-MM-dd')": "Flink gives 5471-09-27 for a text that is not a date; null here",
    "LOG10(ABS(d) + 1)": LAST_DIGIT,
    "LN(ABS(e) + 1)": LAST_DIGIT,
    "LOG2(ABS(e) + 1)": LAST_DIGIT,
}
"""Expressions whose value differs on purpose."""


def rendered(expression: str) -> Rendered | Fault:
    """An expression over the columns of the vectors, or why it is refused."""
    tokens, problems = tokenize(expression, "f")
    assert problems == []
    columns = {name: Rendered(quote_name(name), kind, simple=True, column=name) for name, kind in TYPES.items()}
    try:
        return render(parse_query(tuple(tokens), "expression"), Scope(columns), 1)
    except Fault as fault:
        return fault


@pytest.fixture(scope="module")
def outcomes(spark: SparkSession) -> dict[str, tuple[Rendered | Fault, list[Any], list[Any]]]:
    """Expression to what it became, its values as text, and why rows have none."""
    names = ", ".join(f"{quote_name(name)} STRING" for name in TYPES)
    given = spark.createDataFrame([tuple(row) for row in INPUT["rows"]], names).coalesce(1)
    given.createOrReplaceTempView("function_texts")
    typed = ", ".join(
        f"CAST({quote_name(name)} AS {spark_type(kind)}) AS {quote_name(name)}" for name, kind in TYPES.items()
    )
    flink_sql(spark, f"SELECT {typed} FROM function_texts").createOrReplaceTempView("function_rows")
    known = [(case["expr"], rendered(case["expr"])) for case in CASES]
    found: dict[str, tuple[Rendered | Fault, list[Any], list[Any]]] = {
        expression: (value, [], []) for expression, value in known if isinstance(value, Fault)
    }
    evaluated = [(expression, value) for expression, value in known if isinstance(value, Rendered)]
    # Interpreted: compiling hundreds of expressions for ten rows takes half a minute.
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    for start in range(0, len(evaluated), AT_ONCE):
        part = evaluated[start : start + AT_ONCE]
        columns = [
            f"{to_text(value.wrapped, value.type or STRING)} AS v{index}" for index, (_, value) in enumerate(part)
        ]
        columns += [f"{value.fails or 'NULL'} AS f{index}" for index, (_, value) in enumerate(part)]
        rows = flink_sql(spark, f"SELECT {', '.join(columns)} FROM function_rows").collect()
        for index, (expression, value) in enumerate(part):
            found[expression] = (value, [row[f"v{index}"] for row in rows], [row[f"f{index}"] for row in rows])
    for name in ("spark.sql.codegen.factoryMode", "spark.sql.codegen.wholeStage"):
        spark.conf.unset(name)
    return found


def test_expressions_give_what_flink_gives(outcomes: dict[str, tuple[Rendered | Fault, list[Any], list[Any]]]) -> None:
    differing = []
    for case in CASES:
        expression = case["expr"]
        value, values, failures = outcomes[expression]
        if "error" in case:
            right = isinstance(value, Fault) or any(failures)
        else:
            right = isinstance(value, Rendered) and values == case["values"] and not any(failures)
        if right is (expression in DEVIATIONS):
            differing.append((expression, case.get("values", case.get("error")), values or value, failures))
    assert differing == []


def test_types_are_those_of_flink(outcomes: dict[str, tuple[Rendered | Fault, list[Any], list[Any]]]) -> None:
    expected = {case["expr"]: case["type"].removesuffix(" NOT NULL") for case in CASES if "type" in case}
    found = {
        expression: ROOTS.get(value.type.name, str(value.type.name))
        for expression, (value, _, _) in outcomes.items()
        if expression in expected and isinstance(value, Rendered) and value.type is not None
    }
    assert found == expected


def test_deviations_are_few_and_all_there() -> None:
    assert set(DEVIATIONS) <= {case["expr"] for case in CASES}
    assert len(DEVIATIONS) < 0.03 * len(CASES)
