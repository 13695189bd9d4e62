"""Faults of the lake in whole runs: each is refused by file with a remedy, and the next run after it heals."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from upsert_platform_tests.graph.conftest import stack, variables
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.graph.test_faults import failures

__all__ = ["stack", "variables"]

pytestmark = [pytest.mark.systems, pytest.mark.timeout(600)]


def _last(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: (path.stat().st_mtime_ns, path.name))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


FAULTS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a data file is gone": ("*.parquet", Path.unlink, "the file is gone"),
    "a data file is cut": ("*.parquet", _cut, "it is damaged"),
    "the log is cut": ("_delta_log/*.json", _cut, "it is damaged"),
    "the last commit is empty": ("_delta_log/*.json", lambda path: path.write_bytes(b""), "the commit is empty"),
}


def test_each_fault_is_refused_by_name_and_healed_by_the_next_run(stack: Stack, tmp_path: Path) -> None:
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(50))
    assert stack.run().success
    folder = stack.lake / "changelogs" / "users"
    refused = healed = 0
    for number, (name, (pattern, damage, told)) in enumerate(FAULTS.items()):
        stack.produce(stack.users.second_wave(20 + number))
        assert stack.run("sync").success, name
        stack.produce(stack.users.second_wave(40 + number))
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(folder, copy)
        damage(_last(folder, pattern))
        job = "verify" if pattern == "*.parquet" else "sync"
        result = stack.run(job)
        texts = " ".join(failures(result).values())
        assert not result.success, name
        assert told in texts, (name, texts)
        assert "restore it from a copy of the lake" in texts, name
        refused += 1
        shutil.rmtree(folder)
        shutil.copytree(copy, folder)
        assert stack.run().success, name
        assert stack.serving_differences() == [], name
        healed += 1
    print(f"{len(FAULTS)} faults: {refused} refused by name, {healed} healed by the next run")  # noqa: T201
