"""A PostgreSQL server of Debian's package, in a folder of its own."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from upsert_platform.local.process import free_port


def programs() -> Path:
    """The folder of the server's programs, of the newest version that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    assert found, "PostgreSQL is not installed: scripts/setup-systems installs it"
    return found[-1].parent


@contextmanager
def postgres() -> Iterator[str]:
    """A server with an empty database; gives its URL."""
    # It refuses to run as root: then it is the package's user's, who has to find the way to its folder.
    is_root = os.geteuid() == 0
    as_user: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if is_root else {}
    with tempfile.TemporaryDirectory(prefix="postgres-") as made:
        folder, port, password = Path(made), free_port(), secrets.token_hex(8)
        secret = folder / "password"
        secret.write_text(password, "utf-8")
        if is_root:
            for path in (folder, secret):
                shutil.chown(path, "postgres")

        def run(program: str, *arguments: str) -> None:
            command = [str(programs() / program), *arguments]
            log = folder / "commands.log"  # a pipe would stay open as long as the server
            with log.open("wb") as output:
                done = subprocess.run(
                    command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **as_user
                )
            assert done.returncode == 0, log.read_text("utf-8")

        data = str(folder / "data")
        run("initdb", "-D", data, "-U", "dagster", "--pwfile", str(secret), "-A", "scram-sha-256", "-N")
        options = f"-h 127.0.0.1 -p {port} -k {folder} -c fsync=off"
        run("pg_ctl", "-D", data, "-w", "-l", str(folder / "server.log"), "-o", options, "start")
        try:
            yield f"postgresql://dagster:{password}@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "stop")
