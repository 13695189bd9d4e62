"""Folders beside a changelog's data where tasks leave rows for other tasks, and what killed runs left in them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog.tables import TableLocation, file_system

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

FOLDER: Final = "_exchange"
"""Below the table's folder; names that begin with an underscore are no data of the table."""


def remove_left(location: TableLocation, below: str, *, hours: int) -> int:
    """Deletes what attempts left in a folder below the table's, of which no file is younger; how many files.

    Args:
        below: name of the folder; each attempt has one of its own in it.
    """
    from pyarrow.fs import FileSelector, FileType

    system, folder = file_system(location)
    start = f"{folder}{below}"
    left: dict[str, list[FileInfo]] = {}
    found: list[Any] = system.get_file_info(FileSelector(start, allow_not_found=True, recursive=True))
    for info in found:
        if info.type == FileType.File:
            attempt = info.path[info.path.index(f"{below}/") + len(below) + 1 :].partition("/")[0]
            left.setdefault(attempt, []).append(info)
    removed = 0
    for attempt, files in left.items():
        if max(info.mtime_ns for info in files) <= time.time_ns() - hours * 3600 * 10**9:
            system.delete_dir(f"{start}/{attempt}")
            removed += len(files)
    return removed
