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
"""The start of a process is known in ticks of a clock that others set."""


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
    folder = root() / f"{os.getpid()}-{began_at(os.getpid()) or 0:.0f}"
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
        if not pid.isdigit() or not began.isdigit():
            continue
        if is_process(int(pid), int(began)):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        removed.append(folder.name)
    return removed


def is_process(pid: int, began: float) -> bool:
    """Return whether a process is there that began then: numbers of processes come again."""
    now = began_at(pid)
    return now is not None and abs(now - began) <= _SLACK_SECONDS


def began_at(pid: int) -> float | None:
    """Return the start time of a process in seconds since 1970, or None if it does not run (a zombie does not)."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None
