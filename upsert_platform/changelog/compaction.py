"""Keeps a changelog small: few files, and old batches reduced to the last row per key.

Both keep every row's `_batch`, so a destination that lags reads on from where it was. Both are commits of the same
Delta table and carry the position of the head, so a kill at any point leaves either the old or the new files.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import DataFile, read_rows, write_rows
from upsert_platform.changelog.latest import last_rows
from upsert_platform.changelog.quarantine import quarantined_places
from upsert_platform.changelog.store import ChangelogStore, LiveFile
from upsert_platform.changelog.upkeep import raise_floor, reduced_upto
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.internal_columns import internal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

SMALL_FILES: Final = 64
"""So many files make the next run merge the small ones."""
SMALL_FILE_BYTES: Final = 32 << 20
"""Files from this size on are left alone, so the cost of merging stays with what is new."""
LARGE_FILE_BYTES: Final = SMALL_FILE_BYTES * 4
MERGED_LOCALLY_BYTES: Final = 64 << 20
"""So many bytes of small files are merged without Spark."""
TIERS: Final = ((2 << 20, SMALL_FILES), (SMALL_FILE_BYTES, 16))
"""Sizes below which files are of a tier (and not of the one before), and how many of a tier are merged."""
_GROUP_ROWS: Final = 100_000
_GROUP_BYTES: Final = 32 << 20
FEW_FILES: Final = 8
"""So many small files make a compaction that was asked for merge them."""
_SPAN: Final = internal("span")
"""INT column: rows of one key in different spans of batches are all kept."""


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """The result of a compaction: files and change rows before and after."""

    files_before: int
    files_after: int
    rows_before: int
    rows_after: int


def needs_merging(store: ChangelogStore) -> bool:
    """Return whether the changelog has many small files. No JVM."""
    return len(small_files(store)) >= SMALL_FILES


def small_files(store: ChangelogStore) -> list[LiveFile]:
    """The files below SMALL_FILE_BYTES."""
    return [item for item in store.files() if item.size < SMALL_FILE_BYTES]


def merge_files(spark: SparkSession, store: ChangelogStore) -> None:
    """Merges small files into larger ones; rows are not changed.

    Raises:
        ChangelogError: another run rewrote the same files meanwhile; nothing was changed.
    """
    small = small_files(store)
    if len(small) > 1:
        _rewrite(store, _spread(store.rows_of(spark, small), size=sum(item.size for item in small)), small)


def merge_locally(store: ChangelogStore) -> bool:
    """As `merge_files`, by this process, where small files are few megabytes; False where they are more. No JVM.

    Rows are read and written again part by part, by files in the order of their batches.

    Raises:
        ChangelogError: another run rewrote the same files meanwhile; nothing was changed.
    """
    small = small_files(store)
    if sum(item.size for item in small) > MERGED_LOCALLY_BYTES:
        return False
    if len(small) > 1:
        _merge(store, _by_batch(small))
    return True


def merge_tier_locally(store: ChangelogStore, *, upto: int) -> bool:
    """Merges the files of a tier of sizes that has become many, by this process. No JVM.

    So a row is written anew once per tier, however long a process goes on committing, and what is read next, the newest
    batches, stays in files of its own.

    Args:
        upto: files with batches behind this one are left alone.

    Returns:
        Whether files were merged.

    Raises:
        ChangelogError: another run rewrote the same files meanwhile; nothing was changed.
    """
    settled = [item for item in store.files() if item.last_batch is not None and item.last_batch <= upto]
    least = 0
    for below, many in TIERS:
        tier = _by_batch([item for item in settled if least <= item.size < below])
        if len(tier) >= many:
            total, taken = 0, 0
            while taken < len(tier) and total + tier[taken].size <= MERGED_LOCALLY_BYTES:
                total, taken = total + tier[taken].size, taken + 1
            _merge(store, tier[:taken])
            return True
        least = below
    return False


def _by_batch(files: Iterable[LiveFile]) -> list[LiveFile]:
    return sorted(files, key=lambda item: item.first_batch or 0)


def _merge(store: ChangelogStore, files: Sequence[LiveFile]) -> None:
    schema = rows.arrow_schema(store.table)
    parts = read_rows(store.location, [item.path for item in files], schema=schema)
    _replace(store, write_rows(_joined(parts), location=store.location, schema=schema), files)


def _joined(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parts put together into row groups of some size, in their order."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    for part in parts:
        waiting.append(part)
        if (
            sum(item.num_rows for item in waiting) >= _GROUP_ROWS
            or sum(item.nbytes for item in waiting) >= _GROUP_BYTES
        ):
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def reduce_history(
    spark: SparkSession,
    store: ChangelogStore,
    *,
    applied_everywhere: int,
    applied: Collection[int] = (),
    upto: int | None = None,
) -> CompactionReport:
    """Rewrites a changelog of mode upsert as the last change per key; quarantine and accounting are kept whole.

    Rows are sorted by batch, so that a reader of late batches still skips what lies before them.

    Args:
        applied_everywhere: the lowest applied batch of all destinations; tombstones up to it are dropped, for no
            destination waits for them and a new one starts from what is there (unless records are in quarantine).
        applied: batches up to which destinations hold the changelog: it goes on telling what the last change of each
            key was up to them, since that is what a destination is compared with.
        upto: the batch up to which history is reduced; to the last one if None. Behind it every row stays, since a
            destination may come to hold the changelog up to any batch there meanwhile.

    Raises:
        ValueError: the changelog is not in mode upsert: its consumers need every record.
        ChangelogError: another run rewrote the same files meanwhile; nothing was changed.
    """
    from pyspark.sql import functions as F

    if store.mode != "upsert":
        raise ValueError(f"the changelog of '{store.table.name}' is in mode {store.mode}: every record is needed")
    head = store.head()
    if head is None or head.batch == 0:
        return CompactionReport(0, 0, 0, 0)
    upto = _reducible(head.batch, upto)
    # Looked at once: a record that is quarantined behind this look counts in neither, as one of a batch that comes
    # after the compaction. Older rows of other partitions that stay without their keys' tombstones would live again.
    quarantines = _has_quarantined(store)
    floor = min(_droppable_tombstones(applied_everywhere, quarantines=quarantines), upto)
    # Told first: a kill after this refuses no destination that there is, and one before it drops nothing.
    raise_floor(store, floor, reduced=upto)
    found = [item for item in store.files() if item.first_batch is None or item.first_batch <= upto]
    whole = store.rows_of(spark, found)
    is_change = F.col(rows.KIND).isin(*rows.CHANGE_KINDS) & (F.col(rows.BATCH) <= upto)
    changes = whole.where(is_change)
    rows_before = store.read(spark, after=0, upto=head.batch).count()
    # A tombstone that is dropped leaves no older row of its key: spans end where tombstones are kept.
    changes = changes.withColumn(_SPAN, _span_of(rows.BATCH, {end for end in applied if end >= floor}))
    key = [*store.table.primary_key, _SPAN]
    # What is replayed later on must find the rows that overtook it in its own partition, be they the key's last or not.
    count = sum(item.rows or 0 for item in found)
    latest = last_rows(changes, key=key, count=count, of_partitions=quarantines)
    kept = latest.select(*whole.columns).where(f"NOT ({rows.KIND} = '{rows.KIND_DELETE}' AND {rows.BATCH} <= {floor})")
    compacted = kept.unionByName(whole.where(~is_change))
    _rewrite(store, _spread(compacted, size=sum(item.size for item in found)), found, reduced=upto)
    rows_after = store.read(spark, after=0, upto=head.batch).count()
    return CompactionReport(len(found), len(store.files()), rows_before, rows_after)


def _span_of(batch: str, ends: Collection[int]) -> Column:
    """Return how many of the given batches precede the batch of a row."""
    from pyspark.sql import functions as F

    before = [F.when(F.col(batch) > end, 1).otherwise(0) for end in sorted(set(ends))]
    return functools.reduce(operator.add, before, F.lit(0))


def _spread(frame: DataFrame, *, size: int) -> DataFrame:
    """Rows by batch, in as many partitions as there should be files for `size` bytes."""
    files = max(1, round(size / LARGE_FILE_BYTES))
    spread = frame.coalesce(1) if files == 1 else frame.repartitionByRange(files, rows.BATCH)
    return spread.sortWithinPartitions(rows.BATCH)


def _rewrite(store: ChangelogStore, frame: DataFrame, replaced: Sequence[LiveFile], *, reduced: int = 0) -> None:
    """Puts the rows of a frame, each in its own batch, in the place of files, in one commit."""
    _replace(store, store.write(frame, batch=None), replaced, reduced=reduced)


def _replace(
    store: ChangelogStore, files: Sequence[DataFile], replaced: Sequence[LiveFile], *, reduced: int = 0
) -> None:
    if not store.replace(files, replaced=[item.path for item in replaced], reduced=reduced):
        raise ChangelogError(
            f"another run rewrote files of the changelog of '{store.table.name}' meanwhile; nothing was changed, the"
            " next compaction does it"
        )


def _has_quarantined(store: ChangelogStore) -> bool:
    return quarantined_places(store).num_rows > 0


def _droppable_tombstones(applied_everywhere: int, *, quarantines: bool) -> int:
    """The batch up to which tombstones are not needed any more."""
    # A record in quarantine may be replayed: the tombstone that overtook it must still be there then.
    return 0 if quarantines else applied_everywhere


def _reducible(head: int, upto: int | None) -> int:
    return head if upto is None else min(upto, head)


def is_worthwhile(store: ChangelogStore, *, applied_everywhere: int, upto: int | None = None) -> bool:
    """Return whether `compact` would change the changelog. No JVM."""
    head = store.head()
    if head is None or head.batch == 0:
        return False
    if store.mode != "upsert":
        return len(small_files(store)) >= FEW_FILES
    upto = _reducible(head.batch, upto)
    if reduced_upto(store) < upto:
        return True
    return min(_droppable_tombstones(applied_everywhere, quarantines=_has_quarantined(store)), upto) > head.floor


def compact(
    spark: SparkSession,
    store: ChangelogStore,
    *,
    applied_everywhere: int,
    applied: Collection[int] = (),
    upto: int | None = None,
) -> CompactionReport:
    """Reduces history where the mode allows it (see `reduce_history`), and merges small files elsewhere.

    Raises:
        ChangelogError: another run rewrote the same files meanwhile; nothing was changed.
    """
    if store.mode == "upsert":
        return reduce_history(spark, store, applied_everywhere=applied_everywhere, applied=applied, upto=upto)
    head = store.head()
    assert head is not None
    before = len(store.files())
    merge_files(spark, store)
    count = store.read(spark, after=0, upto=head.batch).count()
    return CompactionReport(before, len(store.files()), count, count)
