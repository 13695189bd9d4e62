"""Folders of one user below a folder that all users share: their files run programs, and hold secrets."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from upsert_platform.core.errors import EndpointError

_ALONE: Final = 0o700
_WRITTEN_BY_OTHERS: Final = 0o022
_OPENED_BY_OTHERS: Final = 0o077


def make_private(folder: Path, *, below: Path) -> Path:
    """Make a folder and the levels above it that are missing, each for this user alone, whatever the umask.

    Args:
        below: the shared folder, whose own mode does not count.

    Raises:
        EndpointError: a level is a link, or others own it or may write there.
        OSError: it cannot be made.
    """
    for level in _levels(folder, below):
        with suppress(FileExistsError):
            level.mkdir(mode=_ALONE)
        require_private(level)
    return folder


def require_private(level: Path, *, strictly: bool = False) -> None:
    """Refuse a folder that is not this user's own; close one that others may only read. A missing one is none of both.

    Args:
        strictly: one that others may read is refused too.

    Raises:
        EndpointError: the folder is a link, or others own it or may write there.
    """
    try:
        found = level.lstat()
    except FileNotFoundError:
        return
    mode = stat.S_IMODE(found.st_mode)
    refused = _OPENED_BY_OTHERS if strictly else _WRITTEN_BY_OTHERS
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or mode & refused:
        raise EndpointError(
            f"{level} is not a folder that only this user may open, so nothing in it is trusted: remove it, or name"
            " another folder for temporary files in TMPDIR"
        )
    if mode & _OPENED_BY_OTHERS:
        level.chmod(_ALONE)


def _levels(folder: Path, below: Path) -> list[Path]:
    """The folder and those above it, from the shared one down."""
    parts = folder.relative_to(below).parts
    return [below.joinpath(*parts[: count + 1]) for count in range(len(parts))]
