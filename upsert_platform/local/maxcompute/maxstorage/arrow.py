"""Arrow IPC streams of the storage API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from upsert_platform.local.maxcompute.errors import invalid_argument
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.wire.compression import chosen, compress

_PIECE = 4 << 20


def read_body(body: bytes) -> pa.Table:
    """The rows of a request body; nothing is copied unless it is compressed.

    Raises:
        ServiceError: the body is not an Arrow IPC stream.
    """
    try:
        with pa.ipc.open_stream(pa.BufferReader(body)) as reader:
            return reader.read_all()
    except (pa.ArrowException, OSError, EOFError) as error:
        raise invalid_argument(f"the body is not an Arrow IPC stream: {error}") from error


class _Pieces:
    """A file that gives what was written to it, piece by piece."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        self._size += len(data)
        return len(data)

    def flush(self) -> None:
        """There is nothing between writing and giving."""

    def close(self) -> None:
        self.closed = True

    def take(self, least: int) -> bytes:
        """Return the bytes written since the last call once there are at least `least`."""
        if self._size < least:
            return b""
        piece = b"".join(self._parts)
        self._parts, self._size = [], 0
        return piece


def stream(schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, compression: str | None = None) -> Iterator[bytes]:
    """An IPC stream of these batches, in pieces.

    Args:
        compression: of Arrow's buffers, inside of the stream.
    """
    pieces = _Pieces()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(pa.PythonFile(pieces, mode="w"), schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield pieces.take(_PIECE)
    yield pieces.take(0)


def send(request: Request, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Response:
    """The batches as a response, compressed when the client asks for one of our encodings."""
    headers = {"Content-Type": "application/octet-stream"}
    encoding = chosen(request.headers.get("Accept-Encoding"))
    body = stream(schema, batches)
    if encoding is None:
        return Response(200, body, headers)
    return Response(200, compress(encoding, b"".join(body)), {**headers, "Content-Encoding": encoding})
