"""Topics that were widened: keys that new partitions give although other partitions had them before.

Producers choose a partition by the key and the number of partitions, so most keys of a widened topic move. Which of two
partitions has a key's last value nobody can tell by offsets: the platform takes the later batch, and tells of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.changelog.change_rows import change_rows
from upsert_platform.changelog.head import Head
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.plain_values import comparable_values
from upsert_platform.core.types import quote_name
from upsert_platform.writing.same_key import join_by_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from upsert_platform.changelog.live_files import LiveFile


@dataclass(frozen=True)
class MovedKeys:
    """The number of keys that moved to a partition in its first batch."""

    topic: str
    partition: int
    keys: int

    def __str__(self) -> str:
        return (
            f"partition {self.partition} of topic '{self.topic}' is new, and {self.keys} keys of its first batch came"
            " from other partitions before: the later batch counts. Was the topic widened while records of these keys"
            " were under way in their old partitions, an older value may have overtaken a newer one"
        )


def new_partitions(head: Head, ranges: Sequence[OffsetRange]) -> list[tuple[str, int]]:
    """Topic and partition of the ranges of which no batch before has given a record.

    Args:
        head: of the changelog before the batch; nothing is new to its first batch.
    """
    if head.batch == 0:
        return []
    # A partition that was empty so far has a position already: its beginning.
    return [
        (item.topic, item.partition)
        for item in ranges
        if item.offsets and not head.positions.offsets.get(item.topic, {}).get(item.partition)
    ]


def moved_keys_locally(
    store: ChangelogStore, files: Sequence[LiveFile], *, batch: int, partitions: Sequence[tuple[str, int]]
) -> list[MovedKeys]:
    """As `moved_keys`, by this process.

    Args:
        files: of the changelog, up to the batch; the caller knows that they are small.
    """
    key = store.table.primary_key
    if not partitions or not key:
        return []
    found = change_rows(store, files, columns=key, after=0, upto=batch)
    columns = [comparable_values(found.column(name)) for name in (rows.BATCH, rows.TOPIC, rows.PARTITION, *key)]
    before: set[str] = set()
    given: dict[tuple[str, int], set[str]] = {place: set() for place in partitions}
    for number, topic, partition, *values in zip(*columns, strict=True):
        if number < batch:
            before.add(repr(values))
        elif (topic, partition) in given:
            given[topic, partition].add(repr(values))
    counted = {place: len(keys & before) for place, keys in sorted(given.items())}
    return [MovedKeys(*place, count) for place, count in counted.items() if count]


def moved_keys(
    spark: SparkSession, store: ChangelogStore, *, batch: int, partitions: Sequence[tuple[str, int]]
) -> list[MovedKeys]:
    """Counts keys that new partitions gave in a batch and others in the batches before: keys of history are read once.

    Args:
        partitions: topic and partition, new to the batch.
    """
    from pyspark.sql import functions as F

    if not partitions or not store.table.primary_key:
        return []
    key = [quote_name(name) for name in store.table.primary_key]
    place = F.struct(rows.TOPIC, rows.PARTITION)
    new = [
        F.struct(F.lit(topic).alias(rows.TOPIC), F.lit(partition).alias(rows.PARTITION))
        for topic, partition in partitions
    ]
    given = store.read(spark, after=batch - 1, upto=batch).where(place.isin(*new))
    given = given.select(rows.TOPIC, rows.PARTITION, *key).distinct()
    before = store.read(spark, after=0, upto=batch - 1).select(*key)
    met = join_by_key(given, before, store.table.primary_key, "left_semi").groupBy(rows.TOPIC, rows.PARTITION).count()
    return [MovedKeys(*row) for row in met.orderBy(rows.TOPIC, rows.PARTITION).collect()]
