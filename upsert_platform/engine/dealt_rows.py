"""Change rows of a long span of a changelog: dealt to files by their key, then reduced part by part.

One round of tasks reads the changelog and deals rows to buckets (`exchange`): by the key of the source, or, where that
has none, by the target's, of which the insert is computed first. The tasks that want the rows reduce bucket after
bucket (`changelog.latest.LastRows`), of which each has keys enough for a task. Rows pass neither the JVM nor its
shuffle.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from upsert_platform.changelog.change_rows import change_batches, computed_rows
from upsert_platform.changelog.exchanges import FOLDER
from upsert_platform.changelog.latest import LastRows
from upsert_platform.changelog.live_files import deal
from upsert_platform.changelog.rows import BATCH, KIND, PARTITIONS_MET
from upsert_platform.changelog.tables import TableLocation, file_system
from upsert_platform.core.destination import OPERATION
from upsert_platform.core.task_runner import answers_of
from upsert_platform.engine.exchange import ExchangeWriter, Part, read_batches
from upsert_platform.engine.native_insert import ChangesOfSpan, NativeInsert, deleted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from upsert_platform.changelog.store import ChangelogStore

_BUCKET_ROWS: Final = 250_000
"""Changes of a bucket, about: what a task reduces at once."""
_LEAST_BUCKETS: Final = 16
"""For ``sink.parallelism``, which may ask for more shares than there are cores."""
_HELD_ROWS: Final = 1 << 19
"""Rows that a task collects before it deals them, so that what is read later is not in crumbs."""
_HELD_BYTES: Final = 64 << 20
"""And at most about so many bytes of them."""


@dataclass(frozen=True)
class DealRows:
    """The task that reads the changes of some files of a span, and deals them.

    Attributes:
        attempt: names the folder of the exchange.
    """

    span: ChangesOfSpan
    attempt: str
    buckets: int

    def __call__(self) -> tuple[Part | None, int]:
        """Return the file of an exchange, and how many deletes were read of a source without a key."""
        native, key = self.span.native, self.span.table.primary_key
        system, folder = file_system(self.span.location)
        writer = ExchangeWriter(
            0, system=system, folder=folder, attempt=self.attempt, buckets=self.buckets, group=key or native.key
        )
        deleted = 0
        for rows in _together(self.span.read(change_batches)):
            if key:
                writer.write(rows)
            else:
                deleted += deleted_rows(rows)
                writer.write(native.every_change(rows))
        return writer.close(), deleted


def _together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows in tables of bounded size; a batch that is larger is one by itself."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if held and (rows + batch.num_rows > _HELD_ROWS or size + batch.nbytes > _HELD_BYTES):
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
        if batch.num_rows:
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
    if held:
        yield pa.Table.from_batches(held)


@dataclass(frozen=True)
class DealtRows:
    """Gives the change frame of a share of the keys, bucket after bucket: a key is in one of them. Can be pickled.

    Attributes:
        key: of the source; empty where it has none.
        location: of the changelog beside which the exchange lies.
    """

    native: NativeInsert
    key: tuple[str, ...]
    location: TableLocation
    parts: tuple[Part, ...]
    buckets: int

    def __call__(self, number: int, shares: int) -> Iterator[tuple[pa.Table, dict[str, int]]]:
        """The rows of one of so many shares, each of which has whole buckets.

        Returns:
            The parts of the frame, with the counts of `NativeInsert.changes_of`, or, of a source without a key, of
            `NativeInsert.told`.
        """
        system, folder = file_system(self.location)
        for bucket in range(number, self.buckets, shares):
            yield from self._last(read_batches(self.parts, bucket, system=system, folder=folder))

    def _last(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.Table, dict[str, int]]]:
        """The change frame of all rows of some keys."""
        if self.key:
            names = tuple(dict.fromkeys([*self.key, *self.native.reads(), KIND, BATCH, PARTITIONS_MET]))
            for part in LastRows(self.key, names)(batches):
                yield self.native.changes_of(pa.Table.from_batches([part]), sequence=BATCH)
            return
        names = (*(column.name for column in self.native.columns), OPERATION, BATCH, PARTITIONS_MET)
        failed: list[pa.Table] = []
        for part in LastRows(self.native.key, names)(_computed(batches, failed)):
            yield self.native.told(pa.Table.from_batches([part]))
        for rows in failed:
            yield self.native.failed(rows), {}


def _computed(batches: Iterator[pa.RecordBatch], failed: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The changes that could be computed; the others are put into a list: they are no rows of their keys."""
    for batch in batches:
        computed, others = computed_rows(pa.Table.from_batches([batch]))
        failed += [others] if others.num_rows else []
        yield from computed.to_batches()


@contextmanager
def dealt_rows(
    spark: SparkSession, native: NativeInsert, store: ChangelogStore, *, after: int, upto: int
) -> Iterator[tuple[DealtRows, int] | None]:
    """Deal the changes of the batches after `after` up to `upto`, in Spark's workers; the files are gone afterwards.

    Yields:
        What gives the rows, and how many deletes a source without a key has among them. None where the folder of the
        changelog takes no files.
    """
    files = [item for item in store.files() if item.may_hold(after=after, upto=upto)]
    cores = max(1, int(spark.sparkContext.defaultParallelism))
    wanted = max(_LEAST_BUCKETS, -(-store.about_rows(after=after, upto=upto) // _BUCKET_ROWS))
    buckets = cores * -(-wanted // cores)
    attempt = uuid.uuid4().hex
    spans = [
        ChangesOfSpan(native, store.table, store.location, tuple(item.path for item in hand), after, upto)
        for hand in (deal(files, min(len(files), cores)) if files else ())
    ]
    tasks = [DealRows(span, attempt, buckets) for span in spans]
    system, folder = file_system(store.location)
    place = f"{folder}{FOLDER}/{attempt}"
    try:
        system.create_dir(place, recursive=True)
    except OSError:
        yield None
        return
    try:
        answers = answers_of(spark, tasks, what=f"read changes of table '{store.table.name}'") if tasks else []
        parts = tuple(part for part, _ in answers if part is not None)
        key = tuple(store.table.primary_key)
        yield DealtRows(native, key, store.location, parts, buckets), sum(deleted for _, deleted in answers)
    finally:
        with suppress(OSError):  # what stays is removed with other garbage
            system.delete_dir(place)
