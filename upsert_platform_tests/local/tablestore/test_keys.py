"""Sortable keys order rows as the service does: by column, integers by value, strings and binaries by bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.local.tablestore import keys, plainbuffer
from upsert_platform.local.tablestore.errors import ServiceError
from upsert_platform.local.tablestore.keys import KeyColumn
from upsert_platform.local.tablestore.plainbuffer import BLOB, INF_MAX, INF_MIN, INTEGER, STRING

COLUMNS = (KeyColumn(b"a", STRING), KeyColumn(b"b", INTEGER), KeyColumn(b"c", BLOB))
key = st.tuples(
    st.text(max_size=6) | st.text("\0a", max_size=4), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=6)
)


def sortable(values: tuple[str, int, bytes]) -> bytes:
    cells = [
        plainbuffer.encode_key_cell(column.name, plainbuffer.encode_value(value))
        for column, value in zip(COLUMNS, values, strict=True)
    ]
    return keys.encode_key(COLUMNS, cells)


@settings(deadline=None)
@given(key, key)
def test_order(left: tuple[str, int, bytes], right: tuple[str, int, bytes]) -> None:
    by_value = ((left[0].encode(), *left[1:]) > (right[0].encode(), *right[1:])) - (
        (left[0].encode(), *left[1:]) < (right[0].encode(), *right[1:])
    )
    by_bytes = (sortable(left) > sortable(right)) - (sortable(left) < sortable(right))
    assert by_bytes == by_value


@settings(deadline=None)
@given(st.text(max_size=6) | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=6))
def test_infinities_enclose_every_value(value: str | int | bytes) -> None:
    low, high = keys.encode_component(bytes([INF_MIN])), keys.encode_component(bytes([INF_MAX]))
    assert low < keys.encode_component(plainbuffer.encode_value(value)) < high


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((b"a", b"b"), "Validate PK size fail. Input: 2, Meta: 3."),
        ((b"x", b"b", b"c"), "Validate PK name fail. Input: x, Meta: a."),
    ],
)
def test_a_key_that_does_not_fit(names: tuple[bytes, ...], message: str) -> None:
    cells = [plainbuffer.encode_key_cell(name, plainbuffer.encode_value("v")) for name in names]
    with pytest.raises(ServiceError) as raised:
        keys.encode_key(COLUMNS, cells)
    assert (raised.value.code, raised.value.message) == ("OTSInvalidPK", message)
