"""Rows of a table whose columns are wider by now than those of its changelog."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from upsert_platform.core.errors import ReplicationError, SourceLocation
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.types import parse_type
from upsert_platform.mysql.landing import Landing


def landing(kind: str) -> Landing:
    columns = (Column("id", parse_type("INT NOT NULL")), Column("v", parse_type(kind)))
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
