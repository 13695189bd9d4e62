"""PERCENTILE: results of Flink 2.2.1, to the last digit."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest

from upsert_platform.core.plan import Call
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.engine.percentiles import percentiles
from upsert_platform.sql.reader import Fault
from upsert_platform_tests.engine.world import plan_query

DOUBLE = LogicalType(TypeName.DOUBLE)
ARRAY = LogicalType(TypeName.ARRAY, element=DOUBLE)


@pytest.mark.parametrize(
    ("values", "shares", "expected"),
    [
        ([1.0, 2.0, 4.0], [0.5], 2.0),
        ([1.0, 2.0, 4.0, 8.0], [0.3], 1.9),
        ([8.0, 1.0, 4.0, 2.0], [0.0], 1.0),
        ([1.0, 2.0, 4.0, 8.0], [1.0], 8.0),
        ([1.0, 2.0, 4.0, 8.0], [[0.25, 0.5, 0.9]], [1.75, 3.0, 6.800000000000001]),
        (["1.0 2", "2.0 1", "4.0 3", "8.0 1"], [[0.25, 0.5, 0.9]], [1.5, 4.0, 5.600000000000001]),
        (["4.0 3", "1.0 2"], [0.5], 4.0),
        ([1.5, 2.25], [0.5], 1.875),
        ([math.nan, 2.0, 3.0], [0.5], 3.0),
        ([2.0, math.inf, math.inf], [0.75], math.inf),
        (None, [0.5], None),
        ([], [[0.5]], None),
    ],
)
def test_values_are_those_of_flink(values: list[float | str] | None, shares: list[object], expected: object) -> None:
    kind = ARRAY if isinstance(shares[0], list) else DOUBLE
    texts = any(isinstance(value, str) for value in values or [])
    lists = pa.chunked_array([pa.array([values], pa.list_(pa.string() if texts else pa.float64()))])
    found = percentiles(lists, Call("p", "percentile", kind, "x", separator=json.dumps(shares)))
    assert found.to_pylist() == [expected]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("PERCENTILE(amount, 1.5)", "a number from 0 to 1, or ARRAY"),
        ("PERCENTILE(amount, uid)", "a number from 0 to 1, or ARRAY"),
        ("PERCENTILE(amount, ARRAY[0.5, 2])", "a number from 0 to 1, or ARRAY"),
        ("PERCENTILE(kind, 0.5)", "PERCENTILE takes a number, not STRING"),
        ("PERCENTILE(amount)", "PERCENTILE takes a number, a share from 0 to 1 and, if wanted, a frequency"),
        ("PERCENTILE(amount, 0.5, kind)", "the frequency of PERCENTILE is a whole number, not STRING"),
        ("GROUP_ID(uid)", "GROUP_ID takes no argument"),
    ],
)
def test_other_arguments_are_refused_by_name(call: str, reason: str) -> None:
    with pytest.raises(Fault, match=reason):
        plan_query(f"SELECT uid, {call} AS x FROM orders GROUP BY uid")
