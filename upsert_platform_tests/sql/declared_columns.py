"""Columns of every kind, and expressions over them as Spark SQL."""

from __future__ import annotations

from upsert_platform.core.types import parse_type, quote_name
from upsert_platform.sql.expressions import Scope, render
from upsert_platform.sql.flink import parse_query
from upsert_platform.sql.lexer import tokenize
from upsert_platform.sql.rendered import Rendered

# column: Flink type, Spark literal
COLUMNS = {
    "i": ("INT", "7"),
    "big": ("BIGINT", "7000000000"),
    "d": ("DECIMAL(12, 2)", "12.35"),
    "f": ("DOUBLE", "2.5"),
    "s": ("STRING", "'Ab-cd'"),
    "n": ("STRING", "NULL"),
    "b": ("BOOLEAN", "true"),
    "ts": ("TIMESTAMP(3)", "TIMESTAMP_NTZ'2024-02-29 13:14:15.120'"),
    "ts6": ("TIMESTAMP(6)", "TIMESTAMP_NTZ'2024-02-29 13:14:15.123456'"),
    "old": ("TIMESTAMP(6)", "TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'"),
    "ltz": ("TIMESTAMP_LTZ(3)", "TIMESTAMP'2024-02-29 13:14:15.120Z'"),
    "day": ("DATE", "DATE'2024-02-29'"),
    "t": ("TIME(3)", "47655120000L"),
    "js": ("STRING", '\'{"a": {"b": [1, 2]}, "x": "7", "no": "z"}\''),
    "arr": ("ARRAY<INT>", "array(10, 20)"),
    "m": ("MAP<STRING, INT>", "map('k', 1)"),
    "r": ("ROW<a INT, in1 ROW<c STRING>>", "named_struct('a', 5, 'in1', named_struct('c', 'deep'))"),
}


def rendered(expression: str) -> Rendered:
    columns = {
        name: Rendered(quote_name(name), parse_type(kind), simple=True, column=name)
        for name, (kind, _) in COLUMNS.items()
    }
    tokens, problems = tokenize(expression, "f")
    assert problems == []
    return render(parse_query(tuple(tokens), "expression"), Scope(columns), 1)


def spark_sql(expression: str) -> str:
    return rendered(expression).sql
