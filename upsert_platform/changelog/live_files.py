"""The data files of the present version of a table of the lake, from the list that delta-rs gives."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.damage import naming
from upsert_platform.changelog.data_files import read_rows

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    from upsert_platform.changelog.tables import TableLocation

_FEW_FILES: Final = 4
_FEW_ROWS: Final = 20_000


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
    written: int | None = None
    """When it was written, in milliseconds since 1970."""

    def may_hold(self, *, after: int, upto: int) -> bool:
        """Return whether there may be changes of the batches after `after` and up to `upto` in it."""
        if self.first_batch is not None and self.first_batch > upto:
            return False
        if self.last_batch is not None and self.last_batch <= after:
            return False
        least, greatest = min(rows.CHANGE_KINDS), max(rows.CHANGE_KINDS)
        return not (
            (self.least_kind is not None and self.least_kind > greatest)
            or (self.greatest_kind is not None and self.greatest_kind < least)
        )

    def rows_between(self, *, after: int, upto: int) -> int:
        """About how many of its rows are of the batches after `after` and up to `upto`: as if all were alike."""
        if self.rows is None or self.first_batch is None or self.last_batch is None:
            return self.rows or 0
        there = self.last_batch - self.first_batch + 1
        wanted = min(self.last_batch, upto) - max(self.first_batch - 1, after)
        return -(-self.rows * max(0, wanted) // there)

    def may_hold_kind(self, kind: str, *, after: int, upto: int | None) -> bool:
        """Return whether there may be rows of a kind, of the batches after `after` and up to `upto`, in it."""
        if upto is not None and self.first_batch is not None and self.first_batch > upto:
            return False
        if self.last_batch is not None and self.last_batch <= after:
            return False
        least = self.least_kind is None or self.least_kind <= kind
        return least and (self.greatest_kind is None or self.greatest_kind >= kind)

    def bounds(self) -> pc.Expression:
        """Return the predicate that the file's statistics imply for each of its rows."""
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

    table = pa.RecordBatchReader.from_stream(delta.get_add_actions(flatten=True)).read_all()
    columns = [
        table.column(name).to_pylist() if name in table.column_names else [None] * table.num_rows
        for name in (
            "path", "size_bytes", "num_records",
            f"min.{rows.BATCH}", f"max.{rows.BATCH}", f"min.{rows.KIND}", f"max.{rows.KIND}", "modification_time",
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


def read_kind(
    delta: DeltaTable | None,
    location: TableLocation,
    schema: pa.Schema,
    columns: Sequence[str],
    *,
    kind: str,
    after: int,
    upto: int | None,
) -> pa.Table:
    """Columns of the rows of a kind in the batches after `after` and up to `upto`; none where there is no table.

    Args:
        schema: of all rows.

    Raises:
        ChangelogError: a file is gone or damaged; it is named.
    """
    import pyarrow as pa

    wanted = pa.schema([schema.field(name) for name in columns])
    files = [] if delta is None else live_files(delta)
    found = [item for item in files if item.may_hold_kind(kind, after=after, upto=upto)]
    if delta is None or not found:
        return pa.Table.from_batches([], schema=wanted)  # without pandas, which Arrow would load for an array
    paths = [item.path for item in found]
    read = pa.schema([schema.field(name) for name in dict.fromkeys([*columns, rows.BATCH, rows.KIND])])
    if len(found) > _FEW_FILES or sum(_FEW_ROWS if item.rows is None else item.rows for item in found) > _FEW_ROWS:
        condition = rows_of(kind, after=after, upto=upto)
        with naming(location.uri):
            try:
                return live_dataset(delta).to_table(columns=list(columns), filter=condition).cast(wanted)
            except (OSError, pa.ArrowException):
                deque(read_rows(location, paths, schema=read), maxlen=0)  # one by one, which names the file
                raise
    # A dataset of all files costs as much for rows of one of them as for those of a thousand.
    parts = read_rows(location, paths, schema=read)
    table = pa.Table.from_batches(parts, schema=read)
    return table.filter(_mask(table, kind, after=after, upto=upto)).select(list(columns))


def _mask(table: pa.Table, kind: str, *, after: int, upto: int | None) -> pa.BooleanArray:
    """Return what `rows_of` selects, of some thousand rows.

    Arrow loads pandas to take a value of Python or to give an array of numpy, which takes longer than a look at many
    changelogs.
    """
    import numpy as np
    import pyarrow as pa

    batch = np.fromiter(table.column(rows.BATCH).to_pylist(), np.int64, table.num_rows)
    chosen = np.fromiter((item == kind for item in table.column(rows.KIND).to_pylist()), bool, table.num_rows)
    chosen &= batch > after
    if upto is not None:
        chosen &= batch <= upto
    bits = np.packbits(chosen, bitorder="little")
    return pa.BooleanArray.from_buffers(pa.bool_(), len(chosen), [None, pa.py_buffer(bits)])


def rows_of(kind: str, *, after: int, upto: int | None) -> pc.Expression:
    """Return what selects the rows of a kind in the batches after one and up to another."""
    import pyarrow.dataset as ds

    condition = (ds.field(rows.KIND) == kind) & (ds.field(rows.BATCH) > after)
    return condition if upto is None else condition & (ds.field(rows.BATCH) <= upto)


def deal(files: Sequence[LiveFile], shares: int) -> list[list[LiveFile]]:
    """Divide files into shares of about as many bytes each, the largest files first."""
    hands: list[list[LiveFile]] = [[] for _ in range(shares)]
    for item in sorted(files, key=lambda item: (-item.size, item.path)):
        min(hands, key=lambda hand: sum(other.size for other in hand)).append(item)
    return hands
