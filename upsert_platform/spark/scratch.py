"""Spark's scratch folders: one per process, so that those of killed runs are recognised and removed.

Spark removes its own at an orderly end. A process that is killed leaves shuffle files, which may be gigabytes.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Final

from upsert_platform.spark.private_folder import make_private, require_private

PREFIX: Final = "upsert-platform-spark"
_SLACK_SECONDS: Final = 2.0
"""Names of folders have whole seconds, and without ``/proc`` the start is known by a clock that others set."""
_SINCE_BOOT: Final = "b"
"""Stands before the start in names of folders: earlier versions of the platform, which take it for a time since 1970,
leave such folders alone."""
_PROC: Final = Path("/proc")
_STATE, _START_TICKS = 0, 19
"""Fields of ``/proc/PID/stat`` behind the name of the program; see proc_pid_stat(5)."""


def root() -> Path:
    """The folder with the folders of all processes of this user and machine."""
    # Containers that share a folder have hosts of their own, and do not see each other's processes.
    return Path(tempfile.gettempdir()) / f"{PREFIX}-{os.getuid()}" / (socket.gethostname() or "localhost")


def scratch_folder() -> Path:
    """The folder of this process; made when absent, for its user alone.

    Raises:
        EndpointError: another user has made it, or a folder above it, or may write there.
        OSError: it cannot be made.
    """
    folder = root() / f"{os.getpid()}-{_SINCE_BOOT}{began_at(os.getpid()) or 0:.0f}"
    return make_private(folder, below=root().parent.parent)


def sweep() -> list[str]:
    """Removes the folders of processes that are gone; names them.

    Raises:
        EndpointError: another user has made the folder above them, or may write there.
    """
    removed = []
    for level in (root().parent, root()):
        require_private(level)
    for folder in root().glob("*-*"):
        pid, _, began = folder.name.partition("-")
        began = began.removeprefix(_SINCE_BOOT)
        if not pid.isdigit() or not began.isdigit():
            continue
        if is_process(int(pid), int(began)):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        removed.append(folder.name)
    return removed


def is_process(pid: int, began: float) -> bool:
    """Return whether a process is there that began then: numbers of processes come again.

    Args:
        began: as `began_at` tells it, or as earlier versions of the platform did, in seconds since 1970.
    """
    now = began_at(pid)
    if now is None:
        return False
    return abs(now - began) <= _SLACK_SECONDS or abs((_since_1970(pid) or 0.0) - began) <= _SLACK_SECONDS


def began_at(pid: int) -> float | None:
    """Return the start of a process in seconds, or None if it does not run (a zombie does not).

    Linux counts them since it was booted, so the start stays what it is when the clock is set; elsewhere they are those
    since 1970.
    """
    if not (_PROC / "self" / "stat").exists():
        return _since_1970(pid)
    try:
        told = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = told[told.rindex(b")") + 1 :].split()
    return None if fields[_STATE] in (b"Z", b"X") else int(fields[_START_TICKS]) / os.sysconf("SC_CLK_TCK")


def _since_1970(pid: int) -> float | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None
