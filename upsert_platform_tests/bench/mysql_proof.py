"""A proof against the database of a table that is written meanwhile: the whole command, in a process of its own.

Needs MySQL and MariaDB as `make test-systems` installs them. The table is followed into a topic; the log of the server
has only what is written during the proofs.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from upsert_platform.local.kafka import start_broker
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform_tests.bench.command import timed_command
from upsert_platform_tests.bench.jobs import _declare, _job
from upsert_platform_tests.bench.measure import row, watch_memory
from upsert_platform_tests.systems.ingesting import COLUMNS, FILL, TABLE
from upsert_platform_tests.systems.servers import KINDS, numbers, server_of

ROWS = 10_000_000
RATE = 1_000
"""Rows that are written in a second."""
PROOFS = 1
"""One after the other, each of which has to find both sides equal, before a row is added that no log has."""
_FILLED = 100_000
_PER_STATEMENT = 10
_EQUAL, _DIFFERS = 0, 3
_SQL = """
CREATE TABLE users ({columns}, PRIMARY KEY (user_id) NOT ENFORCED) WITH ('connector' = 'mysql-cdc',
  'hostname' = '{host}', 'port' = '{port}', 'username' = '{user}', 'password' = '{password}',
  'database-name' = 'bench', 'table-name' = 'users', 'server-id' = '8701-8704');
CREATE TABLE users_copy ({columns}, PRIMARY KEY (user_id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
  'topic' = 'users-copy', 'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json',
  'value.format' = 'json', 'auto.create' = 'true', 'auto.create.partitions' = '4');
INSERT INTO users_copy SELECT * FROM users;
"""


def run(*, rows: int = ROWS, rate: int = RATE, proofs: int = PROOFS) -> Iterator[dict[str, Any]]:
    """Measures `prove_database` of both servers: the slowest of the proofs, and one that finds a row that differs."""
    with (
        tempfile.TemporaryDirectory() as folder,
        start_broker(Path(folder) / "kafka", die_with_parent=True) as broker,
    ):
        for kind in KINDS.values():
            own = Path(folder) / kind.name
            with kind.start(own / "server") as database:
                yield _proven(own, kind.name, server_of(database), broker.bootstrap_servers, rows, rate, proofs)


def _proven(folder: Path, kind: str, server: Server, servers: str, rows: int, rate: int, proofs: int) -> dict[str, Any]:
    with Connection(server) as connection:
        _fill(connection, rows)
    reach = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    # A topic of each server's own.
    text = _SQL.format(columns=COLUMNS, servers=servers, **reach).replace("users-copy", f"users-{kind}")
    _declare(folder, text)
    synced = _job(folder)[0]
    writer = _Writer(server, rows, rate)
    writer.start()
    try:
        with watch_memory() as peak:
            before, began = _server_seconds(), time.monotonic()
            proven = [_prove(folder) for _ in range(proofs)]
            spent, passed = _server_seconds() - before, time.monotonic() - began
        written = writer.written / (time.monotonic() - writer.started)
        with Connection(server) as connection:
            connection.query("SET SESSION sql_log_bin = 0")
            added = rows + 1  # which no writer has
            connection.query(f"INSERT INTO bench.users VALUES ({added}, 'unlogged', 'eu', 1, NULL)")
        found = _prove(folder)
    finally:
        writer.ended.set()
        writer.join(30)
    alarms = [data["examples"] for code, _, data in proven if code != _EQUAL]
    assert not alarms, alarms
    code, _, data = found
    assert code == _DIFFERS, data
    assert [(item["status"], item["key"]) for item in data["examples"]] == [("missing", f"user_id={added}")], data
    assert written >= 0.9 * rate, f"{written} rows a second were written, {rate} were to be"
    return row(
        "prove_database",
        rows=rows,
        seconds=max(seconds for _, seconds, _ in proven),
        memory=peak,
        goal="<= 300 s",
        server=kind,
        proofs=len(proven),
        each_seconds=[round(seconds, 1) for _, seconds, _ in proven],
        written_per_second=round(written),
        server_cpu_seconds=round(spent / len(proven), 1),
        server_cpu_share=round(spent / passed, 2),
        found_seconds=round(found[1], 1),
        sync_seconds=round(synced, 1),
    )


def _fill(connection: Connection, rows: int) -> None:
    connection.query("CREATE DATABASE bench CHARACTER SET utf8mb4")
    connection.query(f"CREATE TABLE bench.users ({TABLE})")
    connection.query("SET SESSION sql_log_bin = 0")
    for first in range(1, rows + 1, _FILLED):
        part = numbers(min(first + _FILLED - 1, rows), first=first)
        connection.query(FILL.format(table="bench.users", numbers=part))
    assert connection.query("SELECT COUNT(*) FROM bench.users") == [(rows,)]


def _prove(folder: Path) -> tuple[int, float, dict[str, Any]]:
    """Exit code, seconds and result of `prove --source database`."""
    words = ("prove", "users_copy", "--source", "database", "--json")
    seconds, done = timed_command(folder, *words, codes=[_EQUAL, _DIFFERS])
    return done.returncode, seconds, json.loads(done.stdout)


def _server_seconds() -> float:
    """Seconds of the processor that the server has used; its tables are all in its process."""
    names = ("mysqld", "mariadbd")
    children = psutil.Process().children(recursive=True)
    return sum(sum(item.cpu_times()[:2]) for item in children if item.name() in names)


class _Writer(threading.Thread):
    """Updates, deletes and inserts rows at a rate, some to a transaction, until it is ended."""

    def __init__(self, server: Server, rows: int, rate: int) -> None:
        super().__init__(daemon=True)
        self._server, self._rows, self._rate = server, rows, rate
        self.ended = threading.Event()
        self.started, self.written = time.monotonic(), 0

    def run(self) -> None:
        chosen = random.Random(3)
        with Connection(self._server) as connection:
            self.started = time.monotonic()
            while not self.ended.is_set():
                self._write(connection, [chosen.randrange(1, self._rows + 1) for _ in range(_PER_STATEMENT)])
                ahead = self.written / self._rate - (time.monotonic() - self.started)
                if ahead > 0:
                    self.ended.wait(ahead)

    def _write(self, connection: Connection, keys: list[int]) -> None:
        turn = self.written // _PER_STATEMENT
        shown = ", ".join(map(str, keys))
        if turn % 10 == 0:
            connection.query(f"DELETE FROM bench.users WHERE user_id IN ({shown})")
        elif turn % 10 == 1:
            values = ", ".join(f"({key}, 'w{turn}', 'eu', 1, '2024-06-01')" for key in keys)
            connection.query(f"REPLACE INTO bench.users VALUES {values}")
        else:
            connection.query(f"UPDATE bench.users SET name = 'w{turn}' WHERE user_id IN ({shown})")
        self.written += len(keys)
