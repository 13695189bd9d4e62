"""The server: an event loop that gathers requests into groups, and the pages for people and tests."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, SecretStr

from upsert_platform.local.tablestore import limits
from upsert_platform.local.tablestore.engine import Engine
from upsert_platform.local.tablestore.faults import Faults
from upsert_platform.local.tablestore.http import Connection, Reply, Request
from upsert_platform.local.tablestore.instance import Instance
from upsert_platform.local.tablestore.metrics import Metrics
from upsert_platform.local.tablestore.service import Service, Work
from upsert_platform.local.tablestore.signature import Signer

# A larger group would share the commit no better, and keep its first request waiting.
_LARGEST_GROUP = 16
_LOOPBACK = ("127.0.0.1", "::1")


class ServerSettings(BaseModel):
    """Settings with which a server starts.

    Attributes:
        data: directory of the database.
        port: 0 takes a free one.
        drop: accepts BatchWriteRow and PutTimeseriesData without storing them.
        synchronous: ``full`` survives a power cut, ``normal`` the end of the process.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Path
    host: str = "127.0.0.1"
    port: int = 0
    instance: str
    access_key_id: str
    access_key_secret: SecretStr
    faults: tuple[str, ...] = ()
    seed: int | None = None
    drop: bool = False
    max_tables: int = limits.TABLES
    synchronous: str = "full"


class Server:
    """One instance behind one port; start it inside an event loop, close it once."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._faults = Faults(settings.faults, seed=settings.seed)
        self._engine = Engine(settings.data, synchronous=settings.synchronous.upper())
        self._instance = Instance(
            settings.instance,
            self._engine,
            self._faults,
            max_tables=settings.max_tables,
            drop_writes=settings.drop,
        )
        self._metrics = Metrics()
        signer = Signer(
            access_key_id=settings.access_key_id,
            access_key_secret=settings.access_key_secret,
            instance=settings.instance,
        )
        self._service = Service(self._instance, signer, self._metrics)
        self._connections: set[Connection] = set()
        self._waiting: list[tuple[Connection, Work]] = []
        self._pages: dict[str, Callable[[], str]] = {
            "/healthz": lambda: "ok\n",
            "/metrics": lambda: self._metrics.text(
                rows_written=self._instance.rows_written, tables=len(self._engine.tables)
            ),
            "/journal": self._metrics.journal_text,
            "/faults": self._faults_text,
        }

    async def start(self) -> tuple[str, int]:
        """Listens; returns the address that it listens on."""
        self._loop = asyncio.get_running_loop()
        self._listener = await self._loop.create_server(
            lambda: Connection(self._receive, self._connections),
            self._settings.host,
            self._settings.port,
            backlog=512,
        )
        address = self._listener.sockets[0].getsockname()
        return address[0], address[1]

    async def close(self) -> None:
        """Stops listening, answers what has arrived, closes connections and database."""
        self._listener.close()
        while self._waiting:
            self._serve_waiting()
        for connection in list(self._connections):
            connection.transport.close()
        # One turn of the loop flushes what the transports still hold.
        await asyncio.sleep(0)
        self._engine.close()

    def _receive(self, connection: Connection, request: Request) -> None:
        if request.path in self._pages:
            connection.reply(self._page(connection, request))
            return
        work = self._service.accept(request)
        if work.delay:
            self._loop.call_later(work.delay, self._enqueue, connection, work)
        else:
            self._enqueue(connection, work)

    def _enqueue(self, connection: Connection, work: Work) -> None:
        """Puts a request into the group that is served once all bytes that have arrived are read."""
        if not self._waiting:
            self._loop.call_soon(self._serve_waiting)
        self._waiting.append((connection, work))

    def _serve_waiting(self) -> None:
        group, self._waiting = self._waiting[:_LARGEST_GROUP], self._waiting[_LARGEST_GROUP:]
        if self._waiting:
            self._loop.call_soon(self._serve_waiting)
        replies = self._service.serve([work for _, work in group])
        for (connection, _), reply in zip(group, replies, strict=True):
            connection.reply(reply)

    def _page(self, connection: Connection, request: Request) -> Reply:
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        if request.path != "/healthz" and connection.peer not in _LOOPBACK:
            return Reply(403, b"this page is served to the local machine only\n", headers)
        if request.method == "GET":
            return Reply(200, self._pages[request.path]().encode(), headers)
        if request.path == "/faults" and request.method in ("POST", "PUT", "DELETE"):
            try:
                self._faults.replace([] if request.method == "DELETE" else _read_rules(request.body))
            except ValueError as error:
                return Reply(400, f"{error}\n".encode(), headers)
            return Reply(200, self._faults_text().encode(), headers)
        return Reply(405, b"", headers)

    def _faults_text(self) -> str:
        return "".join(f"{rule.text} struck={rule.struck}\n" for rule in self._faults.rules)


def _read_rules(body: bytes) -> list[str]:
    """The body of POST /faults: a JSON list of rules."""
    rules = json.loads(body or b"[]")
    if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules):
        raise ValueError('the body must be a JSON list of rules, such as ["error:code=OTSServerBusy,times=3"]')
    return rules


async def run(settings: ServerSettings, announce: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT; calls ``announce`` with the endpoint once it listens."""
    server = Server(settings)
    host, port = await server.start()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # The loops over cells make many short-lived tuples; collecting at the default pace costs a third of the throughput.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
    announce(f"http://{host}:{port}")
    await stop.wait()
    await server.close()
