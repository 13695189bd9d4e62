"""Faults of servers and of the network before them: silent, resetting, truncating, slow, stopped for a while."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from upsert_platform_tests.systems.faults.world import World, stopped

STOPPED_SECONDS: Final = 60
ENDPOINTS: Final = {
    "kafka": "UPSERT_KAFKA_BOOTSTRAP_SERVERS",
    "tablestore": "UPSERT_TABLESTORE_ENDPOINT",
    "maxcompute": "UPSERT_MAXCOMPUTE_ENDPOINT",
}
_CHUNK: Final = 64 << 10


class Proxy:
    """Stands between a client and a server, and disturbs what the server answers.

    Attributes:
        port: of 127.0.0.1, on which it listens.
        met: how many connections it disturbed.
    """

    def __init__(self, server: tuple[str, int], *, how: str) -> None:
        self._server, self._how = server, how
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.met = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Ends it, with every connection."""
        for opened in (self._listener, *self._open):
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                self.met += 1
                if self._how == "silent":
                    continue  # accepted, and nothing is ever said
                server = socket.create_connection(self._server)
                self._open.append(server)
                threading.Thread(target=self._pass, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def _answer(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                if self._how == "resetting":
                    linger_not = b"\1\0\0\0\0\0\0\0"  # on, for no second: the end is a reset
                    target.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_not)
                    target.shutdown(socket.SHUT_RD)  # nobody waits for more of the client: closing ends it
                    break
                if self._how == "truncating":
                    target.sendall(data[: len(data) // 2])
                    break
                if self._how == "slow":
                    time.sleep(0.05)
                target.sendall(data)
        with suppress(OSError):
            if self._how != "resetting":
                target.shutdown(socket.SHUT_RDWR)
        target.close()
        source.close()


@contextmanager
def disturbed(world: World, name: str, how: str) -> Iterator[tuple[Proxy, dict[str, str]]]:
    """A proxy before a server, and the variable that names it."""
    variable = ENDPOINTS[name]
    scheme, separator, place = world.stack.variables[variable].rpartition("://")
    host, _, port = place.partition(":")
    proxy = Proxy((host, int(port)), how=how)
    try:
        yield proxy, {variable: f"{scheme}{separator}127.0.0.1:{proxy.port}"}
    finally:
        proxy.close()


def network(world: World, *, server: str, how: str) -> None:
    """A run behind the disturbed network fails by name, or not at all; the next one goes on."""
    world.must()
    world.wave()
    with disturbed(world, server, how) as (proxy, variable):
        succeeded = world.sync(**variable)
        assert proxy.met > 0
    assert succeeded is (how == "slow"), (succeeded, world.told)
    world.must()


def server_stopped(world: World, *, server: str, seconds: float = STOPPED_SECONDS) -> None:
    """A server is stopped while a run begins, and continued."""
    world.must()
    world.wave()
    with stopped(world.pids()[server]):
        thread = threading.Thread(target=world.sync)
        thread.start()
        thread.join(seconds)
    thread.join()
    world.must()


def server_killed(world: World, *, server: str) -> None:
    """A server is killed and started again on its data while a run is under way."""
    world.must()
    world.wave(2000)
    handle = world.tablestore if server == "tablestore" else world.maxcompute
    thread = threading.Thread(target=world.sync)
    thread.start()
    time.sleep(0.5)
    handle.kill()
    time.sleep(1)
    handle.start()
    thread.join()
    world.must()


FAULTS: Final[Mapping[str, Callable[[World], None]]] = {
    **{
        f"{server} {how}": partial(network, server=server, how=how)
        for server in ENDPOINTS
        for how in ("silent", "resetting", "truncating", "slow")
        if (server, how) != ("kafka", "slow")  # brokers name their own address, behind the first answer
    },
    **{
        f"{server} stopped for a run, up to {STOPPED_SECONDS} s": partial(server_stopped, server=server)
        for server in ENDPOINTS
    },
    **{f"{server} killed": partial(server_killed, server=server) for server in ("tablestore", "maxcompute")},
}
