"""Record streams (section 3.8), read back by PyODPS' own reader, which checks every checksum."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.maxcompute.records import encode_records, footer, varint
from upsert_platform.maxcompute.types import parse_maxcompute_type, wire_type

COLUMNS: dict[str, list[Any]] = {
    "bigint": [None, 0, -1, 2**63 - 1, -(2**63)],
    "tinyint": [-128, 127, None, 0, 1],
    "string": ["", "a", "中文 ✓", None, "x" * 300],
    "binary": [b"", b"\x00\xff", None, b"x", b"y" * 200],
    "boolean": [True, False, None, True, True],
    "double": [0.0, -1.5, None, float("inf"), 1e300],
    "float": [1.5, None, -0.25, 0.0, 3.0],
    "date": [dt.date(1970, 1, 1), dt.date(1969, 12, 31), None, dt.date(9999, 12, 31), dt.date(2024, 2, 29)],
    "decimal(10,2)": [Decimal("1.50"), Decimal("-0.01"), None, Decimal("12345678.90"), Decimal("0.00")],
    "decimal(20,18)": [Decimal("0.000000000000000001"), None, Decimal(1), Decimal(0), Decimal(-1)],
    "array<bigint>": [[1, None, -3], [], None, [2**40], [0]],
    "map<string,bigint>": [[("a", 1), ("b", None)], [], None, [("", -1)], [("z", 0)]],
    "struct<a:bigint,b:string>": [
        {"a": 1, "b": "x"},
        {"a": None, "b": None},
        None,
        {"a": 0, "b": ""},
        {"a": 5, "b": "y"},
    ],
}


def read(body: bytes, kinds: list[str], *, rows: int) -> list[list[Any]]:
    """The data columns and the operation of a body, as PyODPS reads them."""
    from odps.config import option_context
    from odps.models import TableSchema
    from odps.tunnel.io.reader import TunnelRecordReader

    names = [f"c{index}" for index in range(len(kinds))]
    system = ["__version", "__app_version", "__operation", "__key_cols", "__value_cols"]
    types = [*kinds, "bigint", "bigint", "tinyint", "array<bigint>", "array<bigint>"]
    with option_context() as options:
        options.struct_as_dict = True
        options.allow_antique_date = True
        reader = TunnelRecordReader(
            TableSchema.from_lists([*names, *system], types), lambda *_arguments, **_named: io.BytesIO(body)
        )
        records = [list(record.values) for record in reader]
    assert len(records) == rows
    assert all(record[-1] == [] for record in records)
    return [[*record[: len(kinds)], record[-3]] for record in records]


def plain(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    return dict(value) if isinstance(value, dict) else value


def test_every_type_reads_back() -> None:
    kinds = list(COLUMNS)
    parsed = [parse_maxcompute_type(kind) for kind in kinds]
    columns = [pa.array(values, wire_type(kind)) for values, kind in zip(COLUMNS.values(), parsed, strict=True)]
    block = encode_records(columns, parsed, pa.array([85, 68, 85, 85, 68], pa.int8()))
    data, checksums = block.part(0, 5)
    found = read(data + footer(5, checksums), kinds, rows=5)
    for row in range(5):
        expected = [plain(values[row]) for values in COLUMNS.values()]
        expected[kinds.index("map<string,bigint>")] = dict(COLUMNS["map<string,bigint>"][row] or []) if (
            COLUMNS["map<string,bigint>"][row] is not None
        ) else None  # fmt: skip
        assert [plain(value) for value in found[row][:-1]] == expected
        assert found[row][-1] == [85, 68, 85, 85, 68][row]


@pytest.mark.parametrize("kind", ["datetime", "timestamp"])
def test_moments_keep_their_instant(kind: str) -> None:
    parsed = parse_maxcompute_type(kind)
    moments = [dt.datetime(1960, 1, 1, 0, 0, 0, 500_000), dt.datetime(2021, 1, 1), None]  # noqa: DTZ001
    block = encode_records([pa.array(moments, wire_type(parsed))], [parsed], pa.array([85, 85, 85], pa.int8()))
    from odps.config import option_context

    with option_context() as options:
        options.local_timezone = False
        data, checksums = block.part(0, 3)
        found = [row[0] for row in read(data + footer(3, checksums), [kind], rows=3)]
    assert [None if value is None else value.replace(tzinfo=None) for value in found] == moments


def test_parts_of_a_block_are_bodies_of_their_own() -> None:
    kind = parse_maxcompute_type("bigint")
    block = encode_records([pa.array(range(10))], [kind], pa.array([85] * 10, pa.int8()))
    first, second = block.part(0, 3), block.part(7, 10)
    body = first[0] + second[0] + footer(6, first[1] + second[1])
    assert [row[0] for row in read(body, ["bigint"], rows=6)] == [0, 1, 2, 7, 8, 9]
    assert read(footer(0, b""), ["bigint"], rows=0) == []


@given(st.lists(st.tuples(st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.text(max_size=8)), max_size=20))
@settings(max_examples=40, deadline=None)
def test_any_rows_read_back(rows: list[tuple[Any, Any]]) -> None:
    kinds = ["bigint", "string"]
    columns = [pa.array([row[0] for row in rows], pa.int64()), pa.array([row[1] for row in rows], pa.string())]
    operations = pa.array([85] * len(rows), pa.int8())
    block = encode_records(columns, [parse_maxcompute_type(kind) for kind in kinds], operations)
    data, checksums = block.part(0, len(rows))
    assert [tuple(row[:2]) for row in read(data + footer(len(rows), checksums), kinds, rows=len(rows))] == rows


def test_varints() -> None:
    assert [varint(value) for value in (0, 127, 128, 300)] == [b"\x00", b"\x7f", b"\x80\x01", b"\xac\x02"]
