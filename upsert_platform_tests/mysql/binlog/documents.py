"""Documents in binary JSON, made byte by byte from the server's description of the form."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st


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


def in_order(value: Any) -> Any:
    """Members in the order in which the server keeps them."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
        return {name: in_order(value[name]) for name in names}
    return [in_order(item) for item in value] if isinstance(value, list) else value
