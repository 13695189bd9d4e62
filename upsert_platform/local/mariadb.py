"""A MariaDB server with a log of rows, where one is installed; on 127.0.0.1, with a user of its own."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final

from upsert_platform.local.process import Server, ServerError, free_port, start, stop

USER: Final = "local"
_HOST: Final = "127.0.0.1"
_PROGRAM_PATHS: Final = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
_GREETING: Final = 10
"""Version of the protocol, in the fifth byte that a server sends."""


@dataclass(frozen=True, slots=True)
class MariaDb:
    """A running server."""

    port: int
    server: Server
    password: str = field(repr=False)

    def stop(self) -> None:
        """Ends the server; its data stay."""
        stop(self.server)

    def __enter__(self) -> MariaDb:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def start_mariadb(
    data: Path,
    *,
    port: int | None = None,
    password: str | None = None,
    variables: Mapping[str, str] | None = None,
    timeout: float = 120.0,
    die_with_parent: bool = False,
) -> MariaDb:
    """Starts a server on a data directory, which is filled when it is new, and returns when it answers.

    Args:
        port: of 127.0.0.1; a free one when left out.
        password: of the user; a new one when left out.
        variables: of the server, beside those that its log needs.

    Raises:
        ServerError: none is installed; it ended, or did not answer in `timeout` seconds.
    """
    chosen, own = port or free_port(), password or secrets.token_hex(16)
    server = mariadb_server(data, port=chosen, password=own, variables=variables)
    start(server, timeout=timeout, die_with_parent=die_with_parent)
    return MariaDb(chosen, server, own)


def mariadb_server(data: Path, *, port: int, password: str, variables: Mapping[str, str] | None = None) -> Server:
    """A server that is ready to start on a data directory, which is filled when it is new.

    Args:
        password: of the user.
        variables: of the server, beside those that its log needs.

    Raises:
        ServerError: none is installed, or the directory cannot be filled.
    """
    programs = {name: shutil.which(name, path=_PROGRAM_PATHS) for name in ("mariadbd", "mariadb-install-db")}
    missing = [name for name, found in programs.items() if found is None]
    if missing:
        raise ServerError(f"{missing[0]} was not found; on Debian: apt-get install mariadb-server")
    data = data.absolute()
    data.mkdir(parents=True, exist_ok=True)
    files, scratch = data / "data", data / "tmp"
    # A server that starts deletes the temporary tables that it finds, so two must not share a directory of them.
    scratch.mkdir(exist_ok=True)
    if not files.exists():
        _fill(str(programs["mariadb-install-db"]), files, scratch)
    script = data / "users.sql"
    script.touch(mode=0o600)
    script.write_text(
        f"CREATE OR REPLACE USER '{USER}'@'{_HOST}' IDENTIFIED BY '{password}';\n"
        f"GRANT ALL ON *.* TO '{USER}'@'{_HOST}' WITH GRANT OPTION;\n"
    )
    settings = {
        "datadir": str(files),
        "tmpdir": str(scratch),
        "socket": str(data / "server.sock"),
        "port": str(port),
        "bind-address": _HOST,
        "skip-name-resolve": "1",
        "user": "root" if _is_root() else "",
        "init-file": str(script),
        "server-id": "1",
        "log-bin": str(files / "log"),
        "binlog-format": "ROW",
        "innodb-buffer-pool-size": "64M",
        "innodb-flush-log-at-trx-commit": "0",
        "character-set-server": "utf8mb4",
        **(variables or {}),
    }
    command = (
        str(programs["mariadbd"]),
        "--no-defaults",
        *(f"--{name}={value}" for name, value in settings.items() if value),
    )
    return Server(name="the MariaDB server", command=command, home=data, port=port, answers=lambda: answers_mysql(port))


def answers_mysql(port: int) -> bool:
    """Tells whether a server of the MySQL protocol answers on the port of 127.0.0.1: it speaks first."""
    try:
        with socket.create_connection((_HOST, port), timeout=10.0) as connection:
            return connection.recv(5)[4:5] == bytes((_GREETING,))
    except OSError:
        return False


def _fill(program: str, files: Path, scratch: Path) -> None:
    user = ("--user=root",) if _is_root() else ()
    command = (program, "--no-defaults", f"--datadir={files}", f"--tmpdir={scratch}", "--skip-test-db", *user)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerError(
            f"mariadb-install-db ended with code {done.returncode}: {(done.stderr or done.stdout)[-2000:]}"
        )


def _is_root() -> bool:
    return os.geteuid() == 0
