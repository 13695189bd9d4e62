"""The results that writing tasks hand to the driver: counts, rejected rows, and the error that ended one. Once for
every system.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from upsert_platform.core.destination import KeepRefused, KeepsFiles, RefusedFile, RefusedRow, WriteReport
from upsert_platform.core.errors import DestinationError, UpsertPlatformError
from upsert_platform.core.masking import NO_MASK, Mask
from upsert_platform.core.spark_failures import failure_of, job_failures
from upsert_platform.core.task_runner import RowsOfTask, RowsOfTasks, answers_of
from upsert_platform.writing.judge import Judge

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

OUTCOME_DDL: Final = "stats STRING, file STRING, key STRING, row STRING, reason STRING"
"""What a task yields: rows with its counts as JSON (stats) and the file of its refused rows; refused rows (key, row,
reason) where there is no file for them."""
_EXAMPLES: Final = 20
_BATCH_ROWS: Final = 20_000
"""Rows that a task in this process is given at once: as many as Spark gives its tasks."""
_TASK_DIED: Final = ("PythonException", "Python worker exited")


@dataclass(slots=True)
class TaskStats:
    """Counts of one task, or of several: a dataclass of numbers, and of texts that say something of the first case.

    Attributes:
        refused: rows that the destination does not take.
    """

    refused: int = 0

    def to_json(self) -> str:
        """The form that a task yields."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of to_json."""
        return cls(**json.loads(text))

    def add(self, other: Self) -> None:
        """Sums up tasks."""
        for name, value in asdict(other).items():
            own = getattr(self, name)
            setattr(self, name, (own or value) if isinstance(value, str) else own + value)


_Stats = TypeVar("_Stats", bound=TaskStats)


@dataclass(frozen=True)
class Written(Generic[_Stats]):
    """The result of the tasks of a write.

    Attributes:
        stats: the kind of their counts.
        parts: the counts that tasks told, in the order of tasks.
        files: of refused rows.
        rows: refused rows that are in no file.
        keep: takes refused rows.
    """

    stats: type[_Stats]
    parts: tuple[_Stats, ...]
    files: tuple[str, ...]
    rows: tuple[RefusedRow, ...]
    keep: KeepRefused

    @property
    def total(self) -> _Stats:
        """The sums of the counts."""
        total = self.stats()
        for part in self.parts:
            total.add(part)
        return total

    def refused(self) -> Iterator[list[RefusedRow]]:
        """The refused rows, a few megabytes at a time."""
        if self.files and isinstance(self.keep, KeepsFiles):
            yield from self.keep.rows_of(self.files)
        if self.rows:
            yield list(self.rows)

    def keep_refused(self) -> None:
        """Hands the refused rows over to be kept, none too."""
        if isinstance(self.keep, KeepsFiles):
            self.keep.keep_files(self.files)
        else:
            self.keep(self.rows)

    def with_refused(self, rows: Sequence[RefusedRow], stats: _Stats) -> Written[_Stats]:
        """These results with rows that were rejected after the tasks had ended, and their counts."""
        if not rows:
            return self
        more = replace(self, parts=(*self.parts, stats))
        if not isinstance(self.keep, KeepsFiles):
            return replace(more, rows=(*self.rows, *rows))
        file = self.keep.open_file()
        try:
            file.write(rows)
            name = file.close()
        finally:
            file.discard()
        return replace(more, files=(*self.files, name or ""))

    def discard(self) -> None:
        """Removes the files, because the write failed."""
        if isinstance(self.keep, KeepsFiles):
            self.keep.discard_files(self.files)

    def examples(self) -> tuple[RefusedRow, ...]:
        """Some refused rows."""
        return tuple(next(self.refused(), [])[:_EXAMPLES])

    def report(
        self, *, upserts: int, deletes: int, metrics: Mapping[str, int | float | str] | None = None
    ) -> WriteReport:
        """Return the report of the write, with the rejected rows."""
        refused = sum(part.refused for part in self.parts)
        return WriteReport(upserts, deletes, refused, self.examples(), metrics or {})


def opener_of(keep: KeepRefused) -> Callable[[], RefusedFile] | None:
    """Opens files for refused rows, where whoever keeps them takes files."""
    return keep.open_file if isinstance(keep, KeepsFiles) else None


def run_tasks(
    frame: DataFrame | RowsOfTask | RowsOfTasks,
    task: Callable[[Any], Any],
    stats: type[_Stats],
    *,
    what: str,
    keep: KeepRefused,
    judge: Judge | None = None,
    most: int | None = None,
    mask: Mask = NO_MASK,
) -> Written[_Stats]:
    """Writes a frame by a function for ``mapInArrow`` that yields outcomes (`OUTCOME_DDL`).

    Args:
        frame: of Spark, whose workers call the function, rows of a task, whose runner calls it once, or rows of several
            tasks, each of which calls it.
        what: is written, for messages: ``table 'users'``.
        keep: where refused rows go; the task has its `opener_of`.
        judge: sets rows aside before the task sees them.
        most: refused rows above which the write fails, without those that could not be computed; None for any number.
        mask: what a message of a refused row does not show.

    Raises:
        UpsertPlatformError: what a task raised, or DestinationError when a task ended otherwise.
    """
    from upsert_platform.writing.refused_output import computed_task, judged_task, too_many_refused

    if judge is not None and judge.refuses:
        task = judged_task(task, judge, what=what, open_file=opener_of(keep))
    if isinstance(frame, (RowsOfTask, RowsOfTasks)) and frame.failed_key is not None:
        task = computed_task(task, frame.failed_key, what=what, open_file=opener_of(keep))
    parts: list[_Stats] = []
    files: list[str] = []
    refused: list[RefusedRow] = []
    count = 0
    of_destination: list[str] = []
    progress = keep.progress if isinstance(keep, KeepsFiles) else None
    if progress is not None:
        from upsert_platform.writing.progress import counted_task

        task = counted_task(task, progress.counter)
    with nullcontext() if progress is None else progress.watched():
        rows = _outcomes(frame, task, what)
    for row in rows:
        if row["stats"] is not None:
            parts.append(stats.from_json(row["stats"]))
            named = [row["file"]] if row["file"] is not None else []
            files += named
            if row["reason"] is None:
                count, of_destination = count + parts[-1].refused, [*of_destination, *named]
        else:
            refused.append(RefusedRow(row["key"], row["row"], row["reason"]))
    written = Written(stats, tuple(parts), tuple(files), tuple(refused), keep)
    if most is not None and count > most:
        example = replace(written, files=tuple(of_destination)).examples()[0]
        written.discard()
        raise too_many_refused(what, most, count, mask.told(example))
    return written


def _outcomes(frame: DataFrame | RowsOfTask | RowsOfTasks, task: Callable[[Any], Any], what: str) -> Sequence[Any]:
    """Return the outcomes of the tasks, row by row."""
    if isinstance(frame, RowsOfTasks):
        with raising_what_tasks_raised(what):
            done = answers_of(
                frame.spark, [partial(_share_written, make, task) for make in frame.makers()], what=f"write {what}"
            )
        for _, counts in done:
            frame.counted.update(counts)
        return [row for found, _ in done for row in found]
    if not isinstance(frame, RowsOfTask):
        with raising_what_tasks_raised(what):
            rows: list[Any] = frame.mapInArrow(task, OUTCOME_DDL).collect()
            return rows
    try:
        rows, counted = frame.runner.call(partial(_made_and_written, frame.make, task), what=f"write {what}")
        frame.counted.update(counted)
        return rows
    except UpsertPlatformError:
        raise
    except Exception as error:
        raise DestinationError(f"{what}: writing failed: {type(error).__name__}: {str(error)[:2000]}") from error


def _made_and_written(
    make: Callable[[], tuple[pa.Table, dict[str, int]]], task: Callable[[Any], Any]
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The whole work of a task that makes the rows which it writes."""
    table, counted = make()
    batches = iter(table.to_batches(max_chunksize=_BATCH_ROWS))
    return [row for outcome in task(batches) for row in outcome.to_pylist()], counted


def _share_written(
    make: Callable[[], Iterator[tuple[pa.Table, dict[str, int]]]], task: Callable[[Any], Any]
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The whole work of a task that makes the rows of a share, part by part, and writes them."""
    counts: Counter[str] = Counter()

    def batches() -> Iterator[pa.RecordBatch]:
        for table, counted in make():
            counts.update(counted)
            yield from table.to_batches(max_chunksize=_BATCH_ROWS)

    return [row for outcome in task(batches()) for row in outcome.to_pylist()], counts


@contextmanager
def raising_what_tasks_raised(what: str) -> Iterator[None]:
    """Turns what Spark raises of a failed task into the error that the task raised.

    Faults that are no task's, such as those of the declared SQL, stay Spark's.

    Raises:
        UpsertPlatformError: what a task raised, or DestinationError when it ended otherwise.
    """
    try:
        yield
    except job_failures() as error:
        raised = failure_of(error)
        if raised is None and not any(sign in str(error) for sign in _TASK_DIED):
            raise
        raise raised or DestinationError(f"{what}: a writing task failed: {str(error)[:2000]}") from error
