"""Removes what proofs and plans that were killed have left in the lake: whole changelogs, of a run each."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.tables import file_system

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

RESUMED: Final = "resumed"
"""In the place of a run: what a proof against a database found so far, for one that goes on where it was broken off."""


def remove_old_proofs(lake: Lake, *, hours: int) -> int:
    """Deletes the folders of proofs and plans into which nothing was written for so many hours; how many files. No JVM.

    A proof that ends removes its folder itself.
    """
    from pyarrow.fs import FileSelector, FileType

    system, start = file_system(lake.proofs())
    runs: dict[tuple[str, ...], list[FileInfo]] = {}
    for info in system.get_file_info(FileSelector(start or "/", allow_not_found=True, recursive=True)):
        names = tuple(info.path.removeprefix(start).strip("/").split("/"))[:2]
        # Folders of an object storage have no time, and go with their files.
        is_file = info.type == FileType.File and info.mtime_ns is not None
        if is_file and len(names) == 2 and names[1] != RESUMED:
            runs.setdefault(names, []).append(info)
    removed = 0
    for names, found in runs.items():
        if max(info.mtime_ns for info in found) <= time.time_ns() - hours * 3600 * 10**9:
            with suppress(FileNotFoundError):
                system.delete_dir(f"{start}{'/'.join(names)}")
                removed += len(found)
    return removed
