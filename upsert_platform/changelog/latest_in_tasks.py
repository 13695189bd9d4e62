"""The rows that count of a span of batches: by Arrow in Spark's tasks up to some million rows, else by Spark itself.

With Arrow each task reads the files itself, keeps the keys that fall to it, and reduces those. Nothing is shuffled or
sorted, into which most of the time goes when Spark reduces. Every task reads every file, so that longer spans are left
to Spark (`latest.latest_per_key`), whose cost per row does not grow with them. Where few keys of the span come more
than once, every task reads the keys of all files, and other columns of files of its own alone (`counting_rows`); much
longer spans are reduced so, for whoever is content to learn that too many keys are repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.change_rows import can_be_told_apart, change_batches
from upsert_platform.changelog.latest import SEQUENCE, latest_per_key
from upsert_platform.changelog.live_files import deal
from upsert_platform.changelog.rows import PARTITIONS_MET
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.model import Table
from upsert_platform.core.types import quote_name, spark_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from upsert_platform.changelog.counting_rows import Counting, Drawn
    from upsert_platform.changelog.live_files import LiveFile
    from upsert_platform.changelog.store import ChangelogStore

MOST_ROWS: Final = 4_000_000
MOST_BYTES: Final = 512 << 20
"""Rows of a span, and bytes of its files, above which Spark reduces it."""
MOST_COUNTED: Final = 32_000_000
"""Rows whose keys all tasks that run at once may hold, each those of the whole span."""
_TASK_ROWS: Final = 500_000
_TASK_BYTES: Final = 64 << 20
"""What one task holds of them, at most, where keys are spread evenly."""
_WORTHWHILE_ROWS: Final = 100_000
"""A task more costs more than it gains for fewer rows."""
_OUTPUT_ROWS: Final = 1 << 16
_UNEVEN: Final = 1.3
"""Times the mean that the largest share of files may have, for them to be dealt to tasks."""
_MORE_TASKS: Final = 2
"""Tasks that there may be beside those that are needed, where files are dealt evenly then."""


class ManyRepeatedKeysError(Exception):
    """So many keys come more than once that they have to be divided among tasks; see `SpanReduction.counts_only`."""


@dataclass(frozen=True)
class SpanReduction:
    """The function for ``mapInArrow`` that gets numbers of tasks: the rows of the keys that fall to each.

    Rows have `columns`, `_kind`, `_seq` and `PARTITIONS_MET`.

    Attributes:
        paths: of the files, relative to the changelog.
        tasks: among which keys are divided.
        shares: the files of each task, about as many bytes each, for where few keys come twice; none where a few files
            have most of the rows.
        drawn: which keys of earlier batches count; None: all of them.
        counts_only: `ManyRepeatedKeysError` is raised where keys would be divided, before a row is given.
    """

    location: TableLocation
    table: Table
    paths: tuple[str, ...]
    columns: tuple[str, ...]
    key: tuple[str, ...]
    after: int
    upto: int
    tasks: int
    shares: tuple[tuple[str, ...], ...] = ()
    drawn: Drawn | None = None
    counts_only: bool = False

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from upsert_platform.changelog.counting_rows import counting_rows

        read = partial(_changes, self)
        counting = counting_rows(self.paths, self.key, read, drawn=self.drawn) if self.shares else None
        if counting is None and self.counts_only:
            raise ManyRepeatedKeysError
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from _reduced(self, number) if counting is None else _left_of_share(self, number, counting)


@dataclass(frozen=True)
class SpanRows:
    """The function for ``mapInArrow`` that gives all rows of which a reduction keeps one per key, to any task.

    Rows have `columns`, `_kind` and `_seq`.
    """

    span: SpanReduction
    columns: tuple[str, ...]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        span, names = self.span, [*self.columns, rows.KIND, rows.BATCH]
        for _ in numbers:
            for part in _drawn(span, span.paths, (*self.columns, *span.key), ordered=False):
                yield part.select(names).rename_columns([*self.columns, rows.KIND, SEQUENCE])


def latest_of_span(
    spark: SparkSession,
    store: ChangelogStore,
    *,
    after: int,
    upto: int,
    key: Sequence[str],
    columns: Sequence[str],
    ordered: bool = False,
) -> DataFrame:
    """Return the rows of `latest_per_key` for the batches after `after` up to `upto`.

    Args:
        key: names of the primary key columns.
        columns: the other columns to keep; the key may be among them.
        ordered: see `latest_per_key`.
    """
    found = None if ordered else reduction_in_tasks(spark, store, after=after, upto=upto, key=key, columns=columns)
    if found is None:
        rows_of_span = store.read(spark, after=after, upto=upto)
        count = store.about_rows(after=after, upto=upto)
        return latest_per_key(rows_of_span, key=key, columns=columns, ordered=ordered, count=count)
    kinds = {column.name: column.type for column in rows.stored_columns(store.table)}
    given = [
        f"{quote_name(name)} {spark_type(kind)}" for name in found.columns for kind in [kinds[name]] if kind is not None
    ]
    ddl = [*given, f"{rows.KIND} STRING", f"{SEQUENCE} BIGINT", f"{PARTITIONS_MET} INT"]
    return spark.range(0, found.tasks, 1, found.tasks).mapInArrow(found, ", ".join(ddl))


def reduction_in_tasks(
    spark: SparkSession,
    store: ChangelogStore,
    *,
    after: int,
    upto: int,
    key: Sequence[str],
    columns: Sequence[str],
    drawn: Drawn | None = None,
    counts_longer: bool = False,
) -> SpanReduction | None:
    """Return a reduction by Arrow, or None if it cannot tell the keys apart or there is too much data for it.

    Args:
        drawn: which keys of earlier batches count; None: all of them.
        counts_longer: of a span that is too long to be divided, one that `counts_only` is wanted.
    """
    kinds = {column.name: column.type for column in rows.stored_columns(store.table)}
    if not all(can_be_told_apart(kinds[name]) for name in key):
        return None
    files = [item for item in store.files() if item.may_hold(after=after, upto=upto)]
    size = sum(item.size for item in files)
    count = sum(MOST_COUNTED + 1 if item.rows is None else item.rows for item in files)
    names = tuple(dict.fromkeys([*key, *columns]))
    paths = tuple(item.path for item in files)
    if not files or count > MOST_ROWS or size > MOST_BYTES:
        tasks = min(len(files), spark.sparkContext.defaultParallelism)
        if not files or not counts_longer or count * tasks > MOST_COUNTED:
            return None
        hands = deal(files, tasks)
        shares = tuple(tuple(item.path for item in hand) for hand in hands)
        return SpanReduction(
            store.location, store.table, paths, names, tuple(key), after, upto, len(shares), shares, drawn,
            counts_only=True,
        )  # fmt: skip
    tasks = max(
        min(spark.sparkContext.defaultParallelism, -(-count // _WORTHWHILE_ROWS)),
        -(-count // _TASK_ROWS),
        -(-size // _TASK_BYTES),
    )
    counts = range(tasks, tasks + 1 + _MORE_TASKS) if tasks > 1 else ()
    dealt = next(filter(None, (_dealt(files, count) for count in counts)), ())
    return SpanReduction(
        store.location, store.table, paths, names, tuple(key), after, upto, len(dealt) or tasks, dealt, drawn
    )


def _dealt(files: Sequence[LiveFile], tasks: int) -> tuple[tuple[str, ...], ...]:
    """Files for each of several tasks, the largest first; none where a task would get much more than another."""
    hands = deal(files, tasks)
    largest = max(sum(item.size for item in hand) for hand in hands)
    if largest * tasks > _UNEVEN * sum(item.size for item in files):
        return ()
    return tuple(tuple(item.path for item in hand) for hand in hands)


def _reduced(span: SpanReduction, number: int) -> Iterator[pa.RecordBatch]:
    """The rows of the keys that fall to a task."""
    import pyarrow as pa

    from upsert_platform.changelog.last_rows import last_rows

    found = _drawn(span, span.paths, span.columns)
    mine = partial(_falls_to, key=span.key, number=number, tasks=span.tasks)
    parts = [part.filter(mine(part)) for part in found] if span.tasks > 1 else list(found)
    if not parts:
        return
    yield from _told(last_rows(pa.Table.from_batches(parts), key=span.key), span)


def _left_of_share(span: SpanReduction, number: int, counting: Counting) -> Iterator[pa.RecordBatch]:
    """The rows that count of a task's files."""
    import pyarrow as pa

    for path in span.shares[number]:
        first = 0
        for part in _changes(span, [path], span.columns, ordered=False):
            yield from _told(pa.Table.from_batches([counting.of(path, first, part)]), span)
            first += part.num_rows


def _changes(
    span: SpanReduction, paths: Sequence[str], columns: Sequence[str], *, ordered: bool = True
) -> Iterator[pa.RecordBatch]:
    return change_batches(
        span.table, span.location, paths, columns=columns, after=span.after, upto=span.upto, ordered=ordered
    )


def _drawn(
    span: SpanReduction, paths: Sequence[str], columns: Sequence[str], *, ordered: bool = True
) -> Iterator[pa.RecordBatch]:
    """The rows of keys that count; `columns` has the key."""
    for part in _changes(span, paths, columns, ordered=ordered):
        yield part if span.drawn is None else span.drawn.of(part, span.key)


def _told(reduced: pa.Table, span: SpanReduction) -> Iterator[pa.RecordBatch]:
    told = reduced.select([*span.columns, rows.KIND, rows.BATCH, PARTITIONS_MET])
    named = told.rename_columns([*span.columns, rows.KIND, SEQUENCE, PARTITIONS_MET])
    yield from named.to_batches(max_chunksize=_OUTPUT_ROWS)


def _falls_to(part: pa.RecordBatch, *, key: Sequence[str], number: int, tasks: int) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    from upsert_platform.changelog.row_hashes import hash_rows

    hashes = hash_rows(pa.Table.from_batches([part]), key)
    return pa.array(hashes % np.uint64(tasks) == number)
