"""HTTP as it comes over the wire: pieces, pipelines, and requests that are none."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator

import pytest

from upsert_platform_tests.local.tablestore.server import ServerHandle

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def wire(server: ServerHandle) -> Iterator[socket.socket]:
    host, port = server.endpoint.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        yield connection


def read_until(wire: socket.socket, end: bytes, count: int = 1) -> bytes:
    data = b""
    while data.count(end) < count:
        part = wire.recv(65_536)
        if not part:
            break
        data += part
    return data


def test_a_request_in_pieces(wire: socket.socket) -> None:
    for i in range(0, len(HEALTH), 7):
        wire.sendall(HEALTH[i : i + 7])
        time.sleep(0.005)
    assert read_until(wire, b"ok\n").startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_pipeline_is_answered_in_order(wire: socket.socket) -> None:
    post = b"POST /ListTable HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
    wire.sendall(HEALTH + post + HEALTH)
    data = read_until(wire, b"ok\n", 2)
    assert re.findall(rb"HTTP/1\.1 (\d+) ", data) == [b"200", b"400", b"200"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", b"400"),
        (b"POST /ListTable HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        (b"POST /PutRow HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n", b"413"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000, b"431"),
    ],
    ids=["request line", "header", "length", "chunked", "huge body", "huge head"],
)
def test_refused_and_closed(wire: socket.socket, request_: bytes, status: bytes) -> None:
    wire.sendall(request_)
    answer = read_until(wire, b"never")
    assert answer.split()[1] == status
    assert b"Connection: close" in answer


def test_expect_continue(wire: socket.socket) -> None:
    wire.sendall(b"POST /ListTable HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n")
    assert read_until(wire, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    wire.sendall(b"x")
    assert read_until(wire, b"\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_connection_close_is_honoured(wire: socket.socket) -> None:
    wire.sendall(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert read_until(wire, b"never").endswith(b"ok\n")
