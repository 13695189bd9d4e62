"""A proxy between clients and the local server that spoils chosen answers, as networks and gateways do."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from upsert_platform_tests.local.maxcompute.server import ServerHandle

_OWN_HEADERS = ("transfer-encoding", "connection", "content-length")


@dataclass
class Fault:
    """What happens to the next requests of an action.

    Attributes:
        action: of the storage interface, for example ``TableWrite``; else method and end of the path: ``PUT upserts``.
        times: how many requests.
        status: of the answer given instead of the server's; 0 closes the connection without one.
        reached: whether the server gets the request all the same.
        code: of the error that is told.
        body: sent instead of an error of that code.
        delay: seconds to wait before the server's own answer is passed on; `status` then says nothing.
        cut: how many bytes of the server's own answer are passed on, as if it had ended there; `status` as well.
    """

    action: str
    times: int = 1
    status: int = 500
    reached: bool = False
    code: str = "Spoiled"
    body: bytes | None = None
    delay: float = 0.0
    cut: Callable[[bytes], int] | None = None


@dataclass
class FaultProxy:
    """A running proxy.

    Attributes:
        endpoint: its URL.
        actions: of all requests, in order.
    """

    endpoint: str
    faults: list[Fault] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)

    def take(self, action: str) -> Fault | None:
        """The fault for a request, if one is due."""
        self.actions.append(action)
        for fault in self.faults:
            if fault.action == action and fault.times > 0:
                fault.times -= 1
                return fault
        return None


@contextmanager
def fault_proxy(server: ServerHandle) -> Iterator[FaultProxy]:
    """A proxy on a free port, ended with the block."""
    proxy = FaultProxy("")
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # or every answer waits 40 ms for an acknowledgement
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self._body()
            parts = urlsplit(self.path)
            action = parse_qs(parts.query).get("Action", [f"{self.command} {parts.path.rsplit('/', 1)[-1]}"])[0]
            with lock:
                fault = proxy.take(action)
            status, headers, content = (0, [], b"")
            if fault is None or fault.reached or fault.delay or fault.cut:
                status, headers, content = self._forward(body)
            if fault is not None and fault.delay:
                time.sleep(fault.delay)
            elif fault is not None and fault.cut:
                content = content[: fault.cut(content)]
            elif fault is not None:
                if not fault.status:
                    self.close_connection = True
                    return
                told = json.dumps({"Code": fault.code, "Message": "by the proxy"}).encode()
                status, headers, content = fault.status, [], told if fault.body is None else fault.body
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in _OWN_HEADERS:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

        def _body(self) -> bytes:
            length = int(self.headers.get("Content-Length") or 0)
            return self.rfile.read(length)

        def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            return answer.status, answer.getheaders(), content

        def log_message(self, format: str, *args: Any) -> None:
            return None

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    proxy.endpoint = f"http://127.0.0.1:{httpd.server_address[1]}"
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()
