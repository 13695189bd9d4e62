"""Change rows of a changelog whose source has no key: dealt to files by the target's key, then reduced part by part.

One round of tasks reads the changelog, computes the insert and deals rows to buckets (`exchange`); the tasks that want
the rows read bucket after bucket, each of which fits into memory. Rows pass neither the JVM nor its shuffle.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from upsert_platform.changelog.change_rows import change_batches
from upsert_platform.changelog.exchanges import FOLDER
from upsert_platform.changelog.live_files import deal
from upsert_platform.changelog.tables import TableLocation, file_system
from upsert_platform.core.model import Table
from upsert_platform.core.task_runner import answers_of
from upsert_platform.engine.exchange import ExchangeWriter, Part, read_parts
from upsert_platform.engine.keys import bucket_rows, place_rows
from upsert_platform.engine.native_insert import NativeInsert, count_deletes, deleted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from upsert_platform.changelog.store import ChangelogStore

_BUCKET_ROWS: Final = 250_000
"""Changes of a bucket, about: what a task reduces at once."""
_LEAST_BUCKETS: Final = 12
"""A multiple of most numbers of shares, so that a share has buckets of its own."""
_HELD_ROWS: Final = 1 << 17
"""Rows that a task collects before it deals them."""
_ROWS_OF_A_PART: Final = 4_000
"""And at least so many for each bucket, or what is read later is in crumbs."""


@dataclass(frozen=True)
class DealRows:
    """The task that computes the changes of some files, and deals them.

    Attributes:
        paths: relative to the changelog.
    """

    native: NativeInsert
    table: Table
    location: TableLocation
    paths: tuple[str, ...]
    after: int
    upto: int
    attempt: str
    buckets: int

    def __call__(self) -> tuple[Part | None, int]:
        """Return the file of an exchange, and how many deletes were read."""
        system, folder = file_system(self.location)
        writer = ExchangeWriter(
            0, system=system, folder=folder, attempt=self.attempt, buckets=self.buckets, group=self.native.key
        )
        most = max(_HELD_ROWS, self.buckets * _ROWS_OF_A_PART)
        held: list[pa.RecordBatch] = []
        deleted = 0
        found = change_batches(
            self.table, self.location, self.paths, columns=self.native.reads(), after=self.after, upto=self.upto,
            parts=self.native.parts(),
        )  # fmt: skip
        for batch in found:
            held.append(batch)
            if sum(item.num_rows for item in held) >= most:
                deleted += self._deal(held, writer)
                held = []
        return (writer.close() if not held else self._last(held, writer)), deleted + _deletes(held)

    def _deal(self, held: Sequence[pa.RecordBatch], writer: ExchangeWriter) -> int:
        rows = pa.Table.from_batches(held)
        writer.write(self.native.every_change(rows))
        return deleted_rows(rows)

    def _last(self, held: Sequence[pa.RecordBatch], writer: ExchangeWriter) -> Part | None:
        self._deal(held, writer)
        return writer.close()


def _deletes(held: Sequence[pa.RecordBatch]) -> int:
    return deleted_rows(pa.Table.from_batches(held)) if held else 0


@dataclass(frozen=True)
class DealtRows:
    """Gives the change frame of a share of the keys, bucket after bucket: a key is in one of them. Can be pickled.

    Attributes:
        location: of the changelog beside which the exchange lies.
    """

    native: NativeInsert
    location: TableLocation
    parts: tuple[Part, ...]
    buckets: int

    def __call__(self, number: int, shares: int) -> Iterator[tuple[pa.Table, dict[str, int]]]:
        """The rows of one of so many shares, and counts: ``met``, keys of several partitions, and ``deletes``."""
        system, folder = file_system(self.location)
        whole = self.buckets % shares == 0  # then a bucket has keys of one share
        for bucket in range(self.buckets):
            if whole and bucket % shares != number:
                continue
            found = read_parts(self.parts, bucket, system=system, folder=folder)
            if found is None:
                continue
            if not whole:
                mine = bucket_rows(place_rows(found, self.native.key), shares, spread=False) == number
                found = found.filter(pa.array(mine))
            changes, met = self.native.last_changes(found.combine_chunks())
            yield changes, {"met": met, "deletes": count_deletes(changes)}


@contextmanager
def dealt_rows(
    spark: SparkSession, native: NativeInsert, store: ChangelogStore, *, after: int, upto: int
) -> Iterator[tuple[DealtRows, int]]:
    """Deal the changes of the batches after `after` up to `upto`, in Spark's workers; the files are gone afterwards.

    Yields:
        What gives the rows, and how many deletes the source has among them.
    """
    files = [item for item in store.files() if item.may_hold(after=after, upto=upto)]
    rows = store.about_rows(after=after, upto=upto)
    buckets = _LEAST_BUCKETS * max(1, -(-rows // (_LEAST_BUCKETS * _BUCKET_ROWS)))
    attempt = uuid.uuid4().hex
    count = min(len(files), max(1, int(spark.sparkContext.defaultParallelism)))
    hands = deal(files, count) if files else []
    tasks = [
        DealRows(native, store.table, store.location, tuple(item.path for item in hand), after, upto, attempt, buckets)
        for hand in hands
    ]
    try:
        answers = answers_of(spark, tasks, what=f"read changes of table '{store.table.name}'") if tasks else []
        parts = tuple(part for part, _ in answers if part is not None)
        yield DealtRows(native, store.location, parts, buckets), int(np.sum([deleted for _, deleted in answers]))
    finally:
        system, folder = file_system(store.location)
        with suppress(OSError):  # what stays is removed with other garbage
            system.delete_dir(f"{folder}{FOLDER}/{attempt}")
