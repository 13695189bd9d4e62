"""Bodies in Snappy's framing format, made here byte by byte."""

from __future__ import annotations

from typing import Any

import pytest

from upsert_platform.local.maxcompute.errors import ServiceError
from upsert_platform.local.maxcompute.wire.compression import chosen, compress, decompress

NAME = "x-snappy-framed"
HEADER = bytes.fromhex("ff060000734e61507059")


def masked_crc(data: bytes) -> bytes:
    """CRC-32C, bit by bit, as the format masks it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15 | crc << 17) & 0xFFFFFFFF) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


def frame(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + len(content).to_bytes(3, "little") + content


def plain(data: bytes) -> bytes:
    return frame(1, masked_crc(data) + data)


def packed(letter: bytes, times: int) -> bytes:
    """A letter many times: one literal, then copies of up to 64 bytes from one byte before."""
    length, out = times, bytearray()
    while length >= 0x80:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    out.append(length)
    out += b"\x00" + letter
    left = times - 1
    while left:
        size = min(left, 64)
        out += bytes([size - 1 << 2 | 2]) + (1).to_bytes(2, "little")
        left -= size
    return frame(0, masked_crc(letter * times) + bytes(out))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (HEADER, b""),
        (HEADER + plain(b"abc") + plain(b"d"), b"abcd"),
        (HEADER + packed(b"x", 60_000) + plain(b"y"), b"x" * 60_000 + b"y"),
        (HEADER + frame(0xFE, b"\0" * 10) + HEADER + plain(b"a"), b"a"),
    ],
    ids=["nothing", "plain", "packed", "padding and a second stream"],
)
def test_frames_are_read(body: bytes, expected: bytes) -> None:
    assert decompress(NAME, body) == expected


@pytest.mark.parametrize(
    "body",
    [
        plain(b"abc"),
        HEADER + plain(b"abc")[:-1],
        HEADER + frame(1, masked_crc(b"abd") + b"abc"),
        HEADER + frame(2, b"abcd"),
        HEADER + frame(0, masked_crc(b"") + b"\xff\xff\xff\xff\x0f"),
    ],
    ids=["no identifier", "cut off", "wrong checksum", "unknown kind", "too large"],
)
def test_corrupt_frames_are_refused(body: bytes) -> None:
    with pytest.raises(ServiceError, match=NAME):
        decompress(NAME, body)


def test_what_is_sent_can_be_read_again() -> None:
    body = bytes(range(256)) * 1000 + b"z" * 100_000
    sent = compress(NAME, body)
    assert len(sent) < len(body)
    assert sent.startswith(HEADER)
    assert decompress(NAME, sent) == body
    assert chosen(NAME) == NAME


def test_records_are_uploaded_and_downloaded_so(odps: Any, tunnel: Any, name: str) -> None:
    """The client asks for it by name; its own codec is not needed for Arrow's bodies of one row."""
    odps.create_table(name, "k bigint")
    session = tunnel.create_upload_session(name)
    with session.open_record_writer(0) as writer:
        writer.write(session.new_record([7]))
    session.commit([0])
    download = tunnel.create_download_session(name)
    url = download._table.table_resource()
    query = {"downloadid": download.id, "data": "", "rowrange": "(0,1)"}
    ask = lambda **headers: download._client.get(url, params=query, headers=headers)  # noqa: E731
    raw, framed = ask().content, ask(**{"Accept-Encoding": NAME})
    assert framed.headers["Content-Encoding"] == NAME
    assert decompress(NAME, framed.content) == raw
    again = tunnel.create_upload_session(name)
    put = {"uploadid": again.id, "blockid": "0"}
    again._client.put(url, data=HEADER + plain(raw), params=put, headers={"Content-Encoding": NAME})
    again.commit([0])
    assert tunnel.create_download_session(name).count == 2
