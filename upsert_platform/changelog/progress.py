"""Progress of the tasks of a write, as empty files in the lake: one per task, named by its number of rows.

Spark tells the counts of a task when it has ended, which may be after minutes. Tasks of every machine reach the lake,
and one listing gives all counts. What killed runs leave is deleted by upkeep.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.tables import TableLocation, file_system

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

FOLDER: Final = "_progress"
"""Folder of a Delta table; what begins so is none of its data."""
EVERY: Final = 5.0
"""Seconds between two lines, and between two counts of a task."""
_SAMPLES: Final = 7
"""The rate is that of the last six lines."""
_LOG: Final = logging.getLogger(__name__)


class WriteProgress:
    """Implements `upsert_platform.core.destination.Progress`.

    Args:
        location: of the Delta table beside which counts are kept.
        what: is written, for lines: ``table 'users'``.
        tell: is given a line every few seconds while tasks run, from a thread of its own.
        most: rows to write at most; None where that is not known.
        every: seconds between two lines.
    """

    def __init__(
        self,
        location: TableLocation,
        *,
        what: str,
        tell: Callable[[str], None],
        most: int | None = None,
        every: float | None = None,
    ) -> None:
        self._folder = location.below(f"{FOLDER}/{uuid.uuid4().hex}")
        self._what = what
        self._tell = tell
        self._most = most
        self._every = EVERY if every is None else every

    @property
    def counter(self) -> Callable[[int], TaskCounter]:
        """Opens the counter of a task, given its place among the tasks."""
        return partial(TaskCounter, self._folder, self._every, time.time() + self._every)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Report the counts until the context ends."""
        ended = threading.Event()
        thread = threading.Thread(target=self._watch, args=(ended,), name=f"progress of {self._what}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            remove_counts(self._folder)

    def _watch(self, ended: threading.Event) -> None:
        started = time.monotonic()
        samples = deque([(started, 0)], maxlen=_SAMPLES)
        while not ended.wait(self._every):
            try:
                rows = rows_counted(self._folder)
            except OSError as error:
                _LOG.debug("%s: counts of tasks could not be read: %s", self._what, error)
                continue
            now = time.monotonic()
            rate = (rows - samples[0][1]) / (now - samples[0][0])
            samples.append((now, rows))
            self._tell(progress_line(self._what, rows=rows, most=self._most, seconds=now - started, rate=rate))


class TaskCounter:
    """Keeps the count of one task where the driver finds it. A count that cannot be kept stops no write.

    Args:
        folder: of the write.
        every: seconds between two counts.
        loud_from: seconds since 1970 from when on a task that ends tells its count: short writes leave no files.
        task: place among the tasks of the write; a task that is tried again takes the place of its first try.
    """

    def __init__(self, folder: TableLocation, every: float, loud_from: float, task: int) -> None:
        self._folder = folder
        self._every = every
        self._loud_from = loud_from
        self._task = task
        self._last = ""
        self._told = time.monotonic()

    def __call__(self, rows: int, *, ended: bool = False) -> None:
        """Takes the rows that are done by now."""
        now = time.monotonic()
        if time.time() < self._loud_from if ended else now - self._told < self._every:
            return
        self._told = now
        name = f"{self._task}-{rows}"
        if name == self._last:
            return
        with suppress(OSError):
            system, folder = file_system(self._folder)
            if self._folder.path is not None:
                system.create_dir(folder, recursive=True)
            system.open_output_stream(f"{folder}{name}").close()
            if self._last:
                system.delete_file(f"{folder}{self._last}")
            self._last = name


def rows_counted(folder: TableLocation) -> int:
    """The rows that the tasks of a write have told so far.

    Raises:
        OSError: the folder cannot be listed.
    """
    tasks: dict[str, int] = {}
    for found in _files(folder):
        task, dash, rows = found.base_name.partition("-")
        if dash and rows.isdigit():
            tasks[task] = max(tasks.get(task, 0), int(rows))
    return sum(tasks.values())


def remove_counts(folder: TableLocation, *, before: float | None = None) -> int:
    """Deletes the counts of a write, or of all writes of a table; how many.

    Args:
        before: seconds since 1970; younger ones stay. All are deleted if None.
    """
    system, _ = file_system(folder)
    removed = 0
    with suppress(OSError):
        for found in _files(folder):
            if before is None or (found.mtime is not None and found.mtime.timestamp() < before):
                system.delete_file(found.path)
                removed += 1
        if folder.path is not None and before is None:
            system.delete_dir(folder.path)
    return removed


class ProgressLine(str):
    """A line of a run, with the numbers that it tells.

    Attributes:
        rows: done by now.
        most: to be done at most; None where that is not known.
        rate: rows per second, of late.
    """

    __slots__ = ("most", "rate", "rows")
    rows: int
    most: int | None
    rate: float

    @property
    def seconds_left(self) -> float | None:
        """Return an upper estimate of the remaining seconds at the present rate, or None if it is unknown."""
        return None if self.most is None or self.rate <= 0 else max(0, self.most - self.rows) / self.rate


def progress_line(what: str, *, rows: int, most: int | None, seconds: float, rate: float) -> ProgressLine:
    """A line of a run.

    Args:
        rate: rows per second, of late.
    """
    line = f"{what}: {rows:,} rows" if most is None else f"{what}: {rows:,} of at most {most:,} rows"
    line += f" in {_span(seconds)}, {rate:,.0f} rows/s"
    if most is not None and rate > 0:
        line += f", at most {_span(max(0, most - rows) / rate)} left"
    found = ProgressLine(line)
    found.rows, found.most, found.rate = rows, most, rate
    return found


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _files(folder: TableLocation) -> list[FileInfo]:
    """Files below a folder, with paths that its file system takes; none where there is no such folder."""
    from pyarrow import fs

    system, prefix = file_system(folder)
    selector = fs.FileSelector(prefix or "/", allow_not_found=True, recursive=True)
    return [found for found in system.get_file_info(selector) if found.type is fs.FileType.File]
