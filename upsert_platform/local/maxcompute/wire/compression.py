"""Content encodings of the tunnel (spec 3.5)."""

from __future__ import annotations

import zlib

import pyarrow as pa
from fastcrc.crc32 import iscsi as crc32c

from upsert_platform.local.maxcompute.errors import ServiceError, invalid_argument

_ARROW_CODECS = {"zstd": "zstd", "x-lz4-frame": "lz4", "x-odps-lz4-frame": "lz4"}

_LZ4_HEADER = bytes.fromhex("04224d18 607073")
"""Magic number, independent blocks of up to 4 MB without checksums, and the header's own checksum."""
_LZ4_BLOCK = 4 << 20
_LZ4_STORED = 1 << 31
"""Flag in a block's size: not compressed."""
_SNAPPY = "x-snappy-framed"
_SNAPPY_HEADER = b"\xff\x06\x00\x00sNaPpY"
_SNAPPY_BLOCK = 1 << 16
_SNAPPY_PACKED, _SNAPPY_PLAIN, _SNAPPY_FIRST_SKIPPABLE = 0x00, 0x01, 0x80


def decompress(encoding: str | None, body: bytes) -> bytes:
    """The body that was compressed under a Content-Encoding.

    Raises:
        ServiceError: the encoding is not supported, or the body is not in it.
    """
    if not encoding or encoding == "identity":
        return body
    try:
        if encoding == "deflate":
            return zlib.decompress(body)
        if encoding in _ARROW_CODECS:
            with pa.CompressedInputStream(pa.BufferReader(body), _ARROW_CODECS[encoding]) as stream:
                return bytes(stream.read())
        if encoding == _SNAPPY:
            return _from_snappy(body)
    except (zlib.error, pa.ArrowException, OSError) as error:
        raise ServiceError(400, "InvalidArgument", f"the body is not {encoding}: {error}") from error
    raise invalid_argument(f"Content-Encoding '{encoding}' is not supported")


def compress(encoding: str, body: bytes) -> bytes:
    """The body under a content encoding that `chosen` gave."""
    if encoding == "deflate":
        return zlib.compress(body, 1)
    if encoding == _SNAPPY:
        return _to_snappy(body)
    if _ARROW_CODECS[encoding] == "lz4":
        return _lz4_frame(body)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, _ARROW_CODECS[encoding]) as stream:
        stream.write(body)
    return bytes(sink.getvalue())


def _lz4_frame(body: bytes) -> bytes:
    """A frame whose blocks do not need each other: the Java SDK reads no other kind, and Arrow makes the other."""
    parts = [_LZ4_HEADER]
    for start in range(0, len(body), _LZ4_BLOCK):
        block = body[start : start + _LZ4_BLOCK]
        packed = pa.compress(block, codec="lz4_raw", asbytes=True)
        size = len(packed)
        if size >= len(block):
            packed, size = block, len(block) | _LZ4_STORED
        parts += [size.to_bytes(4, "little"), packed]
    return b"".join([*parts, bytes(4)])


def _masked_checksum(data: bytes) -> int:
    checksum = crc32c(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _to_snappy(body: bytes) -> bytes:
    """Snappy's framing format."""
    parts = [_SNAPPY_HEADER]
    for start in range(0, len(body), _SNAPPY_BLOCK):
        block = body[start : start + _SNAPPY_BLOCK]
        packed = pa.compress(block, codec="snappy", asbytes=True)
        kind, content = (_SNAPPY_PACKED, packed) if len(packed) < len(block) else (_SNAPPY_PLAIN, block)
        head = bytes([kind]) + (len(content) + 4).to_bytes(3, "little")
        parts += [head, _masked_checksum(block).to_bytes(4, "little"), content]
    return b"".join(parts)


def _from_snappy(body: bytes) -> bytes:
    """Return the data of frames in Snappy's framing format.

    Raises:
        OSError: they are corrupt, or the last one is cut off.
    """
    found, place = [], 0
    if not body.startswith(_SNAPPY_HEADER):
        raise OSError("it does not begin with a stream identifier")
    while place < len(body):
        kind, size = body[place], int.from_bytes(body[place + 1 : place + 4], "little")
        chunk = body[place + 4 : place + 4 + size]
        place += 4 + size
        if len(chunk) < size:
            raise OSError("the last frame is cut off")
        if kind in (_SNAPPY_PACKED, _SNAPPY_PLAIN):
            block = chunk[4:] if kind == _SNAPPY_PLAIN else _unpacked(chunk[4:])
            if _masked_checksum(block) != int.from_bytes(chunk[:4], "little"):
                raise OSError("the checksum of a frame is wrong")
            found.append(block)
        elif kind < _SNAPPY_FIRST_SKIPPABLE:
            raise OSError(f"a frame is of unknown kind {kind}")
    return b"".join(found)


def _unpacked(packed: bytes) -> bytes:
    """A raw Snappy block, which begins with the length of what is in it."""
    length = shift = 0
    for byte in packed[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if length > _SNAPPY_BLOCK:
        raise OSError(f"a frame holds {length} bytes, {_SNAPPY_BLOCK} are allowed")
    return bytes(pa.decompress(packed, decompressed_size=length, codec="snappy", asbytes=True))


def chosen(accept: str | None) -> str | None:
    """The encoding that an Accept-Encoding header asks for, when it names exactly one of ours."""
    return accept if accept in ("deflate", _SNAPPY) or accept in _ARROW_CODECS else None
