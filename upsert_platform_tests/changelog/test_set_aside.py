"""A table that is moved out of the way, by a process that is killed at any of its moves."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyarrow.fs import FileSystem

from upsert_platform.changelog import set_aside as module
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.set_aside import is_there, set_aside
from upsert_platform.changelog.tables import TableLocation, file_system, open_table, write_table
from upsert_platform.core.errors import ChangelogError
from upsert_platform_tests.changelog.test_damage import ROWS


class Killed(BaseException):
    """The end of the process."""


class Moves:
    """A file system whose process is killed before one of its moves."""

    def __init__(self, system: FileSystem, left: int) -> None:
        self._system, self._left = system, left

    def move(self, path: str, target: str) -> None:
        if not self._left:
            raise Killed
        self._left -= 1
        self._system.move(path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)


def files(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.is_file())


def test_a_move_that_was_killed_goes_on_and_leaves_no_older_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    location = lake.refused("users")
    for _ in range(3):
        write_table(location, ROWS, mode="append")
    DeltaTable(location.uri).create_checkpoint()
    write_table(location, ROWS, mode="append")
    every = files(Path(lake.root))
    log = len(files(Path(location.uri, "_delta_log")))
    shutil.copytree(lake.root, tmp_path / "copy")
    for at in range(len(every)):
        shutil.rmtree(lake.root)
        shutil.copytree(tmp_path / "copy", lake.root)
        with monkeypatch.context() as patched, pytest.raises(Killed):
            system, folder = file_system(TableLocation(lake.root))
            killed = Moves(system, at), folder
            patched.setattr(module, "file_system", lambda _, killed=killed: killed)
            set_aside(lake, location)
        assert is_there(location)
        try:
            table = open_table(location)
        except ChangelogError:
            table = None
        assert (table is None or table.version() == 3) and (table is None or at < log), at
        assert set_aside(lake, location) is not None
        assert not is_there(location)
        assert not Path(location.uri).exists()
        assert files(Path(lake.root)) == every
    assert not is_there(lake.changelog("users"))
