"""PlainBuffer: the vectors of the protocol notes, and agreement with the SDK's encoder (section 6.3)."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.local.tablestore import plainbuffer
from upsert_platform.local.tablestore.errors import ServiceError

PREFIX = "75000000 01 03 04 01000000 6b 05 06000000 03 01000000 61 0a51"
VECTORS = [
    ("put_string", "02 03 04 01000000 63 05 06000000 03 01000000 78 0af4 090f", (b"c", "x", None, None), False),
    ("put_integer", "02 03 04 01000000 63 05 09000000 00 0100000000000000 0ace 0974", (b"c", 1, None, None), False),
    ("put_double", "02 03 04 01000000 63 05 09000000 01 000000000000f83f 0aa5 0916", (b"c", 1.5, None, None), False),
    ("put_boolean", "02 03 04 01000000 63 05 02000000 02 01 0a55 0902", (b"c", True, None, None), False),
    (
        "put_with_version",
        "02 03 04 01000000 63 05 06000000 03 01000000 78 07 e803000000000000 0a85 09b8",
        (b"c", "x", 1000, None),
        False,
    ),
    ("put_no_cells", "0919", None, False),
    ("delete_all", "02 03 04 01000000 63 06 01 0acd 094b", (b"c", None, None, 1), False),
    ("delete_one", "02 03 04 01000000 63 06 03 07 e803000000000000 0a03 0970", (b"c", None, 1000, 3), False),
    (
        "increment",
        "02 03 04 01000000 63 05 09000000 00 0300000000000000 06 04 0a8a 097b",
        (b"c", 3, None, 4),
        False,
    ),
    ("delete_row", "08 091e", None, True),
]


@pytest.mark.parametrize(("name", "tail", "cell", "deletes"), VECTORS, ids=[vector[0] for vector in VECTORS])
def test_vector(name: str, tail: str, cell: Any, deletes: bool) -> None:
    change = plainbuffer.decode_change(bytes.fromhex(PREFIX + tail))
    assert [(key.name, plainbuffer.decode_value(key.value)) for key in change.key] == [(b"k", "a")]
    decoded = [
        (c.name, None if c.value is None else plainbuffer.decode_value(c.value), c.version, c.op) for c in change.cells
    ]
    assert decoded == ([cell] if cell else [])
    assert change.deletes is deletes


def test_vector_integer_key() -> None:
    data = bytes.fromhex("75000000 01 03 04 01000000 6b 05 09000000 00 0100000000000000 0a87 08 09da")
    assert plainbuffer.decode_value(plainbuffer.decode_change(data).key[0].value) == 1


def test_vector_auto_increment_key() -> None:
    data = bytes.fromhex(
        PREFIX + "03 04 01000000 73 05 01000000 0b 0aac 02 03 04 01000000 63 05 06000000 03 01000000 78 0af4 0918"
    )
    assert plainbuffer.decode_change(data).key[1].value == bytes([plainbuffer.AUTO_INCREMENT])


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,30}", fullmatch=True)
values = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text(max_size=40),
    st.binary(max_size=40).map(bytearray),
)
keys = st.lists(
    st.tuples(names, st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(max_size=20))), min_size=1, max_size=4
)
cells = st.lists(st.tuples(names, values), max_size=8)


def sdk_row(key: list[tuple[str, Any]], attributes: list[tuple[str, Any]]) -> bytes:
    from tablestore.plainbuffer.plain_buffer_builder import PlainBufferBuilder

    return bytes(PlainBufferBuilder.serialize_for_put_row(key, attributes))


def plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


@settings(deadline=None)
@given(keys, cells)
def test_reads_what_the_sdk_writes(key: list[tuple[str, Any]], attributes: list[tuple[str, Any]]) -> None:
    change = plainbuffer.decode_change(sdk_row(key, attributes))
    assert [(c.name.decode(), plainbuffer.decode_value(c.value)) for c in change.key] == key
    assert [(c.name.decode(), plainbuffer.decode_value(c.value or b"\6")) for c in change.cells] == [
        (name, plain(value)) for name, value in attributes
    ]


@settings(deadline=None)
@given(keys, cells, st.integers(0, 2**62))
def test_the_sdk_reads_what_is_stored(
    key: list[tuple[str, Any]], attributes: list[tuple[str, Any]], version: int
) -> None:
    from tablestore.plainbuffer.plain_buffer_coded_stream import PlainBufferCodedInputStream
    from tablestore.plainbuffer.plain_buffer_stream import PlainBufferInputStream

    change = plainbuffer.decode_change(sdk_row(key, attributes))
    packed = plainbuffer.pack_version(version)
    stored = [plainbuffer.stamp(cell, version, packed) for cell in change.cells]
    row = plainbuffer.encode_row(change.key, stored)
    read_key, read_cells = PlainBufferCodedInputStream(PlainBufferInputStream(plainbuffer.HEADER + row)).read_row()
    assert read_key == key
    assert read_cells == [(name, value, version) for name, value in attributes]
    assert plainbuffer.decode_row(row) == (change.key, stored)
    assert [plainbuffer.encode_cell(c.name, c.value, version) for c in stored] == stored


@settings(deadline=None)
@given(keys, cells, st.data())
def test_damage_is_refused_and_nothing_else_happens(
    key: list[tuple[str, Any]], attributes: list[tuple[str, Any]], data: st.DataObject
) -> None:
    row = bytearray(sdk_row(key, attributes))
    position = data.draw(st.integers(0, len(row) - 1))
    row[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ServiceError) as raised:
        plainbuffer.decode_change(bytes(row))
    assert raised.value.code == "OTSParameterInvalid"


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(ServiceError):
        plainbuffer.decode_change(plainbuffer.HEADER + b"\x01" + noise)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\x01" + struct.pack("<d", float("nan")), "NaN"),
        (b"\x01" + struct.pack("<d", float("-inf")), "Infinity"),
        (b"\x03\x02\0\0\0\xff\xff", "UTF8"),
        (b"\x05\x01", "variant"),
        (b"\x02\x01\x01", "bytes"),
    ],
)
def test_values_that_the_service_cannot_hold(value: bytes, text: str) -> None:
    with pytest.raises(ServiceError, match=text):
        plainbuffer.check_value(b"c", value)
