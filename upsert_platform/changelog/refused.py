"""Rows that a destination refused for good, kept in the lake: a Delta table per destination, written without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.destination import BatchSpan, RefusedRow

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = ("batch", "key", "row", "reason", "at")


class RefusedStore:
    """The refused rows of one destination.

    Args:
        uri: of the Delta table.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def append(self, refused: Sequence[RefusedRow], span: BatchSpan) -> None:
        """Keeps the rows that a write of `span` refused. A replayed span replaces what its first try kept."""
        if not refused:
            return
        import pyarrow as pa
        from deltalake import write_deltalake

        now = datetime.now(UTC)
        table = pa.table(
            {
                "batch": pa.array([span.upto] * len(refused), pa.int64()),
                "key": pa.array([row.key for row in refused], pa.string()),
                "row": pa.array([row.row for row in refused], pa.string()),
                "reason": pa.array([row.reason for row in refused], pa.string()),
                "at": pa.array([now] * len(refused), pa.timestamp("us", tz="UTC")),
            }
        )
        if self._exists():
            # A span that is tried again may have grown, never shrunk: what it covers is everything after span.after.
            write_deltalake(self.uri, table, mode="overwrite", predicate=f"batch > {int(span.after)}")
        else:
            if "://" not in self.uri:
                Path(self.uri).mkdir(parents=True, exist_ok=True)
            write_deltalake(self.uri, table, mode="append")

    def read(self, *, limit: int | None = None) -> pa.Table:
        """The rows kept, by batch: columns batch (int64), key, row, reason (text), at (UTC)."""
        import pyarrow as pa

        if not self._exists():
            empty: Any = {name: pa.array([], pa.string()) for name in COLUMNS}
            return pa.table(empty)
        from deltalake import DeltaTable

        found = DeltaTable(self.uri).to_pyarrow_table().sort_by("batch")
        return found if limit is None else found.slice(0, limit)

    def _exists(self) -> bool:
        from deltalake import DeltaTable

        return bool(DeltaTable.is_deltatable(self.uri))
