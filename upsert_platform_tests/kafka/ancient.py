"""What brokers of the first protocol versions answer: enough of Kafka 0.9 and 0.10 to be asked for a topic."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

API_VERSIONS, METADATA = 18, 3
_UNSUPPORTED_VERSION = 35
_SUPPORTED = {0: 2, 1: 2, 2: 0, 3: 1, 8: 2, 9: 1, 10: 0, 11: 0, 12: 0, 13: 0, 14: 0, 15: 0, 16: 0, 17: 0, 18: 0}
"""Of Kafka 0.10.0: request to its highest version (KIP-35)."""


@contextmanager
def ancient_broker(topic: str, *, knows_versions: bool) -> Iterator[str]:
    """Serves a topic of one partition; ``bootstrap.servers``.

    Args:
        knows_versions: as 0.10 does. Earlier brokers hang up when they are asked for their versions.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve(connection: socket.socket) -> None:
            with connection, suppress(OSError, struct.error):
                while True:
                    (size,) = struct.unpack(">i", _exactly(connection, 4))
                    request = _exactly(connection, size)
                    kind, version, correlation = struct.unpack_from(">hhi", request)
                    if kind == API_VERSIONS and knows_versions:
                        body = _versions(version)
                    elif kind == METADATA and knows_versions:
                        body = _metadata(port, topic)
                    else:
                        return
                    connection.sendall(struct.pack(">ii", len(body) + 4, correlation) + body)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{port}"
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise OSError("closed")
        found += part
    return found


def _versions(version: int) -> bytes:
    if version > 0:
        return struct.pack(">hi", _UNSUPPORTED_VERSION, 0)
    listed = b"".join(struct.pack(">hhh", kind, 0, highest) for kind, highest in _SUPPORTED.items())
    return struct.pack(">hi", 0, len(_SUPPORTED)) + listed


def _metadata(port: int, topic: str) -> bytes:
    broker = struct.pack(">ii", 1, 0) + _text("127.0.0.1") + struct.pack(">ih", port, -1)
    partition = struct.pack(">hii", 0, 0, 0) + struct.pack(">ii", 1, 0) * 2
    return broker + struct.pack(">iih", 0, 1, 0) + _text(topic) + struct.pack(">bi", 0, 1) + partition


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()
