"""The type table (section 1.7), the Arrow types of the wire, and what a table's column may be instead."""

from __future__ import annotations

import pyarrow as pa
import pytest

from upsert_platform.core.types import parse_type
from upsert_platform.maxcompute.types import (
    MaxComputeType,
    UnsupportedTypeError,
    maxcompute_type,
    parse_maxcompute_type,
    partition_type,
    stores,
    wire_type,
)

TABLE = [
    ("CHAR(20)", "CHAR(20)", pa.string()),
    ("VARCHAR(30)", "VARCHAR(30)", pa.string()),
    ("VARCHAR(65535)", "VARCHAR(65535)", pa.string()),
    ("VARCHAR(2147483647)", "STRING", pa.string()),
    ("STRING", "STRING", pa.string()),
    ("BOOLEAN", "BOOLEAN", pa.bool_()),
    ("TINYINT", "TINYINT", pa.int8()),
    ("SMALLINT", "SMALLINT", pa.int16()),
    ("INT", "INT", pa.int32()),
    ("BIGINT", "BIGINT", pa.int64()),
    ("FLOAT", "FLOAT", pa.float32()),
    ("DOUBLE", "DOUBLE", pa.float64()),
    ("DECIMAL(10, 2)", "DECIMAL(10,2)", pa.decimal128(10, 2)),
    ("DECIMAL(10, 0)", "DECIMAL(10,0)", pa.decimal128(10, 0)),
    ("DECIMAL(38, 18)", "DECIMAL(38,18)", pa.decimal128(38, 18)),
    ("DATE", "DATE", pa.date32()),
    ("TIME", "STRING", pa.string()),
    ("TIMESTAMP(0)", "DATETIME", pa.timestamp("ms")),
    ("TIMESTAMP(3)", "DATETIME", pa.timestamp("ms")),
    ("TIMESTAMP_LTZ(3)", "DATETIME", pa.timestamp("ms")),
    ("TIMESTAMP(4)", "TIMESTAMP", pa.timestamp("ns")),
    ("TIMESTAMP", "TIMESTAMP", pa.timestamp("ns")),
    ("TIMESTAMP(9)", "TIMESTAMP", pa.timestamp("ns")),
    ("TIMESTAMP_LTZ(9)", "TIMESTAMP", pa.timestamp("ns")),
    ("BYTES", "BINARY", pa.binary()),
    ("VARBINARY(8)", "BINARY", pa.binary()),
    ("ARRAY<INT>", "ARRAY<INT>", pa.list_(pa.int32())),
    ("MAP<STRING, BIGINT>", "MAP<STRING,BIGINT>", pa.map_(pa.string(), pa.int64())),
    ("MULTISET<STRING>", "MAP<STRING,INT>", pa.map_(pa.string(), pa.int32())),
    (
        "ROW<a INT, b ARRAY<STRING>>",
        "STRUCT<`a`:INT,`b`:ARRAY<STRING>>",
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
    ),
]


@pytest.mark.parametrize(("declared", "text", "wire"), TABLE, ids=[row[0] for row in TABLE])
def test_1_7_declared_type_to_maxcompute_and_arrow(declared: str, text: str, wire: pa.DataType) -> None:
    kind = maxcompute_type(parse_type(declared))
    assert str(kind) == text
    assert wire_type(kind) == wire
    assert parse_maxcompute_type(text) == kind
    assert parse_maxcompute_type(text.lower()) == kind
    assert stores(kind, kind, parse_type(declared))


@pytest.mark.parametrize("declared", ["CHAR(256)", "DECIMAL(38, 19)", "ROW<>", "ARRAY<CHAR(300)>"])
def test_1_7_types_that_maxcompute_lacks(declared: str) -> None:
    with pytest.raises(UnsupportedTypeError):
        maxcompute_type(parse_type(declared))


@pytest.mark.parametrize(
    ("declared", "text"),
    [("STRING", "STRING"), ("VARCHAR(8)", "STRING"), ("INT", "INT"), ("BIGINT", "BIGINT"), ("DATE", "STRING")],
)
def test_1_2_partition_columns(declared: str, text: str) -> None:
    assert str(partition_type(parse_type(declared))) == text


@pytest.mark.parametrize("declared", ["DOUBLE", "TIMESTAMP(3)", "ARRAY<INT>", "BOOLEAN", "DECIMAL(4, 0)"])
def test_1_2_partition_columns_of_other_types_are_refused(declared: str) -> None:
    with pytest.raises(UnsupportedTypeError):
        partition_type(parse_type(declared))


@pytest.mark.parametrize(
    ("declared", "actual", "fits"),
    [
        ("CHAR(5)", "STRING", True),
        ("CHAR(5)", "VARCHAR(5)", False),
        ("VARCHAR(5)", "VARCHAR(9)", True),
        ("VARCHAR(5)", "VARCHAR(4)", False),
        ("VARCHAR(5)", "STRING", True),
        ("STRING", "VARCHAR(5)", False),
        ("TIMESTAMP(3)", "TIMESTAMP", True),
        ("TIMESTAMP(3)", "TIMESTAMP_NTZ", True),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP_NTZ", False),
        ("TIMESTAMP", "DATETIME", False),
        ("DECIMAL(10, 2)", "DECIMAL(12,2)", True),
        ("DECIMAL(10, 2)", "DECIMAL(12,3)", False),
        ("DECIMAL(10, 2)", "DECIMAL(9,2)", False),
        ("INT", "BIGINT", False),
        ("ROW<a CHAR(3)>", "STRUCT<a:STRING>", True),
        ("ROW<a INT>", "STRUCT<b:INT>", False),
        ("ROW<a INT>", "STRUCT<a:INT,b:INT>", False),
        ("ARRAY<VARCHAR(3)>", "ARRAY<VARCHAR(4)>", True),
        ("MAP<STRING, INT>", "MAP<STRING,BIGINT>", False),
    ],
)
def test_a_column_may_be_wider_but_never_lossy(declared: str, actual: str, fits: bool) -> None:
    logical = parse_type(declared)
    assert stores(parse_maxcompute_type(actual), maxcompute_type(logical), logical) is fits


def test_decimal_without_precision_is_38_18() -> None:
    assert parse_maxcompute_type("decimal") == MaxComputeType("DECIMAL", precision=38, scale=18)


@pytest.mark.parametrize("text", ["", "ARRAY<", "MAP<INT>", "DECIMAL(", "INT)", "STRUCT<a>"])
def test_texts_that_are_no_type(text: str) -> None:
    with pytest.raises(ValueError, match="is not a MaxCompute type"):
        parse_maxcompute_type(text)
