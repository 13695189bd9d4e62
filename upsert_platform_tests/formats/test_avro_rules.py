"""Format avro: known bytes, an independent reader, and the bulk way against the way one by one."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.types import arrow_type
from upsert_platform.formats import build_decoder, build_encoder, validate_format
from upsert_platform.formats.avro.decoder import AvroDecoder
from upsert_platform.formats.avro.options import AvroSettings
from upsert_platform.formats.avro.schema import derive_schema
from upsert_platform_tests.formats.support import columns_of, plain_rows


def encode(columns: str, *values: Any, options: dict[str, str] | None = None) -> tuple[list[bytes | None], Any]:
    declared = columns_of(columns)
    arrays = [pa.array([value], arrow_type(logical)) for value, (_, logical) in zip(values, declared, strict=True)]
    rows = pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in declared])
    messages, refusals = build_encoder("avro", declared, options or {}).encode(rows)
    return messages.to_pylist(), refusals


@pytest.mark.parametrize(
    ("columns", "values", "message"),
    [
        ("r STRING NOT NULL", ["EU"], "044555"),
        ("r STRING NOT NULL, pv BIGINT, uv BIGINT", ["EU", 10, 3], "04455502140206"),
        ("r STRING NOT NULL, pv BIGINT, uv BIGINT", ["EU", None, None], "0445550000"),
        ("a INT NOT NULL", [1], "02"),
        ("a INT NOT NULL", [-1], "01"),
        ("a INT NOT NULL", [300], "d804"),
        ("a DECIMAL(10, 2)", [Decimal("12.34")], "020404d2"),
        ("a DECIMAL(10, 2)", [Decimal("-1.00")], "02029c"),
        ("a DECIMAL(38, 2)", [Decimal("-1.00")], "02029c"),
        ("a DECIMAL(10, 2)", [Decimal("1.28")], "02040080"),
    ],
)
def test_known_bytes(columns: str, values: list[Any], message: str) -> None:
    assert encode(columns, *values) == ([bytes.fromhex(message)], {})


def test_null_where_it_may_not_be_is_refused() -> None:
    messages, refusals = encode("a INT NOT NULL, b ROW<c INT NOT NULL>", None, {"c": None})
    assert messages == [None]
    assert "'a' is NOT NULL" in refusals[0]
    assert encode("b ROW<c INT NOT NULL>", None) == ([b"\0"], {})


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT NOT NULL": st.integers(-(2**63), 2**63 - 1),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "BOOLEAN": st.booleans(),
    "FLOAT": st.floats(width=32, allow_nan=False),
    "DOUBLE NOT NULL": st.floats(allow_nan=False),
    "STRING": st.text(max_size=5),
    "BYTES NOT NULL": st.binary(max_size=5),
    "DECIMAL(9, 2)": st.decimals(-9_999_999, 9_999_999, places=2),
    "DECIMAL(38, 0)": st.integers(-(10**37), 10**37).map(Decimal),
    "ROW<x INT NOT NULL, y STRING>": st.fixed_dictionaries({"x": st.integers(0, 9), "y": st.text(max_size=2)}),
    "ARRAY<INT>": st.lists(st.integers(0, 300) | st.none(), max_size=3),
    "MAP<STRING, BIGINT>": st.dictionaries(st.text(max_size=2), st.integers(0, 300), max_size=3).map(
        lambda entries: list(entries.items())
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, list[list[Any]]]:
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    count = draw(st.integers(1, 5))
    columns = [
        [None if not kind.endswith("NOT NULL") and not draw(st.integers(0, 3)) else draw(VALUES[kind])
         for _ in range(count)]
        for kind in kinds
    ]  # fmt: skip
    return ", ".join(f"c{place} {kind}" for place, kind in enumerate(kinds)), columns


def encode_table(columns: str, values: list[list[Any]]) -> tuple[pa.RecordBatch, list[bytes]]:
    declared = columns_of(columns)
    arrays = [pa.array(column, arrow_type(logical)) for column, (_, logical) in zip(values, declared, strict=True)]
    rows = pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in declared])
    messages, refusals = build_encoder("avro", declared, {}).encode(rows)
    assert refusals == {}
    return rows, messages.to_pylist()


@given(tables())
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_read_by_everyone(table: tuple[str, list[list[Any]]]) -> None:
    columns, values = table
    declared = columns_of(columns)
    rows, messages = encode_table(columns, values)
    decoded = build_decoder("avro", declared, {}).decode(messages)
    assert decoded.errors == {}
    assert plain_rows(decoded.rows, declared) == plain_rows(rows, declared)
    schema = fastavro.parse_schema(derive_schema(declared, legacy=True))
    for place, message in enumerate(messages):
        foreign = fastavro.schemaless_reader(io.BytesIO(message), schema)
        own = {name: rows.column(name)[place].as_py(maps_as_pydicts="strict") for name, _ in declared}
        assert foreign == own


@given(tables(), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 255)), max_size=2), st.integers(0, 3))
@settings(max_examples=300, deadline=None)
def test_both_ways_agree(table: tuple[str, list[list[Any]]], changes: list[tuple[int, int]], cut: int) -> None:
    columns, values = table
    declared = columns_of(columns)
    _, messages = encode_table(columns, values)
    for at, byte in changes:
        whole = bytearray(messages[0])
        if at < len(whole):
            whole[at] = byte
        messages[0] = bytes(whole)
    if cut == 1:
        messages[-1] = messages[-1][:-1]
    fast, slow = AvroDecoder(declared, AvroSettings()), AvroDecoder(declared, AvroSettings())
    slow._bulk = None
    got, want = fast.decode(messages), slow.decode(messages)
    assert (got.message.to_pylist(), got.errors) == (want.message.to_pylist(), want.errors)
    assert plain_rows(got.rows, declared) == plain_rows(want.rows, declared)


def test_the_bulk_way_is_taken() -> None:
    columns = columns_of("a INT, b STRING NOT NULL, c DECIMAL(9, 2), d ROW<x DOUBLE, y DATE>, e TIMESTAMP(3), f BYTES")
    decoder = AvroDecoder(columns, AvroSettings())
    assert decoder._bulk is not None
    values = [7, "x", Decimal("1.5"), {"x": 1.5, "y": None}, None, b"z"]
    arrays = [pa.array([value] * 2, arrow_type(logical)) for value, (_, logical) in zip(values, columns, strict=True)]
    rows = pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in columns])
    found = decoder._bulk.read(build_encoder("avro", columns, {}).encode(rows)[0].to_pylist())
    assert found is not None
    assert found[0].equals(rows.cast(found[0].schema))


@pytest.mark.parametrize(
    ("columns", "options", "word", "severity"),
    [
        ("a TIMESTAMP(6)", {}, "avro.timestamp_mapping.legacy", "error"),
        ("a TIMESTAMP_LTZ(3)", {}, "avro.timestamp_mapping.legacy", "error"),
        ("a TIME(6)", {}, "at most 3", "error"),
        ("a MAP<INT, INT>", {}, "text", "error"),
        ("`a b` INT", {}, "name", "error"),
        ("`1a` INT", {}, "name", "error"),
        ("`x𝒳` INT", {}, "name", "error"),
        ("a INT", {"avro.codec": "snappy"}, "for files", "warning"),
        ("a INT", {"avro.encoding": "text"}, "avro.encoding", "error"),
        ("a TIMESTAMP(6)", {"avro.timestamp_mapping.legacy": "false"}, "milliseconds", "warning"),
    ],
)
def test_declarations_are_checked(columns: str, options: dict[str, str], word: str, severity: str) -> None:
    problems = validate_format(
        "avro", options, columns_of(columns), side="value", direction="sink", subject="table 't'",
        location=SourceLocation("t.sql", 1),
    )  # fmt: skip
    assert [problem.severity for problem in problems] == [severity]
    assert word in problems[0].message


@pytest.mark.parametrize("name", ["größe", "名前", "_ñ9", "x٣"])
def test_names_of_any_script_are_written_and_read(name: str) -> None:
    columns = columns_of(f"`{name}` INT")
    where = {"side": "value", "direction": "sink", "subject": "t", "location": SourceLocation("t.sql", 1)}
    assert validate_format("avro", {}, columns, **where) == []
    rows = pa.RecordBatch.from_arrays([pa.array([1, None], pa.int32())], names=[name])
    messages, refused = build_encoder("avro", columns, {}).encode(rows)
    assert refused == {}
    assert build_decoder("avro", columns, {}).decode(messages.to_pylist()).rows.to_pylist() == [{name: 1}, {name: None}]
