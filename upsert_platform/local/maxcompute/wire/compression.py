"""Content encodings of the tunnel (spec 3.5)."""

from __future__ import annotations

import zlib

import pyarrow as pa

from upsert_platform.local.maxcompute.errors import ServiceError, invalid_argument

_ARROW_CODECS = {"zstd": "zstd", "x-lz4-frame": "lz4", "x-odps-lz4-frame": "lz4"}

_LZ4_HEADER = bytes.fromhex("04224d18 607073")
"""Magic number, independent blocks of up to 4 MB without checksums, and the header's own checksum."""
_LZ4_BLOCK = 4 << 20
_LZ4_STORED = 1 << 31
"""Flag in a block's size: not compressed."""


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
    except (zlib.error, pa.ArrowException, OSError) as error:
        raise ServiceError(400, "InvalidArgument", f"the body is not {encoding}: {error}") from error
    raise invalid_argument(f"Content-Encoding '{encoding}' is not supported")


def compress(encoding: str, body: bytes) -> bytes:
    """The body under a content encoding that `chosen` gave."""
    if encoding == "deflate":
        return zlib.compress(body, 1)
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


def chosen(accept: str | None) -> str | None:
    """The encoding that an Accept-Encoding header asks for, when it names exactly one of ours."""
    return accept if accept == "deflate" or accept in _ARROW_CODECS else None
