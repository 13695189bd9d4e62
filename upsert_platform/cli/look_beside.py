"""Asks the tables of the shipped code location in a process of its own, while this one loads Dagster.

Both take seconds of a processor for a project of many tables. What the process cannot tell, the caller asks itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from upsert_platform.core.collections_off import collections_off

if TYPE_CHECKING:
    from upsert_platform.sync.looks import Asked, Look


class LookBeside:
    """Looks that a process makes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @cached_property
    def looks(self) -> Mapping[Asked, Look]:
        """Looks by what was asked; nothing where the process did not come to its end, for which this waits."""
        from upsert_platform.sync.looks import Asked, Kind, Look

        output, _ = self._process.communicate()
        told: list[dict[str, Any]] = json.loads(output) if self._process.returncode == 0 else []
        return {Asked(Kind(item.pop("kind")), item.pop("table")): Look(**item) for item in told}


@contextmanager
def looking_beside() -> Iterator[LookBeside]:
    """Start a process that asks the tables of the environment's project; it ends with the block at the latest."""
    command = [sys.executable, "-m", "upsert_platform.cli.look_beside"]
    # Its errors are those of the caller, which asks again and shows them.
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield LookBeside(process)
        finally:
            process.kill()


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


if __name__ == "__main__":
    with collections_off(lasting=True):
        told = [{"kind": asked.kind, "table": asked.table, **asdict(look)} for asked, look in _looks().items()]
    sys.stdout.write(json.dumps(told))
