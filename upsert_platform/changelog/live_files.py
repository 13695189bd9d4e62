"""The data files of the present version of a table of the lake, from the list that delta-rs gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.changelog import rows

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of the present version, and what its statistics tell; None where they tell nothing."""

    path: str
    size: int
    rows: int | None
    first_batch: int | None
    last_batch: int | None
    least_kind: str | None
    greatest_kind: str | None

    def may_hold(self, *, after: int, upto: int) -> bool:
        """Whether there may be changes of the batches after `after` and up to `upto` in it."""
        if self.first_batch is not None and self.first_batch > upto:
            return False
        if self.last_batch is not None and self.last_batch <= after:
            return False
        least, greatest = min(rows.CHANGE_KINDS), max(rows.CHANGE_KINDS)
        return not (
            (self.least_kind is not None and self.least_kind > greatest)
            or (self.greatest_kind is not None and self.greatest_kind < least)
        )


def live_files(delta: DeltaTable) -> list[LiveFile]:
    """The live data files, with what their statistics tell. No JVM."""
    import pyarrow as pa

    table = pa.table(delta.get_add_actions(flatten=True))
    columns = [
        table.column(name).to_pylist() if name in table.column_names else [None] * table.num_rows
        for name in (
            "path", "size_bytes", "num_records",
            f"min.{rows.BATCH}", f"max.{rows.BATCH}", f"min.{rows.KIND}", f"max.{rows.KIND}",
        )
    ]  # fmt: skip
    return [LiveFile(*row) for row in zip(*columns, strict=True)]
