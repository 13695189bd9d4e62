"""Binary JSON: documents made byte by byte from the server's description of the form."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.json_binary import JsonText
from upsert_platform_tests.mysql.binlog.documents import DOCUMENTS, encode, in_order, sized

WRITER = JsonText("c", compact=True)


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first document takes a second on a busy machine
@given(DOCUMENTS, st.booleans())
def test_every_document_is_read(document: Any, large: bool) -> None:
    if large or len(encode(document, large=True)) < 60_000:
        text = WRITER.write(encode(document, large=large))
        assert repr(json.loads(text)) == repr(in_order(document))


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
    assert JsonText("c", compact=False).write(encode(document)) == '{"a": [1, "x"], "b": {}}'


@pytest.mark.parametrize("data", [b"\x0c\x05ab", b"\x00\x01\x00\xff\x00", b"\x0d\0", b"\x05\1", b"\x0c" + b"\xff" * 6])
def test_what_is_not_of_the_form_is_told(data: bytes) -> None:
    with pytest.raises(ReplicationError, match=r"^c: a JSON value"):
        WRITER.write(data)
