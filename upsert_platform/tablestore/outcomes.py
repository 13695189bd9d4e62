"""What the driver makes of the outcomes of writing tasks, and of their errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from upsert_platform.destination import KeepRefused, KeepsFiles, RefusedRow
from upsert_platform.writing.outcomes import raising_what_tasks_raised

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from upsert_platform.tablestore.options import TablestoreSettings
    from upsert_platform.tablestore.refused_output import OpenFile
    from upsert_platform.tablestore.task import TaskStats

_EXAMPLES = 20


@dataclass(frozen=True)
class Written:
    """What the tasks of a write did.

    Attributes:
        total: sums of their counts.
        files: of refused rows.
        rows: refused rows that are in no file.
        keep: takes refused rows.
    """

    total: TaskStats
    files: tuple[str, ...]
    rows: tuple[RefusedRow, ...]
    keep: KeepRefused

    def refused(self) -> Iterator[list[RefusedRow]]:
        """The refused rows, a few megabytes at a time."""
        if self.files and isinstance(self.keep, KeepsFiles):
            yield from self.keep.rows_of(self.files)
        elif self.rows:
            yield list(self.rows)

    def keep_refused(self) -> None:
        """Hands the refused rows over to be kept, none too."""
        if isinstance(self.keep, KeepsFiles):
            self.keep.keep_files(self.files)
        else:
            self.keep(self.rows)

    def discard(self) -> None:
        """Removes the files, because the write failed."""
        if isinstance(self.keep, KeepsFiles):
            self.keep.discard_files(self.files)

    def examples(self) -> tuple[RefusedRow, ...]:
        """Some refused rows."""
        return tuple(next(self.refused(), [])[:_EXAMPLES])


def opener_of(keep: KeepRefused) -> OpenFile | None:
    """Opens files for refused rows, where whoever keeps them takes files."""
    return keep.open_file if isinstance(keep, KeepsFiles) else None


def run_writing_task(
    frame: DataFrame, task: Callable[[Any], Any], *, name: str, settings: TablestoreSettings, keep: KeepRefused
) -> Written:
    """Writes a frame by a task of `upsert_platform.tablestore.task`.

    Args:
        keep: where refused rows go; the task has its `opener_of`.

    Raises:
        DestinationError: the write failed for good, or more rows were refused than ``max.refused.rows``.
        LeaseHeldError: the lease was lost, or ends before the write can.
        RecordError: Tablestore does not take a row, and ``on-error`` is ``fail``.
    """
    from upsert_platform.tablestore.refused_output import OUTCOME_DDL, too_many_refused
    from upsert_platform.tablestore.task import TaskStats

    total = TaskStats()
    refused: list[RefusedRow] = []
    files: list[str] = []
    with raising_what_tasks_raised(f"table '{name}'"):
        for outcome in frame.mapInArrow(task, OUTCOME_DDL).collect():
            if outcome.stats is not None:
                total.add(TaskStats.from_json(outcome.stats))
                files += [outcome.file] if outcome.file is not None else []
            else:
                refused.append(RefusedRow(outcome.key, outcome.row, outcome.reason))
    written = Written(total, tuple(files), tuple(refused), keep)
    most = settings.max_refused_rows
    if most is not None and total.refused > most:
        example = written.examples()[0]
        written.discard()
        raise too_many_refused(name, most, total.refused, example)
    return written
