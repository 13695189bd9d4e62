"""Rows of a table whose columns are wider by now than those of its changelog."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from upsert_platform.core.errors import ReplicationError, SourceLocation
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.types import parse_type
from upsert_platform.mysql.binlog.changes import TableRows
from upsert_platform.mysql.binlog.gather import Cells
from upsert_platform.mysql.binlog.numbers import integers
from upsert_platform.mysql.columns import MySqlColumn, MySqlTable, TypeRules
from upsert_platform.mysql.landing import Landing
from upsert_platform.mysql.text_values import text_reader


def landing(kind: str, key: str = "INT") -> Landing:
    columns = (Column("id", parse_type(f"{key} NOT NULL")), Column("v", parse_type(kind)))
    return Landing(Table("t", columns, ("id",), Options({}), SourceLocation("t.sql", 1)), "shop.t")


def rows(values: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(len(values)), pa.int32()), values], names=["id", "v"])


@pytest.mark.parametrize(
    ("kind", "fitting", "larger"),
    [
        ("INT", pa.array([2**31 - 1, None, -(2**31)], pa.int64()), pa.array([2**31], pa.int64())),
        ("INT", pa.array([Decimal(7), None], pa.decimal128(20, 0)), pa.array([Decimal(2**31)], pa.decimal128(20, 0))),
        (
            "BIGINT",
            pa.array([Decimal(2**63 - 1)], pa.decimal128(20, 0)),
            pa.array([Decimal(2**63)], pa.decimal128(20, 0)),
        ),
        (
            "DECIMAL(8, 2)",
            pa.array([Decimal("999999.99"), None], pa.decimal128(12, 2)),
            pa.array([Decimal("1000000.00")], pa.decimal128(12, 2)),
        ),
        ("BIGINT", pa.array([1, None], pa.int32()), None),
    ],
)
def test_values_that_fit_go_on_and_the_first_other_one_stops(kind: str, fitting: pa.Array, larger: pa.Array) -> None:
    target = landing(kind)
    found = target.snapshot(rows(fitting), offset=4, first=0)
    assert found.column("v").to_pylist() == [None if value is None else value for value in fitting.to_pylist()]
    assert found.schema.field("v").type == target.schema.field("v").type
    if larger is not None:
        with pytest.raises(ReplicationError, match=r"table shop\.t: column 'v' holds .* does not hold its values"):
            target.snapshot(rows(larger), offset=4, first=0)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("BOOLEAN", [False, True, True, None]),
        ("TINYINT", [0, 1, 7, None]),
        ("BIGINT", [0, 1, 7, None]),
        ("STRING", ["0", "1", "7", None]),
    ],
)
def test_a_small_number_is_what_its_column_is_declared_as(kind: str, values: list[object]) -> None:
    """Of a snapshot, whose texts are read, and of the log."""
    column = MySqlColumn("v", "tinyint", "tinyint(1)", length=1)
    texts = text_reader(column, TypeRules(), table="shop.t").read(pa.array(["0", "1", "7", None]))
    assert landing(kind).snapshot(rows(texts), offset=4, first=0).column("v").to_pylist() == values
    table = MySqlTable("shop", "t", (MySqlColumn("id", "int"), column), ("id",))
    logged = integers(
        Cells(np.array([0, 1, 7, 0], np.uint8), np.arange(4), np.ones(4, np.int64), np.array([True] * 3 + [False])),
        texts.type,
        width=1,
        signed=True,
    )
    told = TableRows(table, ("+I",) * 4, (0,) * 4, (1, 2, 3, 4), rows(logged))
    assert landing(kind).changes(told, start=4)[0].column("v").to_pylist() == values


def test_a_key_of_numbers_that_is_declared_as_a_boolean_is_refused() -> None:
    keys = pa.RecordBatch.from_arrays([pa.array([1, 2], pa.int8()), pa.array([0, 0])], names=["id", "v"])
    with pytest.raises(ReplicationError, match=r"key column 'id' holds numbers .* declare it as TINYINT"):
        landing("BIGINT", key="BOOLEAN").snapshot(keys, offset=4, first=0)
    bits = keys.set_column(0, "id", pa.array([False, True]))
    assert landing("BIGINT", key="BOOLEAN").snapshot(bits, offset=4, first=0).num_rows == 2
    assert landing("BIGINT", key="TINYINT").snapshot(keys, offset=4, first=0).column("id").to_pylist() == [1, 2]
