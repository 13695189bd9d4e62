"""Every SQL type in cells and back, without loss."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.core.types import LogicalType, TypeName, arrow_type, parse_type
from upsert_platform.tablestore.types import StoredType, from_stored, primary_key_type, stored_type, to_stored

NOON = datetime(2026, 11, 1, 10, 0, 0, 123_456)  # noqa: DTZ001 - TIMESTAMP has no zone

FORMS = [
    ("TINYINT", StoredType.INTEGER, -128, -128),
    ("BIGINT", StoredType.INTEGER, 2**63 - 1, 2**63 - 1),
    ("FLOAT", StoredType.DOUBLE, 1.5, 1.5),
    ("DOUBLE", StoredType.DOUBLE, -0.0, -0.0),
    ("BOOLEAN", StoredType.BOOLEAN, True, True),
    ("BYTES", StoredType.BINARY, b"\x00\xff", b"\x00\xff"),
    ("STRING", StoredType.STRING, "é\u0000", "é\u0000"),
    ("VARCHAR(5)", StoredType.STRING, "", ""),
    ("DECIMAL(10, 2)", StoredType.STRING, Decimal("12.3"), "12.30"),
    ("DECIMAL(38, 18)", StoredType.STRING, Decimal("1E-18"), "0.000000000000000001"),
    ("DECIMAL(38, 0)", StoredType.STRING, Decimal(10) ** 37, "1" + "0" * 37),
    ("DATE", StoredType.STRING, date(2026, 2, 3), "2026-02-03"),
    ("TIME", StoredType.STRING, 36_000_000_000, "10:00:00"),
    ("TIME(3)", StoredType.STRING, 36_000_120_000, "10:00:00.120"),
    ("TIMESTAMP(0)", StoredType.STRING, NOON.replace(microsecond=0), "2026-11-01T10:00:00"),
    ("TIMESTAMP(3)", StoredType.STRING, NOON.replace(microsecond=0), "2026-11-01T10:00:00.000"),
    ("TIMESTAMP", StoredType.STRING, NOON, "2026-11-01T10:00:00.123456"),
    ("TIMESTAMP(9)", StoredType.STRING, NOON, "2026-11-01T10:00:00.123456000"),
    ("TIMESTAMP_LTZ(3)", StoredType.STRING, NOON.replace(microsecond=5000, tzinfo=UTC), "2026-11-01T10:00:00.005Z"),
    ("TIMESTAMP_LTZ(9)", StoredType.STRING, NOON.replace(tzinfo=UTC), "2026-11-01T10:00:00.123456000Z"),
    ("ARRAY<INT>", StoredType.STRING, [1, None, 3], "[1,null,3]"),
    ("MAP<STRING, DECIMAL(5, 2)>", StoredType.STRING, [("a", Decimal("2.50")), ("b", None)], '{"a":2.50,"b":null}'),
    ("MAP<INT, BOOLEAN>", StoredType.STRING, [(1, True)], '{"1":true}'),
    ("MULTISET<STRING>", StoredType.STRING, [("x", 2)], '{"x":2}'),
    (
        "ROW<a INT, `b c` ARRAY<TIMESTAMP(3)>, d BYTES>",
        StoredType.STRING,
        {"a": None, "b c": [NOON.replace(microsecond=0)], "d": b"x"},
        '{"a":null,"b c":["2026-11-01T10:00:00.000"],"d":"eA=="}',
    ),
]


@pytest.mark.parametrize(("declared", "stored", "value", "cell"), FORMS, ids=[form[0] for form in FORMS])
def test_form_of_a_type(declared: str, stored: StoredType, value: Any, cell: Any) -> None:
    logical = parse_type(declared)
    values = pa.array([value, None], arrow_type(logical))
    converted = to_stored(values, logical)
    assert stored_type(logical) is stored
    assert converted.refused == {}
    assert converted.values.to_pylist() == [cell, None]
    assert from_stored(converted.values, logical).equals(values)


REFUSED = [
    ("DOUBLE", [math.nan, 1.0, math.inf, None], [0, 2], "NaN or Infinity"),
    ("FLOAT", [-math.inf], [0], "NaN or Infinity"),
    ("TIME", [86_400_000_000, -1, 0], [0, 1], "from 00:00:00"),
    ("TIMESTAMP(3)", [-(10**17), 0], [0], "0001 to 9999"),
    ("TIMESTAMP_LTZ(3)", [4 * 10**18], [0], "0001 to 9999"),
    ("DATE", [10_000_000], [0], "0001 to 9999"),
    ("ARRAY<DOUBLE>", [[math.nan], [1.0]], [0], "no JSON form"),
]


@pytest.mark.parametrize(("declared", "values", "rows", "reason"), REFUSED, ids=[case[0] for case in REFUSED])
def test_values_without_a_form_are_refused(declared: str, values: list[Any], rows: list[int], reason: str) -> None:
    logical = parse_type(declared)
    converted = to_stored(pa.array(values, arrow_type(logical)), logical)
    assert sorted(converted.refused) == rows
    assert all(reason in text for text in converted.refused.values())
    assert [index for index, item in enumerate(converted.values) if not item.is_valid] == [
        index for index, value in enumerate(values) if value is None or index in rows
    ]


def test_broken_utf8_is_refused() -> None:
    broken = pa.array([b"ok", b"\xff", None], pa.binary()).view(pa.string())
    converted = to_stored(broken, parse_type("STRING"))
    assert list(converted.refused) == [1]
    assert converted.values.to_pylist() == ["ok", None, None]


def test_zoned_timestamps_of_spark_are_instants() -> None:
    shanghai = pa.array([NOON.replace(tzinfo=UTC)], pa.timestamp("us", tz="Asia/Shanghai"))
    assert to_stored(shanghai, parse_type("TIMESTAMP_LTZ(0)")).values.to_pylist() == ["2026-11-01T10:00:00Z"]


@pytest.mark.parametrize("declared", ["DOUBLE", "BOOLEAN", "ARRAY<INT>", "ROW<a INT>", "MAP<INT, INT>"])
def test_types_that_are_no_key(declared: str) -> None:
    assert primary_key_type(parse_type(declared)) is None


@pytest.mark.parametrize(
    ("declared", "cell"), [("TIMESTAMP(3)", "yesterday"), ("DECIMAL(4, 2)", "123.45"), ("INT", 2**40), ("DATE", "x")]
)
def test_foreign_cells_are_no_values(declared: str, cell: Any) -> None:
    logical = parse_type(declared)
    with pytest.raises(ValueError, match=r".+"):
        from_stored(pa.array([cell]), logical)


_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats(allow_nan=False, allow_infinity=False),
    "FLOAT": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "BOOLEAN": st.booleans(),
    "STRING": st.text(max_size=20),
    "BYTES": st.binary(max_size=20),
    "DECIMAL(20, 7)": st.decimals(-(10**12), 10**12, places=7),
    "DATE": st.dates(),
    "TIME(6)": st.integers(0, 86_399_999_999),
    "TIMESTAMP(6)": st.datetimes(),
    "TIMESTAMP_LTZ(6)": st.datetimes(timezones=st.just(UTC)),
}


@st.composite
def _typed(draw: st.DrawFn, depth: int = 2) -> tuple[LogicalType, st.SearchStrategy[Any]]:
    if depth == 0 or draw(st.booleans()):
        declared = draw(st.sampled_from(sorted(_SCALARS)))
        return parse_type(declared), st.none() | _SCALARS[declared]
    inner, values = draw(_typed(depth - 1))
    if draw(st.booleans()):
        return LogicalType(TypeName.ARRAY, element=inner), st.none() | st.lists(values, max_size=3)
    key = draw(st.sampled_from(["INT", "STRING", "DATE", "TIMESTAMP(6)", "BYTES", "DECIMAL(20, 7)"]))
    entries = st.dictionaries(_SCALARS[key], values, max_size=3).map(lambda found: list(found.items()))
    return LogicalType(TypeName.MAP, key=parse_type(key), element=inner), st.none() | entries


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_cells_give_back_every_value(data: st.DataObject) -> None:
    logical, values = data.draw(_typed())
    column = pa.array(data.draw(st.lists(values, min_size=1, max_size=4)), arrow_type(logical))
    converted = to_stored(column, logical)
    assert converted.refused == {}
    assert from_stored(converted.values, logical).equals(column)


@given(st.lists(st.datetimes(), min_size=2, max_size=10), st.integers(0, 9))
def test_timestamp_texts_sort_as_timestamps(moments: list[datetime], precision: int) -> None:
    logical = parse_type(f"TIMESTAMP({precision})")
    texts = to_stored(pa.array(sorted(moments), pa.timestamp("us")), logical).values.to_pylist()
    assert texts == sorted(texts)
