"""Texts that are known to be values of a type before anything runs."""

from __future__ import annotations

import pytest

from upsert_platform.core.types import parse_type
from upsert_platform.sql.constants import is_value
from upsert_platform_tests.sql.reading import errors, read

TABLES = """
CREATE TABLE users (id INT, ts TIMESTAMP(3), PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka');
CREATE TABLE t (n BIGINT, v {}, PRIMARY KEY (n) NOT ENFORCED) WITH ('connector' = 'tablestore');
"""


@pytest.mark.parametrize(
    ("text", "kind", "known"),
    [
        ("2024-02-29", "DATE", True), ("2023-02-29", "DATE", False), ("2024-2-9", "DATE", False),
        ("2024-02-29 10:11:12", "TIMESTAMP(3)", True), ("2024-02-29", "TIMESTAMP(3)", True),
        ("2024-02-29 10:11:12.123", "TIMESTAMP_LTZ(3)", True), ("2024-02-29 10:61:12", "TIMESTAMP(3)", False),
        ("2024-02-29T10:11:12", "TIMESTAMP(3)", False), ("10:11:12", "TIME(0)", True), ("24:00:00", "TIME(0)", False),
        ("127", "TINYINT", True), ("128", "TINYINT", False), ("-2147483648", "INT", True), ("1.0", "INT", False),
        (" 5 ", "INT", False), ("9223372036854775808", "BIGINT", False), ("99.9", "DECIMAL(5, 2)", True),
        ("1000", "DECIMAL(5, 2)", False), ("1e3", "DOUBLE", False), ("-1.5", "DOUBLE", True), ("true", "BOOLEAN", True),
        ("yes", "BOOLEAN", False), ("x", "FLOAT", False),
    ],
)  # fmt: skip
def test_a_text_is_known_to_be_a_value_where_it_surely_is(text: str, kind: str, known: bool) -> None:
    assert is_value(text, parse_type(kind)) is known


@pytest.mark.parametrize(("text", "fits"), [("2024-02-29", True), ("2024-02-30", False)])
def test_a_cast_of_a_literal_cannot_fail_for_a_row(text: str, fits: bool) -> None:
    query = f"SELECT COUNT(*), CAST('{text}' AS DATE) FROM users WHERE ts > CAST('{text}' AS TIMESTAMP(3))"
    _, problems = read(f"{TABLES.format('DATE')}INSERT INTO t {query};")
    assert errors(problems) == [] if fits else "can fail for a row" in errors(problems)[0]
