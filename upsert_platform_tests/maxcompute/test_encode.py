"""Values to the wire and back: lossless where accepted, refused with a reason elsewhere."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.core.types import arrow_type, parse_type
from upsert_platform.maxcompute.decode import decode, decode_partition
from upsert_platform.maxcompute.encode import encode, neutral_value
from upsert_platform.maxcompute.types import maxcompute_type, parse_maxcompute_type, wire_type

MICROS = st.integers(-9_223_372_036_854_775, 9_223_372_036_854_775)
LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "CHAR(4)": st.text(max_size=4).map(lambda text: text.rstrip(" ")),
    "VARCHAR(4)": st.text(max_size=4),
    "STRING": st.text(max_size=20),
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats(allow_nan=False),
    "DECIMAL(10, 0)": st.integers(-(10**10) + 1, 10**10 - 1).map(Decimal),
    "DECIMAL(12, 2)": st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    "BYTES": st.binary(max_size=20),
    "DATE": st.dates(),
    "TIME(3)": st.integers(0, 86_399_999).map(lambda ms: ms * 1000),
    "TIME(6)": st.integers(0, 86_399_999_999),
    "TIMESTAMP(3)": st.datetimes().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    "TIMESTAMP(6)": MICROS.map(lambda us: dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=us)),  # noqa: DTZ001
    "TIMESTAMP_LTZ(6)": MICROS.map(lambda us: dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=us)),
}
NESTED: dict[str, st.SearchStrategy[Any]] = {
    "ARRAY<TIMESTAMP(3)>": st.lists(st.none() | LEAVES["TIMESTAMP(3)"], max_size=3),
    "MAP<STRING, TIME(3)>": st.dictionaries(st.text(max_size=3), st.none() | LEAVES["TIME(3)"], max_size=3).map(
        lambda mapping: list(mapping.items())
    ),
    "MULTISET<STRING>": st.dictionaries(st.text(max_size=3), st.integers(1, 9), max_size=3).map(
        lambda mapping: list(mapping.items())
    ),
    "ROW<a INT, b ARRAY<ROW<c STRING, d TIMESTAMP(6)>>>": st.fixed_dictionaries(
        {
            "a": st.none() | LEAVES["INT"],
            "b": st.none()
            | st.lists(st.fixed_dictionaries({"c": LEAVES["STRING"], "d": LEAVES["TIMESTAMP(6)"]}), max_size=2),
        }
    ),
}


@pytest.mark.parametrize("declared", [*LEAVES, *NESTED])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_is_written_reads_back_equal(declared: str, data: st.DataObject) -> None:
    logical = parse_type(declared)
    kind = maxcompute_type(logical)
    rows = data.draw(st.lists(st.none() | {**LEAVES, **NESTED}[declared], max_size=6))
    skip = data.draw(st.integers(0, len(rows)))
    values = pa.array(rows, arrow_type(logical))[skip:]
    encoded = encode(values, logical, kind)
    assert encoded.values.type == wire_type(kind)
    assert not any(bad.any() for bad, _ in encoded.refused)
    assert decode(encoded.values, logical, kind).equals(values)


REFUSED: list[tuple[str, list[Any], list[bool]]] = [
    ("CHAR(3)", ["abc", "äöü", "abcd", None], [False, False, True, False]),
    ("VARCHAR(3)", ["abcd", "abc"], [True, False]),
    ("STRING", ["x" * (8 << 20), "x" * ((8 << 20) + 1)], [False, True]),
    ("BYTES", [b"x" * ((8 << 20) + 1), b""], [True, False]),
    ("TIME(3)", [-1, 0, 86_399_999_999, 86_400_000_000], [True, False, False, True]),
    ("TIMESTAMP(6)", [dt.datetime(1600, 1, 1), dt.datetime(2262, 1, 1), dt.datetime(2300, 1, 1)], [True, False, True]),  # noqa: DTZ001
    ("ARRAY<VARCHAR(2)>", [["a", "abc"], None, [], ["ab", None]], [True, False, False, False]),
    ("MAP<STRING, CHAR(1)>", [[("k", "ab")], [("k", "a")], None], [True, False, False]),
    ("MAP<CHAR(1), INT>", [[("k", 1)], [("kk", 1)], None], [False, True, False]),
    (
        "ROW<a ROW<b VARCHAR(1)>>",
        [{"a": {"b": "ab"}}, {"a": {"b": "a"}}, {"a": None}, None],
        [True, False, False, False],
    ),
]


@pytest.mark.parametrize(("declared", "rows", "expected"), REFUSED, ids=[row[0] for row in REFUSED])
def test_rows_over_a_limit_are_refused_alone(declared: str, rows: list[Any], expected: list[bool]) -> None:
    logical = parse_type(declared)
    encoded = encode(pa.array(rows, arrow_type(logical)), logical, maxcompute_type(logical))
    refused = [any(bad[index] for bad, _ in encoded.refused) for index in range(len(rows))]
    assert refused == expected
    assert encoded.values.type == wire_type(maxcompute_type(logical))


def test_107_extra_fraction_digits_round_half_away_from_zero_and_overflow_is_refused() -> None:
    values = pa.array([Decimal("1.005"), Decimal("-1.005"), Decimal("99.994"), Decimal("99.995")])
    encoded = encode(
        values.cast(pa.decimal128(10, 3)), parse_type("DECIMAL(4, 2)"), parse_maxcompute_type("decimal(4,2)")
    )
    assert encoded.values.to_pylist() == [Decimal("1.01"), Decimal("-1.01"), Decimal("99.99"), None]
    assert [list(bad) for bad, _ in encoded.refused] == [[False, False, False, True]]


def test_moments_finer_than_datetime_are_cut_towards_the_past() -> None:
    logical = parse_type("TIMESTAMP(3)")
    values = pa.array([-1, 1999], pa.timestamp("us"))
    assert encode(values, logical, maxcompute_type(logical)).values.cast(pa.int64()).to_pylist() == [-1, 1]


def test_a_session_zone_of_spark_moves_no_instant() -> None:
    logical = parse_type("TIMESTAMP_LTZ(3)")
    values = pa.array([0], pa.timestamp("us", tz="Asia/Shanghai"))
    assert encode(values, logical, maxcompute_type(logical)).values.cast(pa.int64()).to_pylist() == [0]


def test_109_a_missing_moment_is_null() -> None:
    import pandas as pd

    logical = parse_type("TIMESTAMP(6)")
    values = pa.array(pd.Series([pd.NaT], dtype="datetime64[us]"), from_pandas=True)
    assert encode(values, logical, maxcompute_type(logical)).values.to_pylist() == [None]


def test_moments_come_back_from_any_form_the_service_uses() -> None:
    logical = parse_type("TIMESTAMP(6)")
    kind = maxcompute_type(logical)
    expected = pa.array([-500_000, None], pa.timestamp("us"))
    pair = pa.StructArray.from_arrays(
        [pa.array([-1, 0], pa.int64()), pa.array([500_000_000, 0], pa.int32())],
        names=["sec", "nano"],
        mask=pa.array([False, True]),
    )
    for values in (expected.cast(pa.timestamp("ns")), expected.cast(pa.timestamp("us", tz="UTC")), pair):
        assert decode(values, logical, kind).equals(expected)


def test_char_comes_back_without_padding() -> None:
    logical = parse_type("CHAR(5)")
    assert decode(pa.array(["ab   ", None]), logical, maxcompute_type(logical)).to_pylist() == ["ab", None]


@pytest.mark.parametrize("declared", [*LEAVES, *NESTED, "BINARY(3)", "ROW<a DATE>"])
def test_every_type_has_a_neutral_value(declared: str) -> None:
    kind = maxcompute_type(parse_type(declared))
    value = neutral_value(kind)
    assert value.is_valid
    assert value.type == wire_type(kind)


@pytest.mark.parametrize(
    ("declared", "value", "text"),
    [("STRING", "a b", "a b"), ("INT", -3, "-3"), ("DATE", dt.date(2024, 2, 29), "2024-02-29"), ("BIGINT", 7, "7")],
)
def test_partition_columns_are_read_from_text(declared: str, value: Any, text: str) -> None:
    assert decode_partition(text, parse_type(declared)).as_py() == value
