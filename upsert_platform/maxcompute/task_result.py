"""The counts of a writing task, and its loop over batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from upsert_platform.core.destination import RefusedRow
from upsert_platform.core.errors import DestinationError
from upsert_platform.maxcompute.connection import Connection, ServiceError
from upsert_platform.maxcompute.names import TableName
from upsert_platform.writing.outcomes import TaskStats

if TYPE_CHECKING:
    import pyarrow as pa

    from upsert_platform.maxcompute.rows import WireRows
    from upsert_platform.writing.refused_output import OpenFile


@dataclass(slots=True)
class TaskResult(TaskStats):
    """Counts of one attempt of a task.

    Attributes:
        stream_id: of the stream that it closed; None when it opened none.
        version: of that stream.
        rows: sent, deletes included.
    """

    stream_id: str | None = None
    version: int = 0
    rows: int = 0
    deletes: int = 0
    bytes: int = 0
    requests: int = 0
    retries: int = 0
    seconds: float = 0.0

    def count(self, ready: WireRows) -> None:
        """Adds rows that are sent, and those that are refused."""
        self.rows += ready.rows.num_rows
        self.deletes += ready.deletes
        self.refused += len(ready.refused)


class Writing(Protocol):
    """An attempt of a task that writes."""

    result: TaskResult

    def add(self, changes: pa.RecordBatch) -> Sequence[RefusedRow]:
        """Takes a batch of the change frame; gives the rows that are refused."""

    def finish(self) -> None:
        """Waits until all is there."""

    def close(self) -> None:
        """Gives up threads and connections, after success and failure alike."""


def write_all(
    batches: Iterator[pa.RecordBatch],
    writer: Writing,
    *,
    target: TableName,
    connection: Connection,
    open_file: OpenFile | None,
) -> Iterator[pa.RecordBatch]:
    """Writes the batches of a task; yields outcomes (none without rows).

    Args:
        open_file: opens a file for refused rows; without it they are yielded.

    Raises:
        DestinationError: rows could not be sent.
    """
    from upsert_platform.writing.refused_output import RefusedOutput

    output = RefusedOutput(f"table {target}", open_file=open_file)
    started = time.monotonic()
    result = writer.result
    try:
        try:
            for batch in batches:
                refused = writer.add(batch)
                if refused:
                    yield from output.add(refused)
            writer.finish()
        finally:
            writer.close()
        result.seconds = time.monotonic() - started
        if result.rows or result.refused:
            yield output.end(result.to_json())
    except ServiceError as error:
        reason = connection.hide(str(error))
        raise DestinationError(f"writing to {target}: {reason}. Nothing was committed; run again") from error
    finally:
        output.close()
