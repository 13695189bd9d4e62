"""`caching_sha2_password`, which MariaDB does not have: the exchange as MySQL's protocol describes it, over a socket.

The server's side computes every answer from the description; what a client sends is compared with that.
"""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from upsert_platform.core.errors import EndpointError
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform.writing.time_limit import time_limit

PASSWORD = "hunter-zwölf"
NONCE = bytes(range(33, 53))
OK = bytes((0, 0, 0, 2, 0, 0, 0))
DENIED = b"\xff\x15\x04#28000Access denied for user 'u'@'localhost' (using password: YES)"
_CAPABILITIES = 0x0008_A201
"""Long passwords, protocol 4.1, transactions, secure connection, plugins of authentication."""
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class _Server:
    """One login, then OK to every statement; `known` tells whether the server remembers the password."""

    def __init__(self, listening: socket.socket, *, known: bool) -> None:
        self.listening, self.known = listening, known
        self.number = 0
        self.statements: list[bytes] = []

    def serve(self) -> None:
        with self.listening.accept()[0] as peer, peer.makefile("rwb") as self.stream:
            self._send(self._greeting())
            ends = self._receive()[32:].split(b"\0", 1)[1]
            told, plugin = ends[1 : 1 + ends[0]], ends[1 + ends[0] :].rstrip(b"\0")
            assert plugin == b"caching_sha2_password"
            if not self._is_right(told):
                return self._send(DENIED)
            self._send(OK)
            while True:
                self.number = 0
                statement = self._receive()
                if statement[:1] != b"\x03":
                    return None
                self.statements.append(statement[1:])
                self._send(OK)

    def _is_right(self, told: bytes) -> bool:
        once = hashlib.sha256(PASSWORD.encode()).digest()
        mask = hashlib.sha256(hashlib.sha256(once).digest() + NONCE).digest()
        if self.known:
            good = told == bytes(a ^ b for a, b in zip(once, mask, strict=True))
            if good:
                self._send(b"\x01\x03")
            return good
        self._send(b"\x01\x04")
        assert self._receive() == b"\x02", "without TLS a client asks for the key"
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        self._send(b"\x01" + KEY.public_key().public_bytes(serialization.Encoding.PEM, form))
        sha = hashes.SHA1()
        clear = KEY.decrypt(self._receive(), padding.OAEP(padding.MGF1(sha), sha, None))
        return bytes(a ^ NONCE[at % 20] for at, a in enumerate(clear)) == PASSWORD.encode() + b"\0"

    def _greeting(self) -> bytes:
        low, high = _CAPABILITIES.to_bytes(4, "little")[:2], _CAPABILITIES.to_bytes(4, "little")[2:]
        return (
            b"\x0a8.0.36\0" + bytes(4) + NONCE[:8] + b"\0" + low + b"\x2d\x02\0" + high + b"\x15" + bytes(10)
            + NONCE[8:] + b"\0caching_sha2_password\0"
        )  # fmt: skip

    def _send(self, data: bytes) -> None:
        self.stream.write(len(data).to_bytes(3, "little") + bytes((self.number,)) + data)
        self.stream.flush()
        self.number += 1

    def _receive(self) -> bytes:
        head = self.stream.read(4)
        if len(head) < 4:
            return b""
        self.number = head[3] + 1
        return self.stream.read(int.from_bytes(head[:3], "little"))


@contextmanager
def _serving(*, known: bool) -> Iterator[tuple[Server, _Server]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = _Server(listening, known=known)
        thread = threading.Thread(target=serving.serve, daemon=True)
        thread.start()
        yield Server("127.0.0.1", listening.getsockname()[1], "u", PASSWORD, connect_timeout=10), serving
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("known", [True, False], ids=["remembered", "by the server's key"])
def test_a_user_of_caching_sha2_password_logs_in(*, known: bool) -> None:
    with _serving(known=known) as (server, serving), Connection(server) as connection:
        assert connection.raw.open
        assert any(b"time_zone = '+00:00'" in statement for statement in serving.statements)
        connection.close()


@pytest.mark.parametrize("known", [True, False], ids=["remembered", "by the server's key"])
def test_a_wrong_password_is_told(*, known: bool) -> None:
    with _serving(known=known) as (server, _), pytest.raises(EndpointError, match="Access denied") as raised:
        Connection(Server("127.0.0.1", server.port, "u", "wrong-secret", connect_timeout=10))
    assert "wrong-secret" not in str(raised.value)


@contextmanager
def _silent(sends: bytes) -> Iterator[Server]:
    """A server that accepts, sends something, and says nothing more."""
    opened: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                opened.append(listening.accept()[0])
                opened[-1].sendall(sends)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Server("127.0.0.1", listening.getsockname()[1], "u", PASSWORD, connect_timeout=1.0)
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    for item in opened:
        item.close()


def _greeting(*, tls: bool) -> bytes:
    own = _Server(socket.socket(), known=True)._greeting()
    if tls:
        at = own.index(NONCE[:8]) + 9  # the low half of the capabilities, of which TLS is 0x0800
        own = own[:at] + (int.from_bytes(own[at : at + 2], "little") | 0x0800).to_bytes(2, "little") + own[at + 2 :]
    return len(own).to_bytes(3, "little") + b"\0" + own


SILENCES = [("nothing", b""), ("half a greeting", _greeting(tls=False)[:30]), ("a greeting", _greeting(tls=False)),
            ("a greeting, with TLS", _greeting(tls=True))]  # fmt: skip


def test_who_has_less_time_waits_no_longer_for_a_login() -> None:
    with _silent(b"") as server, time_limit(1.0):
        began = time.monotonic()
        with pytest.raises(EndpointError):
            Connection(replace(server, connect_timeout=60.0))
        assert time.monotonic() - began < 30


@pytest.mark.parametrize("sends", [item[1] for item in SILENCES], ids=[item[0] for item in SILENCES])
def test_the_time_to_connect_covers_the_login(sends: bytes) -> None:
    """And who asks next, for another table, is told at once; a moment later the server is tried again."""
    with _silent(sends) as server:
        began = time.monotonic()
        errors = []
        for _ in range(20):
            with pytest.raises(
                EndpointError, match=r"did not complete a login within 1 s \('connect.timeout'\)"
            ) as raised:
                Connection(server)
            errors.append(str(raised.value))
        assert 0.9 < time.monotonic() - began < 5
        assert len(set(errors)) == 1
        assert PASSWORD not in errors[0]
        time.sleep(1.1)
        began = time.monotonic()
        with pytest.raises(EndpointError, match="did not complete a login"):
            Connection(server)
        assert time.monotonic() - began > 0.9
