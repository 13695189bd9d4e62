"""The sink of rows that a writing task rejects: a file of the lake, or the results sent to the driver.

Runs in Spark workers. Of every system alike: nobody holds more refused rows than a file's row group.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.destination import FAILED, OPERATION, SEQUENCE, RefusedFile, RefusedRow
from upsert_platform.core.errors import DestinationError, RecordError
from upsert_platform.core.internal_columns import is_internal
from upsert_platform.core.masking import NO_MASK, Mask
from upsert_platform.writing.judge import Judge
from upsert_platform.writing.not_null import null_refusals
from upsert_platform.writing.row_text import refused_row

OUTCOME_SCHEMA = pa.schema(
    [("stats", pa.string()), ("file", pa.string()), ("key", pa.string()), ("row", pa.string()), ("reason", pa.string())]
)
"""`OUTCOME_DDL` as Arrow has it."""
KEEP_ASIDE = ", or set 'on-error' = 'quarantine' to keep it aside"
"""Part of what is told of a row that ended a write."""
UNCOMPUTED = "uncomputed"
"""The reason that is told of the counts of rows which no destination was asked to take."""
OpenFile = Callable[[], RefusedFile]


class RefusedOutput:
    """The refused rows of one task, which closes it.

    Args:
        what: is written, for messages: ``table 'users'``.
        open_file: where rows go; None to yield them.
        most: rows above which the write fails; None for any number.
        mask: what a message of such a row does not show.
    """

    def __init__(self, what: str, *, open_file: OpenFile | None, most: int | None = None, mask: Mask = NO_MASK) -> None:
        self._what = what
        self._mask = mask
        self._file = None if open_file is None else open_file()
        self._most = most
        self.count = 0

    def add(self, rows: Sequence[RefusedRow]) -> Iterator[pa.RecordBatch]:
        """Takes rows; yields what the task must yield.

        Raises:
            DestinationError: there are too many.
        """
        self.count += len(rows)
        if self._most is not None and self.count > self._most:
            raise too_many_refused(self._what, self._most, self.count, self._mask.told(rows[0]))
        if self._file is not None:
            self._file.write(rows)
        elif rows:
            yield _outcome([None] * len(rows), [None] * len(rows), rows)

    def end(self, stats: str, *, reason: str | None = None) -> pa.RecordBatch:
        """The last thing that a task yields.

        Args:
            stats: its counts as JSON.
            reason: of all of its refused rows, where they do not count against ``max.refused.rows``.
        """
        found = _outcome([stats], [None if self._file is None else self._file.close()], [])
        place = found.schema.get_field_index("reason")
        return found if reason is None else found.set_column(place, found.schema.field(place), pa.array([reason]))

    def close(self) -> None:
        """Gives up a file that was not ended. Idempotent."""
        if self._file is not None:
            self._file.discard()


Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for ``mapInArrow`` that writes rows and yields outcomes."""


def judged_task(task: Task, judge: Judge, *, what: str, open_file: OpenFile | None) -> Task:
    """A writing task that gets the rows that a judge lets pass; the others are refused beside it.

    Args:
        open_file: where refused rows go; None to yield them.
    """

    def refused(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[RefusedRow]]:
        reasons = {**null_refusals(batch, judge.not_null), **_null_keys(batch, judge)}
        rows = [
            refused_row(batch, row, columns=judge.columns, key=judge.key, reason=reason)
            for row, reason in sorted(reasons.items())
        ]
        if rows and judge.fails:
            raise RecordError(
                f"{what}: row {judge.mask.object(rows[0].key)} cannot be written:"
                f" {judge.mask.reason(rows[0].reason)}. Mend the row or its source"
                + (KEEP_ASIDE if judge.keeps else "")
            )
        passes = np.ones(batch.num_rows, bool)
        passes[list(reasons)] = False
        return batch.filter(pa.array(passes)) if rows else batch, rows

    return _beside(task, refused, what=what, open_file=open_file)


def computed_task(task: Task, key: Sequence[str], *, what: str, open_file: OpenFile | None) -> Task:
    """A writing task that gets the rows that could be computed, without `FAILED`; the others are refused beside it.

    Args:
        key: names of the primary key columns.
        open_file: where refused rows go; None to yield them.
    """

    def refused(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[RefusedRow]]:
        if FAILED not in batch.schema.names:
            return batch, []
        if batch.column(FAILED).null_count == batch.num_rows:
            return batch.drop_columns([FAILED]), []
        failed = pc.is_valid(batch.column(FAILED))
        others = batch.filter(failed)
        columns = [name for name in batch.schema.names if name not in (SEQUENCE, OPERATION) and not is_internal(name)]
        rows = [
            refused_row(others, row, columns=columns, key=key, reason=reason)
            for row, reason in enumerate(others.column(FAILED).to_pylist())
        ]
        return batch.filter(pc.invert(failed)).drop_columns([FAILED]), rows

    return _beside(task, refused, what=what, open_file=open_file, reason=UNCOMPUTED)


def _beside(
    task: Task,
    refused: Callable[[pa.RecordBatch], tuple[pa.RecordBatch, list[RefusedRow]]],
    *,
    what: str,
    open_file: OpenFile | None,
    reason: str | None = None,
) -> Task:
    """A writing task beside which rows are refused.

    Args:
        refused: divides a batch into what the task gets and what is refused.
        reason: as of `RefusedOutput.end`.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output = RefusedOutput(what, open_file=open_file)
        waiting: list[pa.RecordBatch] = []

        def passing() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                passes, rows = refused(batch)
                if rows:
                    waiting.extend(output.add(rows))
                if passes.num_rows or not rows:
                    yield passes

        try:
            for found in task(passing()):
                yield from waiting
                waiting.clear()
                yield found
            yield from waiting
            if output.count:
                yield output.end(json.dumps({"refused": output.count}), reason=reason)
        finally:
            output.close()

    return write


def _null_keys(batch: pa.RecordBatch, judge: Judge) -> dict[int, str]:
    """Return the rows with a null in their key, each with the reason."""
    found: dict[int, str] = {}
    for name in judge.key if judge.keys_too else ():
        if batch.column(name).null_count:
            nulls = pc.indices_nonzero(batch.column(name).is_null()).to_pylist()
            found = {**dict.fromkeys(nulls, f"primary key column '{name}' is null"), **found}
    return found


def aside_task(
    *, reason: str, columns: Sequence[str], key: Sequence[str], what: str, open_file: OpenFile | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` that refuses every row it gets.

    Args:
        reason: name of the column that tells why.
        columns: names of those that are kept.
        key: names of the primary key columns.
        open_file: where rows go; None to yield them.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output = RefusedOutput(what, open_file=open_file)
        try:
            for batch in batches:
                reasons = enumerate(batch.column(reason).to_pylist())
                yield from output.add(
                    [refused_row(batch, row, columns=columns, key=key, reason=str(text)) for row, text in reasons]
                )
            if output.count:
                yield output.end(json.dumps({"refused": output.count}))
        finally:
            output.close()

    return write


def too_many_refused(what: str, most: int, count: int, example: str) -> DestinationError:
    """The write is stopped, because so many refused rows say that the declaration is wrong."""
    return DestinationError(
        f"{what}: {count} rows were refused, more than 'max.refused.rows' = {most}; for example"
        f" {example}. Mend the declaration or the source, or raise the option; nothing was recorded as applied"
    )


def _outcome(stats: list[str | None], files: list[str | None], rows: Sequence[RefusedRow]) -> pa.RecordBatch:
    empty = [None] * (len(stats) - len(rows))
    columns: list[list[str | None]] = [
        stats,
        files,
        [*(row.key for row in rows), *empty],
        [*(row.row for row in rows), *empty],
        [*(row.reason for row in rows), *empty],
    ]
    return pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], schema=OUTCOME_SCHEMA)
