from __future__ import annotations

import pytest

from upsert_platform.core.types import parse_type
from upsert_platform.sql.compatibility import can_write, keeps_apart


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        ("INT", "BIGINT", True),
        ("BIGINT", "INT", False),
        ("BIGINT", "DOUBLE", True),
        ("DOUBLE", "FLOAT", False),
        ("DECIMAL(10, 2)", "DECIMAL(5, 1)", True),
        ("DOUBLE", "DECIMAL(5, 1)", True),
        ("DECIMAL(10, 2)", "INT", False),
        ("VARCHAR(3)", "STRING", True),
        ("STRING", "VARCHAR(3)", True),
        ("STRING", "CHAR(3)", False),
        ("INT", "STRING", False),
        ("STRING", "INT", False),
        ("BOOLEAN", "STRING", False),
        ("STRING", "BYTES", False),
        ("BINARY(2)", "BYTES", True),
        ("TIMESTAMP(6)", "TIMESTAMP(3)", True),
        ("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", True),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP(3)", True),
        ("TIMESTAMP(3)", "DATE", True),
        ("DATE", "TIMESTAMP(3)", False),
        ("STRING", "TIMESTAMP(3)", False),
        ("INT NOT NULL", "INT", True),
        ("INT", "INT NOT NULL", True),
        ("ARRAY<INT>", "ARRAY<BIGINT>", True),
        ("ARRAY<BIGINT>", "ARRAY<INT>", False),
        ("MAP<STRING, INT>", "MAP<STRING, DOUBLE>", True),
        ("MAP<STRING, INT>", "MAP<INT, INT>", False),
        ("ROW<a INT, b STRING>", "ROW<x BIGINT, y STRING>", True),
        ("ROW<a INT>", "ROW<a INT, b STRING>", False),
        ("MULTISET<INT>", "MAP<INT, INT>", False),
    ],
)
def test_implicit_casts_of_flink(source: str, target: str, allowed: bool) -> None:
    assert can_write(parse_type(source), parse_type(target)) is allowed


@pytest.mark.parametrize(
    ("source", "target", "kept"),
    [
        ("INT", "BIGINT", True),
        ("INT NOT NULL", "INT", True),
        ("SMALLINT", "DECIMAL(7, 2)", True),
        ("BIGINT", "DECIMAL(10, 0)", False),
        ("DECIMAL(10, 4)", "DECIMAL(12, 5)", True),
        ("DECIMAL(10, 4)", "DECIMAL(10, 2)", False),
        ("DECIMAL(10, 4)", "DECIMAL(10, 5)", False),
        ("DOUBLE", "DECIMAL(38, 18)", False),
        ("INT", "DOUBLE", True),
        ("BIGINT", "DOUBLE", False),
        ("INT", "FLOAT", False),
        ("FLOAT", "DOUBLE", True),
        ("DECIMAL(10, 4)", "DOUBLE", False),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", True),
        ("TIMESTAMP(6)", "TIMESTAMP(0)", False),
        ("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", True),
        ("TIMESTAMP(3)", "DATE", False),
        ("TIMESTAMP(3)", "TIME(3)", False),
        ("STRING", "VARCHAR(3)", True),
        ("CHAR(2)", "CHAR(3)", True),
        ("CHAR(3)", "CHAR(2)", False),
        ("BOOLEAN", "BOOLEAN", True),
        ("INT", "STRING", False),
        ("ROW<a BIGINT, b STRING>", "ROW<a BIGINT, b STRING>", True),
        ("ROW<a TIMESTAMP(3)>", "ROW<a DATE>", False),
        ("ARRAY<DOUBLE>", "ARRAY<DECIMAL(38, 18)>", False),
    ],
)
def test_different_keys_stay_different(source: str, target: str, kept: bool) -> None:
    assert keeps_apart(parse_type(source), parse_type(target)) is kept
