"""What a writing task tells the driver: one row per task."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from upsert_platform.destination import RefusedRow

if TYPE_CHECKING:
    import pyarrow as pa

    from upsert_platform.maxcompute.rows import WireRows

MOST_REFUSED: Final = 10_000
"""Refused rows that a task hands back; of more of them only the number is known, and the write fails."""

RESULT_SCHEMA: Final = (
    "stream_id STRING, version BIGINT, rows BIGINT, deletes BIGINT, bytes BIGINT, requests BIGINT, retries BIGINT,"
    " seconds DOUBLE, refused_count BIGINT, refused STRING"
)


@dataclass(slots=True)
class TaskResult:
    """Counts of one attempt of a task.

    Attributes:
        stream_id: of the stream that it closed; None when it opened none.
        version: of that stream.
        rows: sent, deletes included.
        refused: at most `MOST_REFUSED` of the refused rows.
    """

    stream_id: str | None = None
    version: int = 0
    rows: int = 0
    deletes: int = 0
    bytes: int = 0
    requests: int = 0
    retries: int = 0
    seconds: float = 0.0
    refused_count: int = 0
    refused: list[RefusedRow] = field(default_factory=list)

    def count(self, ready: WireRows) -> None:
        """Adds rows that are sent, and those that are refused."""
        self.rows += ready.rows.num_rows
        self.deletes += ready.deletes
        self.refused_count += len(ready.refused)
        self.refused.extend(ready.refused[: MOST_REFUSED - len(self.refused)])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The row for the driver, of `RESULT_SCHEMA`; none when the task had nothing to do."""
        import pyarrow as pa

        if not self.rows and not self.refused_count:
            return
        kinds = {"STRING": pa.string(), "BIGINT": pa.int64(), "DOUBLE": pa.float64()}
        pairs = (part.split() for part in RESULT_SCHEMA.split(","))
        schema = pa.schema([pa.field(name, kinds[kind]) for name, kind in pairs])
        values = {name: getattr(self, name) for name in schema.names}
        values["refused"] = json.dumps([asdict(row) for row in self.refused])
        yield pa.RecordBatch.from_pylist([values], schema=schema)


class Writing(Protocol):
    """An attempt of a task that writes."""

    result: TaskResult

    def add(self, changes: pa.RecordBatch) -> None:
        """Takes a batch of the change frame."""

    def finish(self) -> None:
        """Waits until all is there."""

    def close(self) -> None:
        """Gives up threads and connections, after success and failure alike."""


def write_all(batches: Iterator[pa.RecordBatch], writer: Writing) -> Iterator[pa.RecordBatch]:
    """Writes the batches of a task; yields its `TaskResult` row (none without rows).

    Raises:
        ServiceError: rows could not be sent.
    """
    started = time.monotonic()
    try:
        for batch in batches:
            writer.add(batch)
        writer.finish()
    finally:
        writer.close()
    writer.result.seconds = time.monotonic() - started
    yield from writer.result.batches()
