"""Rows of partitions that a destination lets go of by itself (`capabilities.ExpiresPartitions`).

A partition is gone some time after it was written last. So a row may be gone if its batch is that old and the partition
is not there, or was made anew since it could be gone; a row that lacks in a partition that was there all the time is
missing. Nor can a row be gone from a table that was made a shorter time ago: what is old was written into it lately.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.commit_times import last_batches_before
from upsert_platform.core.capabilities import EXPIRY_MARGIN, ExpiresPartitions, PartitionLifetimes
from upsert_platform.core.destination import GONE, SEQUENCE
from upsert_platform.core.internal_columns import internal
from upsert_platform.sync.destination_hop import DestinationHop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from upsert_platform.changelog.store import ChangelogStore

_PARTITION: Final = internal("lifetime_of")
_BEFORE: Final = internal("gone_upto")
_HOUR: Final = 3600


def with_gone(hop: DestinationHop, changes: DataFrame) -> DataFrame:
    """Return a change frame with `GONE`, unless partitions of the destination stay."""
    from pyspark.sql import functions as F

    destination = hop.destination
    lifetimes = destination.partition_lifetimes() if isinstance(destination, ExpiresPartitions) else None
    if lifetimes is None or not isinstance(destination, ExpiresPartitions):
        return changes
    absent, present = gone_upto(hop.store, lifetimes, now=now())
    placed = destination.with_partition(changes, _PARTITION)
    bounds = placed.sparkSession.createDataFrame(list(present.items()), f"{_PARTITION} STRING, {_BEFORE} BIGINT")
    joined = placed.join(F.broadcast(bounds), _PARTITION, "left")
    gone = F.col(SEQUENCE) <= F.coalesce(F.col(_BEFORE), F.lit(absent))
    return joined.withColumn(GONE, gone).drop(_PARTITION, _BEFORE)


def gone_upto(store: ChangelogStore, lifetimes: PartitionLifetimes, *, now: datetime) -> tuple[int, Mapping[str, int]]:
    """Return the batch up to which rows may be gone: of partitions that are not there, and of each that is."""
    life = timedelta(seconds=lifetimes.seconds) - EXPIRY_MARGIN
    # What was written in the hour in which a partition was made is taken for written into it.
    made = {name: int(at) // _HOUR * _HOUR for name, at in lifetimes.made.items()}
    hours = sorted(set(made.values()))
    moments = [now - life, *(datetime.fromtimestamp(hour, UTC) - life for hour in hours)]
    absent, *found = (
        batch if moment.timestamp() >= lifetimes.since else 0
        for moment, batch in zip(moments, last_batches_before(store, moments, as_noted=True), strict=True)
    )
    upto = dict(zip(hours, found, strict=True))
    return absent, {name: min(absent, upto[hour]) for name, hour in made.items()}


def now() -> datetime:
    """Return the present moment, which tests replace."""
    return datetime.now(UTC)
