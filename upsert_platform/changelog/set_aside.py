"""Moves tables of the lake out of the way: what was read under a wrong declaration is kept, and nothing reads it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.tables import TableLocation, file_system

FOLDER: Final = "reset"
"""Folder of the lake with what was set aside, a folder per moment."""


def set_aside(lake: Lake, location: TableLocation, *, moment: datetime | None = None) -> str | None:
    """Move the files of a table below ``reset/MOMENT/`` of its lake, its log first; return where, None without files.

    A move that was interrupted goes on when it is repeated: without its log nothing takes the rest for a table.

    Args:
        moment: UTC, names the folder; now if left out.
    """
    from pyarrow import fs

    system, prefix = file_system(TableLocation(lake.root, lake.options))
    folder = location.uri.removeprefix(lake.root.rstrip("/")).strip("/")
    named = (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H-%M-%SZ")
    aside = f"{FOLDER}/{named}/{folder}"
    selector = fs.FileSelector(f"{prefix}{folder}", recursive=True, allow_not_found=True)
    files = [item.path for item in system.get_file_info(selector) if item.type is fs.FileType.File]
    for path in sorted(files, key=lambda path: "/_delta_log/" not in path):
        target = f"{prefix}{aside}/{path.removeprefix(prefix).removeprefix(folder).lstrip('/')}"
        if location.path is not None:
            system.create_dir(target.rpartition("/")[0], recursive=True)
        system.move(path, target)
    if location.path is not None and files:
        system.delete_dir(f"{prefix}{folder}")
    return f"{lake.root.rstrip('/')}/{aside}" if files else None
