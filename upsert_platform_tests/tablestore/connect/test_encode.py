"""Row changes become the bytes that the SDK makes of them, at a cost that follows their own cells."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.tablestore.connect.change import RowChange
from upsert_platform.tablestore.connect.encode import encode_changes
from upsert_platform.tablestore.connect.values import AUTO_INCREMENT
from upsert_platform.tablestore.encoder import RowOperation, batch_write_body
from upsert_platform_tests.tablestore import sdk

_NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,40}", fullmatch=True)
_KEYS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(max_size=200), st.binary(max_size=200))
_VALUES = st.one_of(_KEYS, st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=400))


@st.composite
def changes(draw: st.DrawFn) -> RowChange:
    names = draw(st.lists(_NAMES, min_size=1, max_size=8, unique=True))
    operation = draw(st.sampled_from(RowOperation))
    keys = draw(st.integers(1, min(3, len(names))))
    key = tuple((name, draw(_KEYS)) for name in names[:keys])
    if operation is RowOperation.DELETE:
        return RowChange(operation, key)
    removed = draw(st.integers(0, len(names) - keys)) if operation is RowOperation.UPDATE else 0
    cells = {name: draw(_VALUES) for name in names[keys + removed :]}
    return RowChange(operation, key, cells, tuple(names[keys : keys + removed]))


def _sdk_row(change: RowChange) -> sdk.Row:
    def wrapped(value: Any) -> Any:
        from tablestore.metadata import PK_AUTO_INCR

        return PK_AUTO_INCR if value is AUTO_INCREMENT else bytearray(value) if isinstance(value, bytes) else value

    key = [(name, wrapped(value)) for name, value in change.key]
    cells = [(name, wrapped(value)) for name, value in change.cells.items()]
    return change.operation.name, key, cells, list(change.removed)


@settings(max_examples=60, deadline=None)
@given(st.lists(changes(), min_size=1, max_size=6))
def test_the_body_equals_the_sdk(rows: list[RowChange]) -> None:
    encoded = encode_changes(rows)
    expected = sdk.batch_write_bytes("some_table", [_sdk_row(row) for row in rows])
    assert batch_write_body("some_table", encoded.slice(0, len(rows))) == expected
    last = [len(rows) - 1]
    assert batch_write_body("t", encoded.select(last)) == sdk.batch_write_bytes("t", [_sdk_row(rows[-1])])


@pytest.mark.parametrize("size", [126, 127, 128, 16_383, 16_384, 2 * 1024 * 1024])
def test_sizes_around_the_steps_of_a_varint_equal_the_sdk(size: int) -> None:
    row = RowChange(RowOperation.PUT, (("k", "a"), ("n", AUTO_INCREMENT)), {"s": "x" * size, "b": b"\0" * size})
    assert batch_write_body("t", encode_changes([row]).slice(0, 1)) == sdk.batch_write_bytes("t", [_sdk_row(row)])


def test_rows_without_a_common_column_take_no_more_memory_than_their_cells() -> None:
    rows = [
        RowChange(RowOperation.PUT, (("k", f"r{row}"),), {f"c{row}_{cell}": "v" for cell in range(20)})
        for row in range(300)
    ]
    tracemalloc.start()
    encoded = encode_changes(rows)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * len(encoded.data)
