"""Buckets of keys: catalogue number 97, and the vectors of spec 3.9."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odps.tunnel.hasher import DefaultHasher, hash_value

from upsert_platform.local.maxcompute.types import parse_type
from upsert_platform.local.maxcompute.wire.hasher import bucket_of, hash_function, hash_long, hash_text

VECTORS: list[tuple[str, Any, int]] = [
    ("bigint", 1, 357654460),
    ("bigint", -1, 357653185),
    ("bigint", 10, -718433742),
    ("bigint", 2**63 - 1, -1977349188),
    ("bigint", -(2**63), -1787473579),
    ("string", b"1", -2140438327),
    ("string", b"  1  ", -967043897),
    ("string", "中文".encode(), -574066242),
    ("string", "héé".encode(), 1889086490),
    ("boolean", True, 388737479),
    ("boolean", False, -978963218),
    ("decimal(4,2)", Decimal("12.34"), -904458774),
    ("decimal(4,2)", Decimal(1), 1405592006),
    ("decimal(10,0)", Decimal(1), 357654460),
    ("decimal(10,2)", Decimal("1.005"), 1797057392),
    ("decimal(38,10)", Decimal("-1.5"), 1159329294),
    ("decimal(38,18)", Decimal("9.5"), -1396015457),
    ("decimal(19,2)", Decimal("-1.50"), -1829211013),
    ("double", 1.99, -670340059),
    ("double", 1.5, 356777983),
    ("float", 1.5, 301564594),
    ("timestamp", 1_609_459_200_123_456_789, -191109510),
    ("timestamp", -315_619_199_500_000_000, -513624555),
    ("date", 18628, 1065181534),
    ("datetime", 1_609_459_200_000, 1792227441),
]


@pytest.mark.parametrize(
    ("text", "value", "expected"), [pytest.param(*v, id=f"97-{v[0]}-{v[1]!r:.20}") for v in VECTORS]
)
def test_vectors(text: str, value: Any, expected: int) -> None:
    found = hash_function(parse_type(text))(value)
    assert struct.unpack("<i", struct.pack("<I", found & 0xFFFFFFFF))[0] == expected


@given(st.integers(-(2**63), 2**63 - 1))
def test_97_whole_numbers_as_the_client(value: int) -> None:
    assert hash_long(value) == DefaultHasher().hash_bigint(value)


@given(st.text(max_size=20))
def test_97_texts_as_the_client(value: str) -> None:
    assert hash_text(value.encode()) == hash_value("default", "string", value)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5), st.integers(1, 4096))
def test_a_bucket_is_within_the_table(hashes: list[int], buckets: int) -> None:
    assert 0 <= bucket_of(hashes, buckets) < buckets
