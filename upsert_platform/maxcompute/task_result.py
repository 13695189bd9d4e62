"""What a writing task tells the driver: one row per task."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from upsert_platform.destination import RefusedRow

if TYPE_CHECKING:
    import pyarrow as pa

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

    def keep(self, refused: Sequence[RefusedRow]) -> None:
        """Adds refused rows."""
        self.refused_count += len(refused)
        self.refused.extend(refused[: MOST_REFUSED - len(self.refused)])

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
