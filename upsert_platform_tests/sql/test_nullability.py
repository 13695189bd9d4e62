"""A type that is NOT NULL is never that of a null: of every function, over values and nulls of every kind."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import pytest

from upsert_platform.core.types import LogicalType, TypeName, parse_type, quote_name, spark_type
from upsert_platform.sql.evaluation import flink_sql
from upsert_platform.sql.expressions import Scope, render
from upsert_platform.sql.flink import parse_query
from upsert_platform.sql.functions import _CATALOGUE
from upsert_platform.sql.functions.signatures import ANY
from upsert_platform.sql.lexer import tokenize
from upsert_platform.sql.reader import Fault
from upsert_platform.sql.rendered import Rendered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

COLUMNS: Final = {
    "i": ("INT NOT NULL", ["1", "-7", "3000"]),
    "n": ("INT", ["NULL", "2", "NULL"]),
    "s": ("STRING NOT NULL", ["'a,b'", "''", "'2024-02-30'"]),
    "z": ("STRING", ["NULL", "'a'", "NULL"]),
    "d": ("DATE NOT NULL", ["'2024-02-29'", "'1969-12-31'", "'2000-01-01'"]),
    "ts": ("TIMESTAMP(3) NOT NULL", ["'2024-02-29 10:20:30.456'", "'1969-12-31 23:59:59'", "'2000-01-01 00:00:00'"]),
    "x": ("DECIMAL(10, 2) NOT NULL", ["1.25", "-3", "99999999.99"]),
    "f": ("DOUBLE NOT NULL", ["1.5", "'NaN'", "-1e300"]),
    "b": ("BOOLEAN NOT NULL", ["TRUE", "FALSE", "TRUE"]),
    "arr": ("ARRAY<INT NOT NULL> NOT NULL", ["ARRAY(1, 2)", "ARRAY()", "ARRAY(3)"]),
    "brr": ("ARRAY<INT>", ["ARRAY(NULL, 1)", "NULL", "ARRAY(NULL)"]),
    "m": ("MAP<STRING NOT NULL, INT NOT NULL> NOT NULL", ["MAP('a', 1)", "MAP()", "MAP('k', 5)"]),
    "r": ("ROW<a INT NOT NULL, c STRING> NOT NULL", ["NAMED_STRUCT('a', 1, 'c', NULL)"] * 3),
    "q": ("ROW<a INT NOT NULL, c STRING>", ["NAMED_STRUCT('a', 1, 'c', 'x')", "NULL", "NULL"]),
}  # fmt: skip
"""Name to type, and its values in Spark SQL."""
FORMS: Final = (
    "r.a", "q.a", "q.c", "ROW(i, n).`EXPR$0`", "ROW(i, n).`EXPR$1`", "arr[1]", "arr[i]", "arr[n]", "m['a']", "m[s]",
    "m[z]", "ELEMENT(arr)", "-i", "-n", "(i)", "d + INTERVAL '1' DAY", "ts - INTERVAL '2' HOUR",
    "TIMESTAMPADD(DAY, 1, d)", "TIMESTAMPADD(DAY, n, d)", "TIMESTAMPADD(HOUR, n, ts)", "FLOOR(d TO MONTH)",
    "CEIL(ts TO DAY)", "CASE WHEN b THEN i END", "CASE WHEN b THEN i ELSE 2 END", "TRY_CAST(s AS INT)",
    "CAST(n AS BIGINT)", "TRY_CAST(i AS BIGINT)", "JSON_VALUE(s, '$.a' RETURNING INT)",
    "ARRAY[i, n][1]", "ARRAY[i, NULL]", "ARRAY[i, 2]", "MAP['a', i]", "MAP['a', arr]", "MAP['a', q]",
    "MAP['a', n]['a']", "EXTRACT(DAY FROM ts)",
    "i BETWEEN 1 AND n", "s LIKE z", "b AND NULL", "i IN (1, n)", "s IS JSON", "n IS NULL", "TRIM(s)", "s || z",
    "SUBSTRING(s FROM 1 FOR n)", "POSITION(z IN s)", "OVERLAY(s PLACING z FROM 1)", "CURRENT_DATE",
)  # fmt: skip


OF_MAPS: Final = ("CARDINALITY", "COALESCE", "IFNULL", "IF", "ROW", "ARRAY", "MAP_KEYS", "MAP_VALUES", "MAP_ENTRIES")


def _claims(kind: LogicalType | None) -> bool:
    """Whether a type says NOT NULL anywhere."""
    if kind is None:
        return False
    inner = (kind.element, kind.key, *(field.type for field in kind.fields))
    return not kind.nullable or any(_claims(part) for part in inner)


def _broken(kind: LogicalType | None, value: Any) -> bool:
    """Whether a null stands in a value where its type says NOT NULL."""
    if kind is None or value is None:
        return kind is not None and not kind.nullable
    match kind.name:
        case TypeName.ARRAY:
            return any(_broken(kind.element, item) for item in value)
        case TypeName.MAP:
            return any(_broken(kind.key, key) or _broken(kind.element, item) for key, item in value.items())
        case TypeName.ROW:
            return any(_broken(field.type, item) for field, item in zip(kind.fields, value, strict=True))
    return False


def _rendered(expression: str) -> Rendered | None:
    tokens, problems = tokenize(expression, "f")
    assert problems == []
    columns = {
        name: Rendered(quote_name(name), parse_type(kind), simple=True, column=name)
        for name, (kind, _) in COLUMNS.items()
    }
    try:
        return render(parse_query(tuple(tokens), "expression"), Scope(columns), 1)
    except Fault:
        return None


def _calls() -> list[str]:
    """Calls of every function with columns of every type that it takes."""
    rng = random.Random(1)
    found = []
    for name, overloads in _CATALOGUE.items():
        if name == "MAP":  # Python has no maps with keys of every type.
            continue
        # Spark does not compare maps.
        given = [item for item in (*COLUMNS, "NULL", "1", "'a'") if item != "m" or name in OF_MAPS]
        for count in sorted({2 if count == ANY else count for count in overloads}):
            several = [tuple(rng.choices(given, k=count)) for _ in range(60)]
            found += [f"{name}({', '.join(item)})" for item in (zip(given) if count == 1 else several)]
    return list(dict.fromkeys(found))


def test_a_value_of_a_type_that_is_not_null_is_never_null(spark: SparkSession) -> None:
    known = {text: value for text in (*FORMS, *_calls()) if (value := _rendered(text)) is not None}
    assert len(known) > 500
    claiming = [(text, value) for text, value in known.items() if _claims(value.type)]
    assert len(claiming) > 20
    rows = []
    for at in range(3):
        values = (f"CAST({values[at]} AS {spark_type(parse_type(kind))}) AS `{name}`"
                  for name, (kind, values) in COLUMNS.items())  # fmt: skip
        rows.append(f"SELECT {', '.join(values)}")
    selected = ", ".join(
        f"{value.sql} AS `{at}`, {value.fails or 'NULL'} AS `f{at}`" for at, (_, value) in enumerate(claiming)
    )
    found = flink_sql(spark, f"SELECT {selected} FROM ({' UNION ALL '.join(rows)})").collect()
    broken = {
        f"{text}: {value.type}"
        for at, (text, value) in enumerate(claiming)
        for row in found
        if row[f"f{at}"] is None and _broken(value.type, row[str(at)])
    }
    assert broken == set()
