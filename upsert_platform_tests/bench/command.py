"""Commands in processes of their own, as a user types them, over a folder with a project, a lake and DAGSTER_HOME."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path


def environment_of(folder: Path) -> dict[str, str]:
    """Return the environment of a command over the folder."""
    places = {"DAGSTER_HOME": "dagster", "UPSERT_PLATFORM_HOME": "lake", "UPSERT_PLATFORM_PROJECT": "project"}
    return {**os.environ, **{name: str(folder / place) for name, place in places.items()}}


def timed_command(folder: Path, *words: str, codes: Collection[int]) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Run `upsert-platform` over the folder; return its seconds and what it printed.

    Args:
        codes: exit codes with which it may end.
    """
    program, started = str(Path(sys.executable).parent / "upsert-platform"), time.monotonic()
    done = subprocess.run([program, *words], env=environment_of(folder), capture_output=True, text=True)
    seconds = time.monotonic() - started
    assert done.returncode in codes, done.stderr[-3000:]
    return seconds, done


def timed_flink(script: Path, text: str) -> float:
    """Run statements by the program that `FLINK_SQL` names; return its seconds.

    Args:
        script: the file that is written for it.
    """
    script.write_text(text, "utf-8")
    started = time.monotonic()
    done = subprocess.run([os.environ["FLINK_SQL"], str(script)], capture_output=True, text=True)
    seconds = time.monotonic() - started
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return seconds
