"""Binary JSON: documents made byte by byte from the server's description of the form."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upsert_platform.errors import ReplicationError
from upsert_platform.mysql.binlog.json_binary import JsonText

WRITER = JsonText(compact=True, column="c")


def encode(value: Any, *, large: bool = False) -> bytes:
    """A document, its first byte the type."""
    kind, data, _ = _encoded(value, large)
    return bytes([kind]) + data


def _encoded(value: Any, large: bool) -> tuple[int, bytes, bool]:
    """Type, bytes, and whether they stand in place of an offset."""
    if value is None or isinstance(value, bool):
        return 4, bytes([0 if value is None else 1 if value else 2]), True
    if isinstance(value, int):
        for kind, form in ((5, "<h"), (6, "<H"), (7, "<i"), (8, "<I"), (9, "<q"), (10, "<Q")):
            try:
                return kind, struct.pack(form, value), kind <= (8 if large else 6)
            except struct.error:
                continue
    if isinstance(value, float):
        return 11, struct.pack("<d", value), False
    if isinstance(value, str):
        return 12, sized(value.encode()), False
    names = sorted(value, key=lambda name: (len(name.encode()), name.encode())) if isinstance(value, dict) else []
    items = [value[name] for name in names] if isinstance(value, dict) else value
    form, width = ("<I", 4) if large else ("<H", 2)
    head = 2 * width + len(names) * (width + 2) + len(items) * (1 + width)
    keys, entries, tail = b"", b"", b""
    for name in names:
        keys += struct.pack(form, head + len(tail)) + struct.pack("<H", len(name.encode()))
        tail += name.encode()
    for item in items:
        kind, data, inline = _encoded(item, large)
        if inline:
            entries += bytes([kind]) + data.ljust(width, b"\0")
        else:
            entries += bytes([kind]) + struct.pack(form, head + len(tail))
            tail += data
    body = keys + entries + tail
    count = struct.pack(form, len(items)) + struct.pack(form, 2 * width + len(body))
    return (0 if isinstance(value, dict) else 2) + large, count + body, False


def sized(data: bytes) -> bytes:
    length, head = len(data), b""
    while length > 127:
        head += bytes([length & 127 | 128])
        length >>= 7
    return head + bytes([length]) + data


NAMES = st.text(st.characters(exclude_categories=["Cs"]))
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(NAMES, inner),
    max_leaves=20,
)  # fmt: skip


@given(DOCUMENTS, st.booleans())
def test_every_document_is_read(document: Any, large: bool) -> None:
    if large or len(encode(document, large=True)) < 60_000:
        text = WRITER.write(encode(document, large=large))
        assert repr(json.loads(text)) == repr(_sorted(document))


def _sorted(value: Any) -> Any:
    """Members in the order in which the server keeps them."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
        return {name: _sorted(value[name]) for name in names}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def opaque(kind: int, data: bytes) -> bytes:
    return b"\x0f" + bytes([kind]) + sized(data)


def packed(days: int, clock: int, micros: int, *, below: bool = False) -> bytes:
    number = (days << 17 | clock) << 24 | micros
    return struct.pack("<q", -number if below else number)


DAY = ((2015 * 13 + 1) << 5) | 15
OPAQUE = [
    (opaque(246, b"\x04\x02\x8c\x22"), "12.34"),
    (opaque(246, b"\x04\x02\x73\xdd"), "-12.34"),
    (opaque(12, packed(DAY, 23 << 12 | 24 << 6 | 25, 12)), '"2015-01-15 23:24:25.000012"'),
    (opaque(10, packed(DAY, 0, 0)), '"2015-01-15"'),
    (opaque(11, packed(0, 23 << 12 | 24 << 6 | 25, 500000, below=True)), '"-23:24:25.500000"'),
    (opaque(252, b"\x00\xff"), '"base64:type252:AP8="'),
    (b"", "null"),
    (encode(1e20), "1e20"),
    (encode(1.0), "1.0"),
]


@pytest.mark.parametrize(("data", "text"), OPAQUE)
def test_values_of_sql_inside_of_json(data: bytes, text: str) -> None:
    assert WRITER.write(data) == text


def test_blanks_as_the_server_writes_them() -> None:
    document = {"a": [1, "x"], "b": {}}
    assert WRITER.write(encode(document)) == '{"a":[1,"x"],"b":{}}'
    assert JsonText(compact=False, column="c").write(encode(document)) == '{"a": [1, "x"], "b": {}}'


@pytest.mark.parametrize("data", [b"\x0c\x05ab", b"\x00\x01\x00\xff\x00", b"\x0d\0", b"\x05\1", b"\x0c" + b"\xff" * 6])
def test_what_is_not_of_the_form_is_told(data: bytes) -> None:
    with pytest.raises(ReplicationError, match=r"^c: a JSON value"):
        WRITER.write(data)
