"""HTTP/1.1 as far as the SDKs speak it: POST with Content-Length, keep-alive, one request at a time per connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import NamedTuple

from upsert_platform.local.tablestore import limits

_MAX_HEAD = 64 * limits.KIB
# A larger body is still read up to here, so that the client gets to see the refusal.
_MAX_READ = 64 * limits.MIB
_REASONS = {
    200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 409: "Conflict", 411: "Length Required", 413: "Request Entity Too Large",
    429: "Too Many Requests", 431: "Request Header Fields Too Large", 500: "Internal Server Error",
    502: "Bad Gateway", 503: "Service Unavailable",
}  # fmt: skip


class Request(NamedTuple):
    """A request; header names are lower case, values stripped."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Reply:
    """A reply; ``cut`` closes the connection instead of sending it."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


class Connection(asyncio.Protocol):
    """One client's connection: hands complete requests to ``receive``, which calls ``reply`` some time later."""

    def __init__(self, receive: Callable[[Connection, Request], None], open_connections: set[Connection]) -> None:
        self._receive = receive
        self._open = open_connections
        self._buffer = bytearray()
        self._busy = False
        self._close_after = False
        self._head: tuple[str, str, str, dict[str, str], int, int] | None = None
        self.peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if peer else ""
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._busy:
            self._next()

    def _next(self) -> None:
        """Reads the next request from the buffer, if it is complete."""
        if self._head is None and not self._read_head():
            return
        assert self._head is not None
        method, path, query, headers, start, length = self._head
        if len(self._buffer) < start + length:
            return
        body = bytes(self._buffer[start : start + length])
        del self._buffer[: start + length]
        self._head = None
        self._busy = True
        self._receive(self, Request(method, path, query, headers, body))

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_HEAD:
                self._refuse(431)
            return False
        lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        try:
            method, target, version = lines[0].split(" ")
            headers = {}
            for line in lines[1:]:
                name, separator, value = line.partition(":")
                if not separator:
                    raise ValueError(line)
                headers[name.lower()] = value.strip()
            length = int(headers.get("content-length", "0"))
        except ValueError:
            self._refuse(400)
            return False
        if "transfer-encoding" in headers:
            self._refuse(411)
            return False
        if not 0 <= length <= _MAX_READ:
            self._refuse(413)
            return False
        if headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection = headers.get("connection", "").lower()
        self._close_after = connection == "close" or (version == "HTTP/1.0" and connection != "keep-alive")
        path, _, query = target.partition("?")
        self._head = (method, path, query, headers, end + 4, length)
        return True

    def _refuse(self, status: int) -> None:
        self._close_after = True
        self.reply(Reply(status, b""))

    def reply(self, reply: Reply) -> None:
        """Sends the reply (or cuts the connection) and goes on to the next request."""
        if self.transport.is_closing():
            return
        if reply.cut:
            self.transport.abort()
            return
        lines = [f"HTTP/1.1 {reply.status} {_REASONS.get(reply.status, 'Error')}"]
        lines.extend(f"{name}: {value}" for name, value in reply.headers.items())
        lines.append(f"Date: {formatdate(usegmt=True)}")
        lines.append(f"Content-Length: {len(reply.body)}")
        lines.append("Connection: close" if self._close_after else "Connection: keep-alive")
        self.transport.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + reply.body)
        if self._close_after:
            self.transport.close()
            return
        self._busy = False
        if self._buffer:
            self._next()
