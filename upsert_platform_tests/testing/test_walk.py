"""ARCHITECTURE.md names the files that a debugger stops in between `sync` and a written row, and a check's result."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import upsert_platform
from upsert_platform import testing
from upsert_platform_tests.testing.test_harness import USERS, declare

pytest_plugins = ["upsert_platform.testing.plugin"]

PACKAGE = Path(upsert_platform.__file__).parent
MOST_FILES = 15
Walk = tuple[tuple[str, ...], str]


def walks_of_the_page() -> list[Walk]:
    """Files of each row of the table, and the function that its walk ends in."""
    text = (PACKAGE.parent / "ARCHITECTURE.md").read_text("utf-8")
    table = text.partition("## The walk of a batch")[2].partition("\n## ")[0]
    rows = [line.split("|")[2:4] for line in table.splitlines() if line.startswith("| ") and "`" in line]
    return [(tuple(re.findall(r"`([\w/]+\.py)`", files)), re.findall(r"`(\w+)`", end)[0]) for files, end in rows]


@contextmanager
def walks_to(ends: set[tuple[str, str]]) -> Iterator[set[Walk]]:
    """Collects the files of the platform on the stack, outermost first, when one of these functions is called."""
    found: set[Walk] = set()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or (_name(frame), frame.f_code.co_name) not in ends:
            return
        stack: list[str] = []
        at: FrameType | None = frame
        while at is not None:
            name = _name(at)
            if name and not name.startswith("testing/"):  # the systems that this test holds in memory
                stack.append(name)
            at = at.f_back
        found.add((tuple(dict.fromkeys(reversed(stack))), frame.f_code.co_name))

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _name(frame: FrameType) -> str:
    name = frame.f_code.co_filename
    return str(Path(name).relative_to(PACKAGE)) if name.startswith(f"{PACKAGE}/") else ""


def test_a_batch_walks_through_the_files_that_the_page_names(
    tmp_path: Path, upsert_project: Callable[..., testing.ProjectUnderTest]
) -> None:
    users = upsert_project(declare(tmp_path, USERS))
    users.send("users", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    walks = walks_of_the_page()
    with walks_to({(files[-1], end) for files, end in walks}) as found:
        assert users.sync().checks["tables/copies:last_value_per_key"]
    assert set(walks) - found == set(), found
    *to_row, to_result = walks
    assert len({name for files, _ in to_row for name in files}) <= MOST_FILES - 2  # the destination and its writer
    assert len(to_result[0]) <= MOST_FILES
