"""Asks the tables of the shipped code location in a process of its own, while this one loads Dagster.

Both take seconds of a processor for a project of many tables. What the process cannot tell, the caller asks itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from typing import IO, TYPE_CHECKING

from upsert_platform.core.collections_off import collections_off

if TYPE_CHECKING:
    from upsert_platform.sync.looks import Asked, Look


class LookBeside:
    """Looks that a process makes.

    Args:
        answer: what it writes there is what it found; nobody else writes there.
    """

    def __init__(self, process: subprocess.Popen[bytes], answer: IO[bytes]) -> None:
        self._process = process
        self._answer = answer

    @cached_property
    def looks(self) -> Mapping[Asked, Look]:
        """Looks by what was asked; nothing where the process did not come to its end, for which this waits."""
        from upsert_platform.sync.looks import Asked, Kind, Look

        told = self._answer.read()
        if self._process.wait() != 0:
            return {}
        try:
            return {Asked(Kind(item.pop("kind")), item.pop("table")): Look(**item) for item in json.loads(told)}
        except (ValueError, KeyError, TypeError, AttributeError):
            return {}  # such as of another version of the platform, which was installed meanwhile


@contextmanager
def looking_beside() -> Iterator[LookBeside]:
    """Start a process that asks the tables of the environment's project; it ends with the block at the latest.

    It also ends with this process, however that ends.
    """
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as answer:
        try:
            # A module that lies in the working folder is none of the platform's: -P leaves the folder out.
            command = [sys.executable, "-P", "-m", "upsert_platform.cli.look_beside", str(writing)]
            # Modules of the project print what they like. Errors are those of the caller, which asks again and shows
            # them.
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # of which nobody else has the other end: it closes when this process is gone
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(writing,),
            )
        finally:
            os.close(writing)
        with process:
            try:
                yield LookBeside(process, answer)
            finally:
                process.kill()


def _end_with_starter() -> None:
    """Watch the standard input, which closes when the starter is gone; nobody else reads there any more."""
    starter = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def watch() -> None:
        os.read(starter, 1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _looks() -> dict[Asked, Look]:
    from upsert_platform.changelog.lake import default_lake
    from upsert_platform.core.unreachable import AWAY_SECONDS, wait_once_for
    from upsert_platform.sync.binding import bind_sound, load
    from upsert_platform.sync.connectors import keep_connections
    from upsert_platform.sync.looks import Asked, Kind, Looks
    from upsert_platform.sync.project_hops import ProjectHops

    keep_connections()
    wait_once_for(AWAY_SECONDS)
    binding = bind_sound(*load())
    wanted = [
        *(Asked(Kind.CHANGELOG, name) for name in binding.sources),
        *(Asked(Kind.QUERY, name) for name in binding.queries),
        *(Asked(Kind.TABLE, name) for name in binding.targets),
    ]
    return Looks(ProjectHops(binding, default_lake(), keeps=True)).of(wanted)


def _answer(to: int) -> None:
    os.set_inheritable(to, False)
    _end_with_starter()
    with collections_off(lasting=True):
        told = [{"kind": asked.kind, "table": asked.table, **asdict(look)} for asked, look in _looks().items()]
    with os.fdopen(to, "w", encoding="utf-8") as answer:
        json.dump(told, answer)


if __name__ == "__main__":
    _answer(int(sys.argv[1]))
