"""The HTTP server: a thread per connection, requests and responses as plain data."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

Body = bytes | Iterable[bytes]
_IDLE_SECONDS = 900


@dataclass
class Request:
    """A request as it came in.

    Attributes:
        method: upper case.
        target: the undecoded request target.
        path: decoded, without query.
        query: decoded parameters; one without a value is the empty text.
        headers: names compare without case.
        body: as sent, not decompressed.
    """

    method: str
    target: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes
    client: str = ""
    request_id: str = ""

    @property
    def host(self) -> str:
        return self.headers.get("Host") or ""


@dataclass
class Response:
    """An answer; an iterable body is sent in chunks.

    Attributes:
        drop: the connection is closed without any answer.
    """

    status: int = 200
    body: Body = b""
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False


def parse_target(method: str, target: str, headers: Mapping[str, str], body: bytes, client: str) -> Request:
    """Splits a request target into path and parameters."""
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return Request(method.upper(), target, unquote(parts.path), query, headers, body, client)


class Server(ThreadingHTTPServer):
    """Serves until `shutdown`; connections end with the process."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], handle: Callable[[Request], Response]) -> None:
        super().__init__(address, _Handler)
        self.handle = handle
        self._connections: set[socket.socket] = set()
        self._connections_lock = threading.Lock()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._connections_lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._connections_lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Ends connections that are kept alive, so their threads end."""
        with self._connections_lock:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no event; answers to failures are made in the handler."""


class _CutShortError(Exception):
    """The connection ended inside of a body."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "upsert-platform-maxcompute"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    timeout = _IDLE_SECONDS

    def _serve(self) -> None:
        try:
            body = self._read_body()
        except _CutShortError:
            # The client went away while it was sending: nothing of it counts.
            self.close_connection = True
            return
        request = parse_target(
            self.command, self.path, cast("Mapping[str, str]", self.headers), body, self.client_address[0]
        )
        response = cast("Server", self.server).handle(request)
        if response.drop:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._send(response)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _serve  # noqa: N815

    def _read_body(self) -> bytes:
        headers = self.headers
        if "chunked" in (headers.get("Transfer-Encoding") or "").lower():
            return b"".join(self._read_chunks())
        length = int(headers.get("Content-Length") or 0)
        return self._read(length) if length else b""

    def _read(self, length: int) -> bytes:
        found = self.rfile.read(length)
        if len(found) < length:
            raise _CutShortError
        return found

    def _read_chunks(self) -> Iterator[bytes]:
        while True:
            line = self.rfile.readline().split(b";")[0].strip()
            if not line:
                raise _CutShortError
            size = int(line, 16)
            if not size:
                while self.rfile.readline().strip():
                    pass
                return
            yield self._read(size)
            self.rfile.readline()

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        body = response.body
        if isinstance(body, bytes):
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
            self.wfile.flush()
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in body:
            if piece:
                self.wfile.write(b"%x\r\n" % len(piece))
                self.wfile.write(piece)
                self.wfile.write(b"\r\n")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Requests are kept by the journal, not printed."""
