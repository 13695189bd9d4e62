"""A proxy before an HTTP server that spoils, repeats, delays or holds one answer, as networks and gateways do."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, list[tuple[str, str]], bytes]
_OWN_HEADERS: Final = ("transfer-encoding", "connection", "content-length")
_PAGE: Final = b"<html><head><title>502 Bad Gateway</title></head><body>success: committed</body></html>"
_WORDS: Final = (
    b'{"Code":"Conflict","Message":"the session conflicts with one that committed; status NORMAL SUCCESS OK"}'
)
LATE_SECONDS: Final = 2.0
"""Longer than the clients of the campaign wait."""
HELD_SECONDS: Final = 60.0
"""A request is held no longer, whatever happens to the test."""


@dataclass(frozen=True)
class Garbage:
    """What happens to an answer.

    Attributes:
        reached: whether the server gets the request.
        spoil: what becomes of its answer (of an empty one where it was not reached).
        late: whether the answer comes when nobody waits for it any more.
        twice: whether the server gets the request a second time.
        echoed: whether the answer is sent a second time behind itself.
        cut: whether the connection ends in the middle of the body.
    """

    reached: bool = True
    spoil: Callable[[Answer], Answer] = lambda answer: answer
    late: bool = False
    twice: bool = False
    echoed: bool = False
    cut: bool = False


def _with(status: int, body: bytes, kind: str = "application/json") -> Callable[[Answer], Answer]:
    return lambda _: (status, [("Content-Type", kind)], body)


GARBAGE: Final[Mapping[str, Garbage]] = {
    "right words, wrong code": Garbage(spoil=_with(409, _WORDS)),
    "right words, wrong code, not reached": Garbage(reached=False, spoil=_with(409, _WORDS)),
    "right words, code 400, not reached": Garbage(reached=False, spoil=_with(400, _WORDS)),
    "right words, server's error": Garbage(reached=False, spoil=_with(500, _WORDS)),
    "own body under a wrong code": Garbage(spoil=lambda answer: (503, answer[1], answer[2])),
    "a page for an answer": Garbage(reached=False, spoil=_with(200, _PAGE, "text/html")),
    "a page of a gateway": Garbage(spoil=_with(502, _PAGE, "text/html")),
    "an empty body": Garbage(spoil=lambda answer: (answer[0], answer[1], b"")),
    "half of the body": Garbage(spoil=lambda answer: (answer[0], answer[1], answer[2][: len(answer[2]) // 2])),
    "an end in the middle of the body": Garbage(cut=True),
    "no answer": Garbage(spoil=lambda answer: (0, [], b"")),
    "no answer, not reached": Garbage(reached=False, spoil=lambda answer: (0, [], b"")),
    "a late answer": Garbage(late=True),
    "a request that comes twice": Garbage(twice=True),
    "an answer that comes twice": Garbage(echoed=True),
}


@dataclass
class Garbler:
    """A running proxy.

    Attributes:
        calls: of all requests since `calm`, in order.
        garbage: what happens to the next request of a call.
        struck: how many requests it has happened to.
    """

    endpoint: str = ""
    calls: list[str] = field(default_factory=list)
    garbage: tuple[str, int, Garbage] | None = None
    struck: int = 0
    arrived: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _held: int | None = None

    def calm(self) -> None:
        """Ends all garbage, and forgets the calls."""
        with self.lock:
            self.calls, self.garbage, self.struck, self._held = [], None, 0, None
        self.released.set()

    def hold(self, number: int) -> None:
        """Holds the request of that number, from 0, before the server gets it, until `released` is set."""
        with self.lock:
            self.calls, self.garbage, self.struck, self._held = [], None, 0, number
            self.arrived.clear()
            self.released.clear()

    def wait(self, number: int) -> None:
        """Called for every request: waits if it is the one to be held."""
        if number == self._held:
            self.arrived.set()
            self.released.wait(HELD_SECONDS)

    def spoil(self, call: str, garbage: Garbage, *, skip: int = 0) -> None:
        """Spoils the answer of a call, after some of them passed."""
        with self.lock:
            self.calls, self.garbage, self.struck = [], (call, skip, garbage), 0

    def take(self, call: str) -> tuple[Garbage | None, int]:
        """What happens to a request, and its number."""
        with self.lock:
            self.calls.append(call)
            number = len(self.calls) - 1
            if self.garbage is None or self.garbage[0] != call:
                return None, number
            name, skip, garbage = self.garbage
            self.garbage = (name, skip - 1, garbage) if skip else None
            self.struck += not skip
            return None if skip else garbage, number


def call_of(method: str, path: str) -> str:
    """Names a request: the action of a storage service, else the operation at the end of the path."""
    parts = urlsplit(path)
    query = parse_qs(parts.query, keep_blank_values=True)
    if "Action" in query:
        return query["Action"][0]
    kinds = [name for name in query if name.islower() and not query[name][0]]
    words = ["#" if any(map(str.isdigit, word)) else word for word in parts.path.strip("/").split("/")[-2:]]
    return " ".join([method, "/".join(words), *sorted(kinds)])


@contextmanager
def garbler(port: int) -> Iterator[Garbler]:
    """A proxy on a free port before a server of 127.0.0.1, ended with the block."""
    running = Garbler()

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # or every answer waits 40 ms for an acknowledgement
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            garbage, number = running.take(call_of(self.command, self.path))
            running.wait(number)
            if garbage is None:
                self._send(self._forward(body))
                return
            answer: Answer = (200, [], b"")
            for _ in range(garbage.reached + (garbage.reached and garbage.twice)):
                answer = self._forward(body)
            if garbage.late:
                time.sleep(LATE_SECONDS)
            answer = garbage.spoil(answer)
            if answer[0]:
                self._send(answer, cut=garbage.cut)
            if garbage.echoed:
                self._send(answer)
            if garbage.cut or not answer[0]:
                self.close_connection = True

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

        def _send(self, answer: Answer, *, cut: bool = False) -> None:
            status, headers, content = answer
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in _OWN_HEADERS:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            try:
                self.wfile.write(content[: len(content) // 2] if cut else content)
            except OSError:  # whoever asked has left
                self.close_connection = True

        def _forward(self, body: bytes) -> Answer:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                connection.request(self.command, self.path, body, dict(self.headers.items()))
                answer = connection.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            finally:
                connection.close()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    running.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
