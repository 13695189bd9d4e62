"""The data files of the present version of a table of the lake, from the list that delta-rs gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.changelog import rows

if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
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

    def bounds(self) -> pc.Expression:
        """What the statistics tell of every row of the file."""
        import pyarrow.compute as pc

        told = pc.scalar(True)
        for name, least, greatest in (
            (rows.BATCH, self.first_batch, self.last_batch),
            (rows.KIND, self.least_kind, self.greatest_kind),
        ):
            if least is not None:
                told = told & (pc.field(name) >= least)
            if greatest is not None:
                told = told & (pc.field(name) <= greatest)
        return told


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


def live_dataset(delta: DeltaTable) -> ds.Dataset:
    """The live rows, for reading with Arrow. Files are passed over by the statistics that they have, and no others.

    delta-rs itself takes the bounds that a file does not tell for nulls: Arrow then finds nothing in it. No JVM.
    """
    import pyarrow.dataset as ds

    found = delta.to_pyarrow_dataset()
    known = {item.path: item.bounds() for item in live_files(delta)}
    fragments = [
        found.format.make_fragment(item.path, item.filesystem, partition_expression=known.get(item.path))
        for item in found.get_fragments()
    ]
    return ds.FileSystemDataset(fragments, found.schema, found.format, found.filesystem)
