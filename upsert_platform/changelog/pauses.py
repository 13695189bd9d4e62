"""Tables that are paused: nothing writes them by itself until somebody resumes them. The lake keeps that, for all."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.path_segment import path_segment
from upsert_platform.changelog.tables import file_system

_SUFFIX: Final = ".json"
_LOOKS: Final = 2.0
"""Seconds between two looks of those that ask all the time."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Since when a table is paused, UTC, and why, if somebody said so."""

    since: datetime
    reason: str = ""

    def __str__(self) -> str:
        told = f"paused since {self.since:%Y-%m-%d %H:%M:%S} UTC"
        return f"{told}: {self.reason}" if self.reason else told


def pause(lake: Lake, table: str, *, reason: str = "") -> None:
    """Pauses a table; one that is paused keeps the time, and gets the reason."""
    before = paused(lake).get(table)
    since = before.since if before else datetime.now(UTC)
    text = json.dumps({"table": table, "since": since.isoformat(), "reason": reason}).encode()
    name = f"{path_segment(table)}{_SUFFIX}"
    if (path := lake.paused().path) is None:  # an object is there as a whole, or not
        system, prefix = file_system(lake.paused())
        with system.open_output_stream(f"{prefix}{name}") as file:
            file.write(text)
        return
    # All who write tables read every file: one that a kill left half written would stop them.
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{uuid.uuid4().hex}.part"
    part.write_bytes(text)
    part.replace(folder / name)


def resume(lake: Lake, table: str) -> bool:
    """Lets a table be written again; whether it was paused."""
    found = [path for path, name, _ in _files(lake) if name == table]
    system, _ = file_system(lake.paused())
    for path in found:
        system.delete_file(path)
    return bool(found)


def paused(lake: Lake) -> dict[str, Pause]:
    """The tables that are paused."""
    return {name: pause for _, name, pause in _files(lake)}


def _files(lake: Lake) -> Iterator[tuple[str, str, Pause]]:
    """Yield the path of each file, the table that it pauses, and the pause."""
    from pyarrow import fs

    system, prefix = file_system(lake.paused())
    for item in system.get_file_info(fs.FileSelector(prefix or "/", allow_not_found=True)):
        if item.type is not fs.FileType.File or not item.base_name.endswith(_SUFFIX):
            continue
        try:
            with system.open_input_stream(item.path) as file:
                told = json.loads(file.read())
        except FileNotFoundError:  # resumed meanwhile
            continue
        # A file of an earlier version has the table in its name alone.
        name = str(told["table"]) if "table" in told else unquote(item.base_name.removesuffix(_SUFFIX))
        yield item.path, name, Pause(datetime.fromisoformat(told["since"]), str(told.get("reason", "")))


def watched(lake: Lake, table: str) -> Callable[[], Pause | None]:
    """Return a function that reports whether a table is paused and looks at most every two seconds."""
    looked: tuple[float, Pause | None] = (-_LOOKS, None)

    def look() -> Pause | None:
        nonlocal looked
        now = time.monotonic()
        if now - looked[0] >= _LOOKS:
            looked = now, paused(lake).get(table)
        return looked[1]

    return look
