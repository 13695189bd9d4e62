"""The last row per key, in Spark: the reduction that destinations and snapshots start from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SEQUENCE: Final = "_seq"
PARTITIONS_MET: Final = "_partitions"
"""INT column: 2 when the key was met in more than one topic-partition among the rows reduced, else 1."""

VERSION_ORDER: Final = (rows.BATCH, rows.TIMESTAMP, rows.TOPIC, rows.PARTITION, rows.OFFSET, rows.ROW)
"""What decides between two rows of a key: the later batch, then record time, then place (design, invariant 2)."""


def latest_per_key(changes: DataFrame, *, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Reduces change rows to one per key.

    Args:
        changes: rows of a changelog.
        key: names of the primary key columns.
        columns: the other columns to keep.

    Returns:
        The key and the columns, `_kind`, `_seq` (BIGINT, the batch of the row) and `_partitions`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    quoted = [_quote(name) for name in columns if name not in key]
    payload = F.struct(*[F.col(name) for name in quoted], F.col(rows.KIND), F.col(rows.BATCH))
    order = F.struct(*[F.col(name) for name in VERSION_ORDER])
    place = F.struct(F.col(rows.TOPIC), F.col(rows.PARTITION))
    reduced = changes.groupBy(*[F.col(_quote(name)) for name in key]).agg(
        F.max_by(payload, order).alias("_last"),
        F.when(F.min(place) == F.max(place), F.lit(1)).otherwise(F.lit(2)).alias(PARTITIONS_MET),
    )
    return reduced.select(
        *[F.col(_quote(name)) for name in key],
        *[F.col(f"_last.{name}") for name in quoted],
        F.col(f"_last.{rows.KIND}").alias(rows.KIND),
        F.col(f"_last.{rows.BATCH}").alias(SEQUENCE),
        F.col(PARTITIONS_MET),
    )


def every_row(changes: DataFrame, *, columns: Sequence[str]) -> DataFrame:
    """Change rows of a table without a key, none left out, in the form of `latest_per_key`.

    Returns:
        The columns, `_kind`, `_seq` (a struct that orders the rows; see `last_written`) and `_partitions` (1).
    """
    from pyspark.sql import functions as F  # noqa: N812

    return changes.select(
        *[F.col(_quote(name)) for name in columns],
        F.col(rows.KIND),
        F.struct(*[F.col(name) for name in VERSION_ORDER]).alias(SEQUENCE),
        F.lit(1).alias(PARTITIONS_MET),
    )


def last_written(changes: DataFrame, *, key: Sequence[str]) -> DataFrame:
    """A change frame made of `every_row`, with `_seq` as the batch: the last row per key, or all rows without one."""
    from pyspark.sql import functions as F  # noqa: N812

    batch = F.col(f"{SEQUENCE}.{rows.BATCH}")
    if not key:
        return changes.withColumn(SEQUENCE, batch)
    names = changes.columns
    payload = F.struct(*[F.col(_quote(name)) for name in names])
    last = changes.groupBy(*[F.col(_quote(name)) for name in key]).agg(
        F.max_by(payload, F.col(SEQUENCE)).alias("_last")
    )
    return last.select("_last.*").withColumn(SEQUENCE, batch)


def _quote(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
