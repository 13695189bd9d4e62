"""A small HTTP server that answers as a test says, for services that no local server stands for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Asked:
    """A request: method, path with its query, headers by lower-case name, body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answering:
    """A running server.

    Attributes:
        asked: all requests so far.
    """

    url: str
    asked: list[Asked] = field(default_factory=list)


@contextmanager
def answering(answer: Callable[[Asked], tuple[int, bytes]]) -> Iterator[Answering]:
    """Serves on a free port of 127.0.0.1 while the context is open.

    Args:
        answer: gives status and body (JSON) of a request.
    """

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # or every answer waits 40 ms for an acknowledgement

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, self.path, headers, body)
            running.asked.append(asked)
            status, text = answer(asked)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = _serve  # noqa: N815 (the base class names them)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are kept in `asked` instead."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running = Answering(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
