"""Folders of one user below the folder of temporary files: whatever the umask, and whoever was there before."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from upsert_platform.core.errors import EndpointError
from upsert_platform.spark import scratch, warm_offer

SPARK = "upsert-platform-spark-{}"
SESSION = "upsert-platform-session-{}"


def session_folder() -> Path:
    found = warm_offer.folder()
    assert found is not None
    warm_offer.make_folder(found)
    assert warm_offer.folder() == found, "the next run takes it"
    return found


FOLDERS: dict[str, Callable[[], Path]] = {SPARK: scratch.scratch_folder, SESSION: session_folder}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # asked for anew
    monkeypatch.delenv("UPSERT_SPARK_SESSION", raising=False)
    before = os.umask(0o022)
    yield tmp_path
    os.umask(before)


def modes(folder: Path, below: Path) -> list[int]:
    levels = [folder, *(level for level in folder.parents if level.is_relative_to(below) and level != below)]
    return [stat.S_IMODE(level.lstat().st_mode) for level in levels]


@pytest.mark.parametrize("name", FOLDERS)
def test_every_level_is_open_to_this_user_alone(name: str, temporary: Path) -> None:
    made = FOLDERS[name]()
    assert made.is_relative_to(temporary / name.format(os.getuid()))
    assert set(modes(made, temporary)) == {0o700}
    assert FOLDERS[name]() == made


@pytest.mark.parametrize("name", FOLDERS)
def test_one_that_others_may_read_is_closed(name: str, temporary: Path) -> None:
    (temporary / name.format(os.getuid())).mkdir(mode=0o755)
    assert set(modes(FOLDERS[name](), temporary)) == {0o700}


@pytest.mark.parametrize("name", FOLDERS)
def test_one_that_another_user_made_or_may_write_is_refused(name: str, temporary: Path) -> None:
    first = temporary / name.format(os.getuid())
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir(mode=0o700)

    def linked() -> None:
        first.symlink_to(elsewhere)

    def writable() -> None:
        first.mkdir()
        first.chmod(0o777)

    def another_users() -> None:
        first.mkdir(mode=0o700)
        os.chown(first, 65534, 65534)

    for prepare in (linked, writable, *((another_users,) if os.getuid() == 0 else ())):
        prepare()
        with pytest.raises(EndpointError, match="is not a folder that only this user may open") as raised:
            FOLDERS[name]()
        assert str(first) in str(raised.value)
        assert "TMPDIR" in str(raised.value)
        assert not list(elsewhere.iterdir())
        if first.is_symlink():
            first.unlink()
        else:
            first.rmdir()


def test_what_lies_behind_a_link_is_not_swept(temporary: Path) -> None:
    gone = temporary / "elsewhere" / "host" / "1234567-1"
    gone.mkdir(parents=True)
    scratch.root().parent.symlink_to(temporary / "elsewhere")
    scratch.root().symlink_to(temporary / "elsewhere" / "host")
    with pytest.raises(EndpointError, match="is not a folder"):
        scratch.sweep()
    assert gone.is_dir()
