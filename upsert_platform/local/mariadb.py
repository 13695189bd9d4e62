"""A MariaDB server with a log of rows, where one is installed; on 127.0.0.1, with a user of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from upsert_platform.local.database import (
    HOST,
    LOG_SETTINGS,
    USER,
    account,
    answers_mysql,
    as_arguments,
    write_users,
)
from upsert_platform.local.process import Server, ServerError

_PROGRAM_PATHS: Final = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"


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
        raise ServerError(
            f"{missing[0]} was not found; on Debian: apt-get install mariadb-server. Or take MySQL instead:"
            " upsert-platform local up --only mysql --server mysql"
        )
    data = data.absolute()
    data.mkdir(parents=True, exist_ok=True)
    files, scratch = data / "data", data / "tmp"
    # A server that starts deletes the temporary tables that it finds, so two must not share a directory of them.
    scratch.mkdir(exist_ok=True)
    if not files.exists():
        _fill(str(programs["mariadb-install-db"]), files, scratch)
    script = write_users(
        data,
        f"CREATE OR REPLACE USER '{USER}'@'{HOST}' IDENTIFIED BY '{password}';\n"
        f"GRANT ALL ON *.* TO '{USER}'@'{HOST}' WITH GRANT OPTION;\n",
    )
    settings = {
        **LOG_SETTINGS,
        "datadir": str(files),
        "tmpdir": str(scratch),
        "socket": str(data / "server.sock"),
        "port": str(port),
        "user": account(),
        "init-file": str(script),
        "log-bin": str(files / "log"),
        "innodb-flush-log-at-trx-commit": "0",
        **(variables or {}),
    }
    command = (str(programs["mariadbd"]), "--no-defaults", *as_arguments(settings))
    return Server(name="the MariaDB server", command=command, home=data, port=port, answers=lambda: answers_mysql(port))


def _fill(program: str, files: Path, scratch: Path) -> None:
    user = (f"--user={account()}",) if account() else ()
    # Under its name once it is whole: what a killed program left of a directory would never start.
    filling = files.with_name("filling")
    shutil.rmtree(filling, ignore_errors=True)
    command = (program, "--no-defaults", f"--datadir={filling}", f"--tmpdir={scratch}", "--skip-test-db", *user)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerError(
            f"mariadb-install-db ended with code {done.returncode}: {(done.stderr or done.stdout)[-2000:]}"
        )
    filling.rename(files)
