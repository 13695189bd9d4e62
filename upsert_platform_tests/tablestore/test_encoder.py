"""The encoder's bytes are the SDK's bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.tablestore import crc8
from upsert_platform.tablestore.encoder import (
    Cells,
    RowOperation,
    batch_get_body,
    batch_write_body,
    encode_keys,
    encode_rows,
)
from upsert_platform.tablestore.types import StoredType, stored_arrow_type
from upsert_platform_tests.tablestore import sdk

_VALUES: dict[StoredType, st.SearchStrategy[Any]] = {
    StoredType.INTEGER: st.integers(-(2**63), 2**63 - 1),
    StoredType.DOUBLE: st.floats(allow_nan=False, allow_infinity=False),
    StoredType.BOOLEAN: st.booleans(),
    StoredType.STRING: st.text(max_size=300),
    StoredType.BINARY: st.binary(max_size=300),
}
_NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,40}", fullmatch=True)
_KEY_TYPES = st.sampled_from([StoredType.STRING, StoredType.INTEGER, StoredType.BINARY])


@st.composite
def blocks(draw: st.DrawFn) -> tuple[list[tuple[str, StoredType]], list[tuple[str, StoredType]], list[sdk.Row]]:
    names = draw(st.lists(_NAMES, min_size=1, max_size=9, unique=True))
    keys = draw(st.integers(1, min(4, len(names))))
    primary_key = [(name, draw(_KEY_TYPES)) for name in names[:keys]]
    attributes = [(name, draw(st.sampled_from(list(_VALUES)))) for name in names[keys:]]
    rows: list[sdk.Row] = []
    for _ in range(draw(st.integers(1, 8))):
        operation = draw(st.sampled_from(["PUT", "UPDATE", "DELETE"]))
        key = [(name, draw(_VALUES[stored])) for name, stored in primary_key]
        cells, removed = [], []
        for name, stored in attributes if operation != "DELETE" else []:
            choice = draw(st.sampled_from(["cell", "absent", "removed" if operation == "UPDATE" else "absent"]))
            if choice == "cell":
                cells.append((name, draw(_VALUES[stored])))
            elif choice == "removed":
                removed.append(name)
        rows.append((operation, key, cells, removed))
    return primary_key, attributes, rows


def _sdk_rows(rows: list[sdk.Row]) -> list[sdk.Row]:
    """The SDK tells binaries from strings by bytearray."""

    def wrapped(cells: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        return [(name, bytearray(value) if isinstance(value, bytes) else value) for name, value in cells]

    return [(operation, wrapped(key), wrapped(cells), removed) for operation, key, cells, removed in rows]


def _encode(
    primary_key: list[tuple[str, StoredType]], attributes: list[tuple[str, StoredType]], rows: list[sdk.Row]
) -> Any:
    operations = np.array([RowOperation[row[0]] for row in rows], np.uint8)
    keys = [
        Cells(name, stored, pa.array([dict(row[1])[name] for row in rows], stored_arrow_type(stored)))
        for name, stored in primary_key
    ]
    columns = [
        Cells(
            name,
            stored,
            pa.array([dict(row[2]).get(name) for row in rows], stored_arrow_type(stored)),
            np.array([name in row[3] for row in rows]),
        )
        for name, stored in attributes
    ]
    return encode_rows(operations, keys, columns)


@settings(max_examples=300, deadline=None)
@given(blocks())
def test_the_body_equals_the_sdk(
    block: tuple[list[tuple[str, StoredType]], list[tuple[str, StoredType]], list[sdk.Row]],
) -> None:
    primary_key, attributes, rows = block
    encoded = _encode(primary_key, attributes, rows)
    body = batch_write_body("some_table", encoded.slice(0, len(rows)))
    assert body == sdk.batch_write_bytes("some_table", _sdk_rows(rows))


@settings(max_examples=50, deadline=None)
@given(blocks(), st.data())
def test_chosen_rows_equal_the_sdk(
    block: tuple[list[tuple[str, StoredType]], list[tuple[str, StoredType]], list[sdk.Row]], data: st.DataObject
) -> None:
    primary_key, attributes, rows = block
    encoded = _encode(primary_key, attributes, rows)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, unique=True))
    body = batch_write_body("t", encoded.select(chosen))
    assert body == sdk.batch_write_bytes("t", _sdk_rows([rows[row] for row in chosen]))


@settings(max_examples=50, deadline=None)
@given(blocks())
def test_keys_equal_the_sdk(
    block: tuple[list[tuple[str, StoredType]], list[tuple[str, StoredType]], list[sdk.Row]],
) -> None:
    from tablestore.encoder import OTSProtoBufferEncoder
    from tablestore.metadata import BatchGetRowRequest, TableInBatchGetRowItem

    primary_key, _, rows = block
    keys = [
        Cells(name, stored, pa.array([dict(row[1])[name] for row in rows], stored_arrow_type(stored)))
        for name, stored in primary_key
    ]
    encoded = encode_keys(keys)
    request = BatchGetRowRequest()
    wanted = [row[1] for row in _sdk_rows(rows)]
    request.add(TableInBatchGetRowItem("some_table", wanted, None, None, max_version=1))
    expected = OTSProtoBufferEncoder("utf8", enable_native=False).encode_request("BatchGetRow", request)
    assert batch_get_body("some_table", encoded.slice(0, len(rows))) == expected.SerializeToString()


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 70_000, 2 * 1024 * 1024])
def test_sizes_around_the_steps_of_a_varint_equal_the_sdk(size: int) -> None:
    rows: list[sdk.Row] = [("PUT", [("k", 7)], [("s", "x" * size), ("b", bytearray(b"\x00" * size))], [])]
    plain: list[sdk.Row] = [("PUT", [("k", 7)], [("s", "x" * size), ("b", b"\x00" * size)], [])]
    encoded = _encode([("k", StoredType.INTEGER)], [("s", StoredType.STRING), ("b", StoredType.BINARY)], plain)
    assert batch_write_body("t", encoded.slice(0, 1)) == sdk.batch_write_bytes("t", rows)


def test_conditions_equal_the_sdk() -> None:
    from tablestore.metadata import ComparatorType, Condition, RowExistenceExpectation, SingleColumnCondition

    from upsert_platform.tablestore.encoder import version_conditions

    sequence = np.array([5, 2**62], np.int64)
    keys = [Cells("k", StoredType.STRING, pa.array(["a", "b"]))]
    operations = np.array([RowOperation.PUT, RowOperation.DELETE], np.uint8)
    encoded = encode_rows(operations, keys, [], conditions=version_conditions("_version", sequence))
    for row, (operation, key) in enumerate([("PUT", "a"), ("DELETE", "b")]):
        column = SingleColumnCondition("_version", int(sequence[row]), ComparatorType.LESS_EQUAL, True, True)
        condition = Condition(RowExistenceExpectation.IGNORE, column)
        expected = sdk.batch_write_bytes("t", [(operation, [("k", key)], [], [])], condition)
        assert batch_write_body("t", encoded.slice(row, row + 1)) == expected


@pytest.mark.parametrize(
    ("case", "operation", "cells", "removed", "expected"),
    [
        ("put_string", "PUT", [("c", "x")], [], "0203040100000063050600000003 01000000 780af4090f"),
        ("put_integer", "PUT", [("c", 1)], [], "0203040100000063 0509000000 00 0100000000000000 0ace 0974"),
        ("put_double", "PUT", [("c", 1.5)], [], "0203040100000063 0509000000 01 000000000000f83f 0aa5 0916"),
        ("put_boolean", "PUT", [("c", True)], [], "0203040100000063 0502000000 02 01 0a55 0902"),
        ("put_no_cells", "PUT", [], [], "0919"),
        ("update_delete_all", "UPDATE", [], ["c"], "0203040100000063 0601 0acd 094b"),
        ("delete", "DELETE", [], [], "08 091e"),
    ],
)
def test_6_3_vectors(
    case: str, operation: str, cells: list[tuple[str, Any]], removed: list[str], expected: str
) -> None:
    kinds = {str: StoredType.STRING, int: StoredType.INTEGER, float: StoredType.DOUBLE, bool: StoredType.BOOLEAN}
    attributes = [(name, kinds[type(value)]) for name, value in cells] + [(name, StoredType.STRING) for name in removed]
    encoded = _encode([("k", StoredType.STRING)], attributes, [(operation, [("k", "a")], cells, removed)])
    prefix = "75000000 01 03 04 01000000 6b 05 06000000 03 01000000 61 0a51"
    assert bytes.fromhex(prefix + expected) in bytes(encoded.data), case


@given(st.binary(max_size=600), st.binary(max_size=300))
def test_checksums_continue_over_joined_messages(first: bytes, second: bytes) -> None:
    whole = crc8.checksum(first + second)
    state = np.array([crc8.checksum(first)], np.uint8)
    assert crc8.checksum(second, int(state[0])) == whole
    lengths = np.array([len(second)], np.int64)
    assert crc8.join(state, lengths, crc8.checksums([second]))[0] == whole
    assert crc8.extend(state, np.frombuffer(second, np.uint8).reshape(1, -1))[0] == whole
    assert crc8.checksum(b"123456789") == 0xF4
