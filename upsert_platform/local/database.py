"""A running MySQL or MariaDB server on 127.0.0.1, with a user of its own; `mariadb` and `mysql` make them."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final

from upsert_platform.local.process import Server, free_port, start, stop

USER: Final = "local"
HOST: Final = "127.0.0.1"
LOG_SETTINGS: Final = {
    "bind-address": HOST,
    "skip-name-resolve": "1",
    "server-id": "1",
    "binlog-format": "ROW",
    "innodb-buffer-pool-size": "64M",
    "character-set-server": "utf8mb4",
}
"""Settings of every local server, beside its paths and its port."""
_GREETING: Final = 10
"""Version of the protocol, in the fifth byte that a server sends."""

MakeServer = Callable[..., Server]
"""`mariadb_server` or `mysql_server`."""


@dataclass(frozen=True, slots=True)
class Database:
    """A running server; ends with the `with` block.

    Attributes:
        password: of the user `USER`, who has all rights.
    """

    port: int
    server: Server
    password: str = field(repr=False)

    def stop(self) -> None:
        """Ends the server; its data stay."""
        stop(self.server)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def start_database(
    make: MakeServer,
    data: Path,
    *,
    port: int | None = None,
    password: str | None = None,
    variables: Mapping[str, str] | None = None,
    timeout: float = 120.0,
    die_with_parent: bool = False,
) -> Database:
    """Starts a server on a data directory and returns when it answers.

    Args:
        make: gives the server to run.
        port: of 127.0.0.1; a free one when left out.
        password: of the user; a new one when left out.
        variables: of the server, beside those that its log needs.

    Raises:
        ServerError: the server is not installed; it ended, or did not answer in `timeout` seconds.
    """
    chosen, own = port or free_port(), password or secrets.token_hex(16)
    server = make(data, port=chosen, password=own, variables=variables)
    start(server, timeout=timeout, die_with_parent=die_with_parent)
    return Database(chosen, server, own)


def answers_mysql(port: int) -> bool:
    """Return whether a server of the MySQL protocol, which speaks first, answers on the port of 127.0.0.1."""
    try:
        with socket.create_connection((HOST, port), timeout=10.0) as connection:
            return connection.recv(5)[4:5] == bytes((_GREETING,))
    except OSError:
        return False


def write_users(data: Path, statements: str) -> Path:
    """Writes the statements that a server runs when it starts, readable by their owner alone; returns the file."""
    script = data / "users.sql"
    script.touch(mode=0o600)
    script.write_text(statements)
    return script


def as_arguments(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Settings as arguments of a server; empty ones are left out."""
    return tuple(f"--{name}={value}" for name, value in settings.items() if value)


def account() -> str:
    """The account that a server is to run as: root's own where this process is root's, which servers ask to be told."""
    return "root" if os.geteuid() == 0 else ""
