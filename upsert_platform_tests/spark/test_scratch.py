"""Temporary files of Spark: those of processes that are gone are removed, all others stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from upsert_platform.core.errors import EndpointError
from upsert_platform.spark import scratch
from upsert_platform.spark.session import open_session

HELD = """
import sys
from upsert_platform.spark import scratch
folder = scratch.scratch_folder()
(folder / "blockmgr").mkdir()
(folder / "blockmgr" / "data").write_text("x")
print(folder.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # asked for anew
    return tmp_path


def test_only_what_a_killed_process_of_the_platform_left_is_removed(temporary: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", HELD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    killed, alive = processes
    names = [process.stdout.readline().strip() for process in processes if process.stdout is not None]
    own = scratch.scratch_folder()
    foreign = [temporary / "spark-1373c131", scratch.root() / "notes-of-someone"]
    # A process of today that has the number of one that is gone.
    again = scratch.root() / f"{os.getpid()}-12345"
    for folder in (*foreign, again):
        folder.mkdir()
    assert scratch.sweep() == [again.name]
    killed.kill()
    killed.wait()
    assert scratch.sweep() == names[:1]
    assert sorted(folder.name for folder in scratch.root().iterdir()) == sorted([names[1], own.name, foreign[1].name])
    assert foreign[0].is_dir()
    alive.communicate("")
    assert scratch.sweep() == names[1:]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the start of a process is told by the clock")
def test_the_folder_of_a_running_process_stays_when_the_clock_is_set(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = scratch.scratch_folder()
    assert not own.name.partition("-")[2].isdigit(), "an earlier version, which runs beside this one, would remove it"
    # As earlier versions of the platform named it.
    old = scratch.root() / f"{os.getpid()}-{psutil.Process().create_time():.0f}"
    old.mkdir()
    assert scratch.sweep() == []
    before = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: before(process) + 3600)
    assert scratch.scratch_folder() == own
    assert scratch.sweep() == [old.name]
    assert own.is_dir()


def test_a_folder_that_cannot_be_written_is_told_in_one_line(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "root", lambda: Path("/proc/nowhere/host"))
    with pytest.raises(EndpointError, match=r"TMPDIR") as raised:
        open_session()
    assert "\n" not in str(raised.value)
