"""Moves tables of the lake out of the way: what was read under a wrong declaration is kept, and nothing reads it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.lake import SET_ASIDE, Lake
from upsert_platform.changelog.tables import TableLocation, file_system

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_LOG: Final = "_delta_log"


def is_there(location: TableLocation) -> bool:
    """Return whether there are files of a table: a sound or a damaged one, or what a killed move left of one."""
    system, folder = file_system(location)
    paths = _files_below(system, folder.rstrip("/") or "/")
    return any(path.endswith(".parquet") or _LOG in path.split("/") for path in paths)


def set_aside(lake: Lake, location: TableLocation, *, moment: datetime | None = None) -> str | None:
    """Move the files of a table below ``reset/MOMENT/`` of its lake, its log first; return where, None without files.

    A move that was interrupted goes on when it is repeated: without its log nothing takes the rest for a table. Of the
    log, checkpoints go first and then the oldest commits, so that what is left of it is no table of an older version.

    Args:
        moment: UTC, names the folder; now if left out.
    """
    system, prefix = file_system(TableLocation(lake.root, lake.options))
    folder = location.uri.removeprefix(lake.root.rstrip("/")).strip("/")
    named = (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H-%M-%SZ")
    aside = f"{SET_ASIDE}/{named}/{folder}"
    files = _files_below(system, f"{prefix}{folder}")
    for path in sorted(files, key=_turn):
        target = f"{prefix}{aside}/{path.removeprefix(prefix).removeprefix(folder).lstrip('/')}"
        if location.path is not None:
            system.create_dir(target.rpartition("/")[0], recursive=True)
        system.move(path, target)
    if location.path is not None and files:
        system.delete_dir(f"{prefix}{folder}")
    return f"{lake.root.rstrip('/')}/{aside}" if files else None


def _turn(path: str) -> tuple[bool, bool, str]:
    *folders, name = path.split("/")
    return _LOG not in folders, "checkpoint" not in name, path


def _files_below(system: FileSystem, folder: str) -> list[str]:
    from pyarrow import fs

    found = system.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    return [item.path for item in found if item.type is fs.FileType.File]
