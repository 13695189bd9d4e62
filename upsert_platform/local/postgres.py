"""A PostgreSQL server, where one is installed; on 127.0.0.1, with a user and a database of its own."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from upsert_platform.local.database import HOST, USER
from upsert_platform.local.process import Server, ServerError

DATABASE: Final = "postgres"
_ACCOUNT: Final = "postgres"
"""The package's own user: the server refuses to run as root."""
_HELLO: Final = struct.pack(">i", 3 << 16) + b"user\0" + USER.encode() + b"\0\0"
"""Startup message of protocol 3.0, without its length."""
_STARTING: Final = b"57P03"


def programs() -> Path:
    """The folder of the server's programs, of the newest version that is installed.

    Raises:
        ServerError: none is.
    """
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    if not found and (path := shutil.which("postgres")):
        found = [Path(path).parent]
    if not found:
        raise ServerError("postgres was not found; on Debian: apt-get install postgresql")
    return max(found, key=lambda folder: int(folder.parent.name) if folder.parent.name.isdigit() else 0)


def postgres_server(
    data: Path, *, port: int, password: str, user: str = USER, settings: Mapping[str, str] | None = None
) -> Server:
    """A server that is ready to start on a data directory, which is filled when it is new.

    Args:
        password: of the user, who may do everything. It counts when the directory is filled.
        settings: of the server, beside its paths and its port.

    Raises:
        ServerError: none is installed, or the directory cannot be filled.
    """
    folder = programs()
    data = data.absolute()
    data.mkdir(parents=True, exist_ok=True)
    files = data / "data"
    if os.geteuid() == 0:
        shutil.chown(data, _ACCOUNT)
    if not (files / "PG_VERSION").exists():
        _fill(folder, data, user, password)
    given = {
        "listen_addresses": HOST,
        "port": str(port),
        "unix_socket_directories": "",
        "fsync": "off",
        **(settings or {}),
    }
    options = [part for name, value in given.items() for part in ("-c", f"{name}={value}")]
    return Server(
        name="the PostgreSQL server",
        command=(str(folder / "postgres"), "-D", str(files), *options),
        home=data,
        port=port,
        answers=lambda: answers_postgres(port),
        account=_ACCOUNT if os.geteuid() == 0 else None,
    )


def _fill(programs_folder: Path, data: Path, user: str, password: str) -> None:
    secret = data / "password"
    secret.touch(0o600)
    secret.write_text(password, "utf-8")
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:
        shutil.chown(secret, _ACCOUNT)
        as_user = {"user": _ACCOUNT, "group": _ACCOUNT, "extra_groups": []}
    # Under its name once it is whole: what a killed program left of a directory would never start.
    filling = data / "filling"
    shutil.rmtree(filling, ignore_errors=True)
    command = [str(programs_folder / "initdb"), "-D", str(filling), "-U", user, "--pwfile", str(secret)]
    try:
        done = subprocess.run(
            [*command, "-A", "scram-sha-256", "-E", "UTF8", "--no-locale", "-N"],
            cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **as_user,
        )  # fmt: skip
    finally:
        secret.unlink()
    if done.returncode:
        hint = f"; user '{_ACCOUNT}' needs the right to enter every folder above {data}" if as_user else ""
        text = (done.stderr or done.stdout)[-2000:]
        raise ServerError(f"initdb ended with code {done.returncode}{hint}: {text}")
    filling.rename(data / "data")


def answers_postgres(port: int) -> bool:
    """Return whether a server of PostgreSQL's protocol answers on the port of 127.0.0.1, and takes sessions by now."""
    try:
        with socket.create_connection((HOST, port), timeout=10.0) as connection:
            connection.sendall(struct.pack(">i", len(_HELLO) + 4) + _HELLO)
            answer = connection.recv(1024)
            return bool(answer) and _STARTING not in answer
    except OSError:
        return False
