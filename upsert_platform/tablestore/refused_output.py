"""Where a writing task puts rows that are refused: into a file of the lake, or among what it yields to the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from upsert_platform.destination import RefusedFile, RefusedRow
from upsert_platform.errors import DestinationError

OUTCOME_SCHEMA = pa.schema(
    [("stats", pa.string()), ("file", pa.string()), ("key", pa.string()), ("row", pa.string()), ("reason", pa.string())]
)
"""What a task yields: refused rows (key, row, reason) where there is no file for them, and one row with its `TaskStats`
as JSON and the file."""
OUTCOME_DDL = "stats STRING, file STRING, key STRING, row STRING, reason STRING"
OpenFile = Callable[[], RefusedFile]


class RefusedOutput:
    """The refused rows of one task, which closes it.

    Args:
        name: of the declared table, for messages.
        open_file: where rows go; None to yield them.
        most: rows above which the write fails; None for any number.
    """

    def __init__(self, name: str, *, open_file: OpenFile | None, most: int | None) -> None:
        self._name = name
        self._file = None if open_file is None else open_file()
        self._most = most
        self.count = 0

    def add(self, rows: list[RefusedRow]) -> Iterator[pa.RecordBatch]:
        """Takes rows; yields what the task must yield.

        Raises:
            DestinationError: there are too many.
        """
        self.count += len(rows)
        if self._most is not None and self.count > self._most:
            raise too_many_refused(self._name, self._most, self.count, rows[0])
        if self._file is not None:
            self._file.write(rows)
        elif rows:
            yield _outcome([None] * len(rows), [None] * len(rows), rows)

    def end(self, stats: str) -> pa.RecordBatch:
        """The last thing that a task yields.

        Args:
            stats: its counts as JSON.
        """
        return _outcome([stats], [None if self._file is None else self._file.close()], [])

    def close(self) -> None:
        """Gives up a file that was not ended. Idempotent."""
        if self._file is not None:
            self._file.discard()


def too_many_refused(name: str, most: int, count: int, example: RefusedRow) -> DestinationError:
    """The write is stopped, because so many refused rows say that the declaration is wrong."""
    return DestinationError(
        f"table '{name}': {count} rows were refused, more than 'max.refused.rows' = {most}; for example {example.key}:"
        f" {example.reason}. Mend the declaration or the source, or raise the option; nothing was recorded as applied"
    )


def _outcome(stats: list[str | None], files: list[str | None], rows: list[RefusedRow]) -> pa.RecordBatch:
    empty = [None] * (len(stats) - len(rows))
    columns: list[list[str | None]] = [
        stats,
        files,
        [*(row.key for row in rows), *empty],
        [*(row.row for row in rows), *empty],
        [*(row.reason for row in rows), *empty],
    ]
    return pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], schema=OUTCOME_SCHEMA)
