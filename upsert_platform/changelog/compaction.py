"""Keeps a changelog small: few files, and old batches reduced to the last row per key.

Both keep every row's `_batch`, so a destination that lags reads on from where it was. Both are commits of the same
Delta table and carry the position of the head, so a kill at any point leaves either the old or the new files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.latest import VERSION_ORDER
from upsert_platform.changelog.store import ChangelogStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_FILES: Final = 64
"""So many files make the next run merge the small ones."""
SMALL_FILE_BYTES: Final = 32 << 20
"""Files from this size on are left alone, so the cost of merging stays with what is new."""
_USER_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What a compaction did: files and change rows before and after."""

    files_before: int
    files_after: int
    rows_before: int
    rows_after: int


def needs_merging(store: ChangelogStore) -> bool:
    """Whether the changelog has many small files. No JVM."""
    return len(small_files(store)) >= SMALL_FILES


def small_files(store: ChangelogStore) -> list[int]:
    """Sizes in bytes of the files below SMALL_FILE_BYTES."""
    return [size for size in store.file_sizes() if size < SMALL_FILE_BYTES]


def merge_files(spark: SparkSession, store: ChangelogStore) -> None:
    """Merges small files into larger ones; rows are not changed."""
    from delta.tables import DeltaTable

    spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(SMALL_FILE_BYTES))
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(SMALL_FILE_BYTES * 4))
    spark.conf.set(_USER_METADATA, store.commit_metadata())
    try:
        DeltaTable.forPath(spark, store.uri).optimize().executeCompaction()
    finally:
        spark.conf.unset(_USER_METADATA)


def reduce_history(spark: SparkSession, store: ChangelogStore, *, applied_everywhere: int) -> CompactionReport:
    """Rewrites a changelog of mode upsert as the last change per key; quarantine and accounting are kept whole.

    Args:
        applied_everywhere: the lowest applied batch of all destinations; tombstones up to it are dropped, for no
            destination waits for them and a new one starts from what is there (unless records are in quarantine).

    Raises:
        ValueError: the changelog is not in mode upsert: its consumers need every record.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    if store.mode != "upsert":
        raise ValueError(f"the changelog of '{store.table.name}' is in mode {store.mode}: every record is needed")
    # A record in quarantine may be replayed: the tombstone that overtook it must still be there then.
    if store.quarantined(limit=1).num_rows:
        applied_everywhere = 0
    head = store.head()
    if head is None or head.batch == 0:
        return CompactionReport(0, 0, 0, 0)
    before = len(store.file_sizes())
    whole = spark.read.format("delta").load(store.uri).where(f"{rows.BATCH} <= {head.batch}")
    is_change = F.col(rows.KIND).isin(*rows.CHANGE_KINDS)
    keys = [F.col(f"`{name.replace('`', '``')}`") for name in store.table.primary_key]
    newest_first = [F.col(name).desc_nulls_last() for name in VERSION_ORDER]
    rank = F.row_number().over(Window.partitionBy(*keys).orderBy(*newest_first))
    changes = whole.where(is_change)
    rows_before = changes.count()
    kept = (
        changes.withColumn("_rank", rank)
        .where("_rank = 1")
        .drop("_rank")
        .where(f"NOT ({rows.KIND} = '{rows.KIND_DELETE}' AND {rows.BATCH} <= {int(applied_everywhere)})")
    )
    compacted = kept.unionByName(whole.where(~is_change))
    (
        compacted.write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", f"{rows.BATCH} <= {head.batch}")
        .option("userMetadata", store.commit_metadata())
        .save(store.uri)
    )
    rows_after = store.read(spark, after=0, upto=head.batch).count()
    return CompactionReport(before, len(store.file_sizes()), rows_before, rows_after)
