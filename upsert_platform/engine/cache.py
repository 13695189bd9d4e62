"""Large files of state, unpacked on the local disk of a worker: looking up a few rows reads a few pages of them.

Parquet has to be decoded in whole row groups, and keys are spread evenly over them. A file of state never changes and
has a name of its own, so a copy is right as long as it exists; losing it costs the time to unpack it again. Least
recently used copies go when all together are larger than `MOST_BYTES`, which each process may pass by a small share.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import ipc

MOST_BYTES: Final = 8 << 30
WORTHWHILE_ROWS: Final = 1 << 16
"""Files with fewer rows are read from the lake each time."""
_SHARE: Final = 64
"""The folder is looked through when a process has added one part in so many of what it may hold: not for every copy."""
_unseen = MOST_BYTES
"""Bytes that this process has added since it looked; the first copy of a process always looks."""


def folder() -> Path | None:
    """Return the folder of the copies, in the folder for temporary files and readable by this user alone; None if it
    cannot be made.
    """
    path = Path(tempfile.gettempdir()) / f"upsert-platform-state-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        return path if path.stat().st_uid == os.getuid() and path.is_dir() else None
    except OSError:
        return None


def unpacked(name: str, read: Callable[[], pa.Table]) -> pa.Table:
    """The rows of a file, mapped into memory; `read` gives them where there is no copy yet.

    Args:
        name: of the file, unique among all files of all queries.
    """
    where = folder()
    if where is None:
        return read()
    path = where / f"{name}.arrow"
    found = _mapped(path)
    if found is not None:
        return found
    table = read().combine_chunks()
    # A name of its own until it is whole: tasks may unpack the same file at once.
    waiting = where / f".{uuid.uuid4().hex}"
    try:
        with pa.OSFile(str(waiting), "wb") as sink, ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        waiting.replace(path)
    except OSError:  # no room: it is read from the lake the next time, too
        waiting.unlink(missing_ok=True)
        return table
    _count(where, table.nbytes)
    return table


def _mapped(path: Path) -> pa.Table | None:
    try:
        os.utime(path)
        return ipc.open_file(pa.memory_map(str(path))).read_all()
    except FileNotFoundError:
        return None


def _count(where: Path, added: int) -> None:
    global _unseen
    _unseen += added
    if _unseen * _SHARE >= MOST_BYTES:
        _make_room(where)
        _unseen = 0


def _make_room(where: Path) -> None:
    """Deletes the copies that were not used for longest; those that are mapped live on until they are let go."""
    known: list[tuple[float, int, str]] = []
    with os.scandir(where) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                status = entry.stat()
                known.append((status.st_mtime, status.st_size, entry.path))
    total = sum(size for _, size, _ in known)
    for _, size, path in sorted(known):
        if total <= MOST_BYTES:
            return
        Path(path).unlink(missing_ok=True)
        total -= size
