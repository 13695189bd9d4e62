"""Functions of Spark's tasks that compare a changelog with its table of a database: rows to hashes, hashes to sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from upsert_platform.changelog import rows
from upsert_platform.changelog.latest_in_tasks import ManyRepeatedKeysError, SpanReduction
from upsert_platform.changelog.tables import TableLocation, file_system
from upsert_platform.mysql.chunk_sums import BUCKETS, ChunkTask
from upsert_platform.mysql.chunks import Chunk

Batches = Iterator[pa.RecordBatch]
STATES_DDL: Final = "id BIGINT, place BIGINT, n BIGINT, r INT, hash BIGINT"
SHOWN_DDL: Final = "id BIGINT, n BIGINT, r INT, shown ARRAY<STRING>"
_BEFORE: Final = -1
"""The number of rows that the changelog had."""


@dataclass(frozen=True)
class Places:
    """The place of a key: its value as a number, by which chunks are bounded, or a bucket of its hash."""

    task: ChunkTask

    @property
    def by_value(self) -> bool:
        """Return whether chunks are ranges of the key."""
        return self.task.by_value

    def of(self, ids: np.ndarray) -> np.ndarray:
        """Return the place of each row: ``int64``.

        Args:
            ids: of `ChunkTask.ids`.
        """
        return ids.view(np.int64) if self.by_value else (ids % np.uint64(BUCKETS)).astype(np.int64)


@dataclass(frozen=True)
class HashedRows:
    """The function for ``mapInArrow`` that makes `STATES_DDL` of rows of a changelog.

    Attributes:
        numbered: whether rows have their places in the log.
        kept: columns that are given as they are, behind the others.
    """

    places: Places
    numbered: bool = False
    kept: tuple[str, ...] = ()

    def __call__(self, batches: Batches) -> Batches:

        task = self.places.task
        for batch in batches:
            if not batch.num_rows:
                continue
            ids = task.ids(batch)
            gone = pc.equal(batch.column(rows.KIND), rows.KIND_DELETE)
            hashes = pa.array(task.hashes(batch).view(np.int64))
            yield pa.record_batch(
                {
                    "id": pa.array(ids.view(np.int64)),
                    "place": pa.array(self.places.of(ids)),
                    **_numbers(batch, numbered=self.numbered),
                    "hash": pc.if_else(gone, pa.scalar(None, pa.int64()), hashes),
                    **{name: batch.column(name) for name in self.kept},
                }
            )


def _numbers(batch: pa.RecordBatch, *, numbered: bool) -> dict[str, pa.Array]:
    """The columns `n` and `r`: the place of each row in the log."""

    if numbered:
        return {"n": batch.column(rows.OFFSET).cast(pa.int64()), "r": batch.column(rows.ROW).cast(pa.int32())}
    count = batch.num_rows
    return {"n": pa.array(np.full(count, _BEFORE, np.int64)), "r": pa.array(np.zeros(count, np.int32))}


@dataclass(frozen=True)
class ReducedRows:
    """The function for ``mapInArrow`` that makes `STATES_DDL` of a reduction of a changelog, without deletes.

    Where the reduction has to be divided there is one row without a place.
    """

    span: SpanReduction
    places: Places

    def __call__(self, numbers: Batches) -> Batches:
        try:
            for batch in HashedRows(self.places)(self.span(numbers)):
                yield batch.filter(pc.is_valid(batch.column("hash")))
        except ManyRepeatedKeysError:
            one = {
                "n": pa.array([_BEFORE], pa.int64()),
                "r": pa.array([0], pa.int32()),
                "hash": pa.array([0], pa.int64()),
            }
            yield pa.record_batch({"id": pa.array([0], pa.int64()), "place": pa.nulls(1, pa.int64()), **one})


@dataclass(frozen=True)
class ShownRows:
    """The function for ``mapInArrow`` that gives rows of some keys as texts: `SHOWN_DDL`."""

    task: ChunkTask
    ids: frozenset[int]
    numbered: bool = False

    def __call__(self, batches: Batches) -> Batches:

        for every in batches:
            if not every.num_rows:
                continue
            ids = self.task.ids(every).view(np.int64)
            wanted = pa.array(np.isin(ids, list(self.ids)))
            batch = every.filter(wanted)
            yield pa.record_batch(
                {
                    "id": pa.array(ids).filter(wanted),
                    **_numbers(batch, numbered=self.numbered),
                    "shown": self.task.texts(batch),
                }
            )


@dataclass(frozen=True)
class ReadFiles:
    """The function for ``mapInArrow`` that gets numbers of files and gives their rows."""

    location: TableLocation
    names: tuple[str, ...]

    def __call__(self, numbers: Batches) -> Batches:

        system, folder = file_system(self.location)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                with system.open_input_file(f"{folder}{self.names[number]}") as file:
                    yield from pq.ParquetFile(file).iter_batches()


@dataclass(frozen=True)
class Then:
    """Two functions for ``mapInArrow``, one after the other in the same task."""

    first: Callable[[Batches], Batches]
    then: Callable[[Batches], Batches]

    def __call__(self, batches: Batches) -> Batches:
        return self.then(self.first(batches))


@dataclass(frozen=True)
class OfChunks:
    """The function for ``mapInArrow`` that gets numbers of shares: sums, or rows, of their chunks."""

    task: ChunkTask
    shares: tuple[tuple[tuple[int, Chunk], ...], ...]
    what: str

    def __call__(self, numbers: Batches) -> Batches:
        mine = [item for batch in numbers for number in batch.column(0).to_pylist() for item in self.shares[number]]
        if mine:
            yield from self.task.sums(mine) if self.what == "sums" else self.task.rows(mine)


@dataclass(frozen=True)
class BucketSums:
    """The function for ``mapInArrow`` that gives the sums of all buckets of keys, to one task."""

    task: ChunkTask

    def __call__(self, numbers: Batches) -> Batches:
        for _ in numbers:
            yield from self.task.bucket_sums()


@dataclass(frozen=True)
class BucketRows:
    """The function for ``mapInArrow`` that gives the rows of some buckets of keys, to one task."""

    task: ChunkTask
    buckets: frozenset[int]

    def __call__(self, numbers: Batches) -> Batches:
        for _ in numbers:
            yield from self.task.rows([(0, Chunk(None, None))], buckets=self.buckets)


@dataclass(frozen=True)
class Numbering:
    """The function for ``mapInArrow`` that adds the number of a row's chunk, or bucket, and leaves other rows out.

    Attributes:
        uppers: the last place of every chunk; None: places are buckets.
        after: the place before the first chunk; None: it begins the table.
        sums: give rows and sum per number instead of rows.
    """

    uppers: tuple[int, ...] | None
    after: int | None
    sums: bool = False

    def __call__(self, batches: Batches) -> Batches:

        totals = _Totals()
        for batch in batches:
            places = batch.column("place").to_numpy(zero_copy_only=False)
            if self.uppers is None:
                numbers, inside = places, np.ones(len(places), bool)
            else:
                numbers = np.searchsorted(np.array(self.uppers, np.int64), places, side="left")
                inside = numbers < len(self.uppers)
                if self.after is not None:
                    inside &= places > self.after
            kept = batch.filter(pa.array(inside))
            numbers = numbers[inside].astype(np.int64)
            if self.sums:
                totals.add(numbers, kept.column("hash").to_numpy(zero_copy_only=False).view(np.uint64))
            else:
                yield kept.append_column("number", pa.array(numbers.astype(np.int32)))
        if self.sums:
            yield from totals.batches()


class _Totals:
    """Rows, and sums of hashes without digits beyond 64 bits, by number."""

    def __init__(self) -> None:
        self._rows = np.zeros(0, np.int64)
        self._sums = np.zeros(0, np.uint64)

    def add(self, numbers: np.ndarray, hashes: np.ndarray) -> None:
        """Add the hash of each row to the sum of its number."""
        if not len(numbers):
            return
        missing = int(numbers.max()) + 1 - len(self._rows)
        if missing > 0:
            self._rows = np.append(self._rows, np.zeros(missing, np.int64))
            self._sums = np.append(self._sums, np.zeros(missing, np.uint64))
        np.add.at(self._rows, numbers, 1)
        np.add.at(self._sums, numbers, hashes)

    def batches(self) -> Batches:
        """Return numbers with rows: none, or one batch."""
        found = np.flatnonzero(self._rows)
        if len(found):
            yield pa.record_batch(
                {
                    "number": pa.array(found.astype(np.int32)),
                    "rows": pa.array(self._rows[found]),
                    "total": pa.array(list(map(Decimal, self._sums[found].tolist())), pa.decimal128(20, 0)),
                }
            )
