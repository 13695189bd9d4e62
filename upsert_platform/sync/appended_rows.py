"""Compares a table that rows are appended to with all rows that its changelog tells of: as often there as appended.

Such a table has no key, so nothing says which of its rows a batch wrote: all of them are read, or none. Rows that are
equal are counted. One that is there less often than it was appended is missing. One that is there more often was
appended twice. One that was never appended is somebody else's: others may append to the table too, unless INSERT
OVERWRITE replaces what it holds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from upsert_platform.core.capabilities import ExpiresPartitions, ExpiresRows, HoldsLess, StoresOtherValues
from upsert_platform.core.destination import FAILED, OPERATION, OPERATION_UPSERT
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.masking import Mask
from upsert_platform.core.types import quote_name
from upsert_platform.sync.comparable_values import comparable
from upsert_platform.sync.comparison import SHOWN_ROWS, Comparison, describe
from upsert_platform.sync.destination_hop import DestinationHop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

BATCH_IS_UNTOLD: Final = (
    "nothing was compared: rows are appended to a table without a key, of which nothing tells the rows of a batch;"
    " 'verify' compares all of its rows"
)
"""What a check of a batch says of every such table."""
_APPENDED, _THERE = internal("appended"), internal("there")


def untold_reason(hop: DestinationHop) -> str:
    """Return why the changelog does not tell which rows such a table has to hold; empty where it does."""
    if not hop.target.insert.overwrite and hop.target.source.table.primary_key:
        return (
            f"nothing was compared: '{hop.target.source.table.name}' has a key, and its changelog keeps the last values"
            " alone, not each one that was appended; 'sink.operation' = 'upsert' keeps a table that can be compared"
        )
    destination = hop.destination
    if isinstance(destination, ExpiresRows) and destination.time_to_live() is not None:
        return "nothing was compared: rows of the table expire, and nothing tells which of them are gone"
    if isinstance(destination, ExpiresPartitions) and destination.partition_lifetimes() is not None:
        return "nothing was compared: partitions of the table expire, and nothing tells which rows are gone with them"
    return ""


def appended_remedy(hop: DestinationHop) -> str:
    """Return what to do about rows that differ: without a key none of them can be repaired by itself."""
    name = hop.target.table.name
    if hop.target.insert.overwrite:
        return "the next batch replaces all rows of the table"
    return (
        f"'upsert-platform reset {name} --drop-target' drops the table, and the next sync appends every row anew; a row"
        " that is there too often may be of another program that appends equal ones"
    )


def check_appended(spark: SparkSession, hop: DestinationHop, *, upto: int) -> Comparison:
    """Compare all rows of a table without a key with those that were appended up to a batch.

    Returns:
        `untold` of it says why, where nothing could be compared.
    """
    reason = untold_reason(hop)
    if reason:
        return nothing_compared(upto, reason)
    judged = _judged(spark, hop, upto=upto).persist()
    try:
        found = _summed(hop, judged, upto=upto)
        head = hop.store.head()
        moves = head is None or head.batch > upto
        if not moves or found.passed:
            return found
        if hop.target.insert.overwrite:
            return nothing_compared(upto, "nothing was compared: another run was replacing the table's rows meanwhile")
        # Rows beyond those that were expected may be of a later batch, which another run is appending.
        return replace(found, extra=0, beside=found.beside + found.extra)
    finally:
        judged.unpersist()


def nothing_compared(batch: int, reason: str) -> Comparison:
    """Return the result of a check that has looked at no row."""
    return Comparison(
        batch, complete=False, compared=0, missing=0, extra=0, stale=0, refused=0, sample=(), untold=reason
    )


def _judged(spark: SparkSession, hop: DestinationHop, *, upto: int) -> DataFrame:
    """Each row once, as `k0`, ..., with how often it was appended, and how often it is there."""
    from pyspark.sql import functions as F

    destination = hop.destination
    appended = hop.every_change(spark, upto=upto)
    if FAILED in appended.columns:
        appended = appended.where(F.col(FAILED).isNull()).drop(FAILED)
    if isinstance(destination, HoldsLess):
        appended = destination.held(appended)
    appended = appended.where(F.col(OPERATION) == OPERATION_UPSERT)
    if isinstance(destination, StoresOtherValues):
        stored = destination
        appended = appended.withColumns(
            {item.name: stored.stored_value(item.name, F.col(quote_name(item.name))) for item in destination.columns}
        )

    def placed(frame: DataFrame, *, is_there: bool) -> DataFrame:
        values = [
            comparable(F.col(quote_name(item.name)), item).alias(f"k{place}")
            for place, item in enumerate(destination.columns)
        ]
        counts = [F.lit(int(not is_there)).alias(_APPENDED), F.lit(int(is_there)).alias(_THERE)]
        return frame.select(*values, *counts)

    sides = placed(appended, is_there=False).unionByName(placed(destination.read(spark), is_there=True))
    places = [f"k{place}" for place in range(len(destination.columns))]
    return sides.groupBy(*places).agg(F.sum(_APPENDED).alias(_APPENDED), F.sum(_THERE).alias(_THERE))


def _summed(hop: DestinationHop, judged: DataFrame, *, upto: int) -> Comparison:
    from pyspark.sql import functions as F

    appended, there = F.col(_APPENDED), F.col(_THERE)
    is_known = F.lit(True) if hop.target.insert.overwrite else appended > 0
    sums = {
        "compared": appended,
        "rows": there,
        "lacking": F.greatest(appended - there, F.lit(0)),
        "extra": F.when(is_known, F.greatest(there - appended, F.lit(0))),
        "beside": F.when(~is_known, there),
    }
    total = judged.agg(*[F.coalesce(F.sum(value), F.lit(0)).alias(name) for name, value in sums.items()]).first()
    assert total is not None
    refused = min(total["lacking"], _refused(hop, judged.sparkSession, upto=upto) if total["lacking"] else 0)
    missing = total["lacking"] - refused
    wrong = judged.where(((appended > there) & F.lit(missing > 0)) | (is_known & (there > appended)))
    shown = wrong.limit(SHOWN_ROWS).collect() if missing or total["extra"] else []
    return Comparison(
        batch=upto,
        complete=True,
        compared=total["compared"],
        missing=missing,
        extra=total["extra"],
        stale=0,
        refused=refused,
        sample=tuple(_shown(hop, row) for row in shown),
        rows=total["rows"],
        beside=total["beside"],
    )


def _refused(hop: DestinationHop, spark: SparkSession, *, upto: int) -> int:
    """Return how many of the rows to append the table has refused; those that failed, or delete, are kept with them."""
    from pyspark.sql import functions as F

    kept = hop.refused.count()
    if not kept:
        return 0
    changes = hop.every_change(spark, upto=upto)
    other = F.col(OPERATION) != OPERATION_UPSERT
    if FAILED in changes.columns:
        other = other | F.col(FAILED).isNotNull()
    return max(0, kept - changes.where(other).count())


def _shown(hop: DestinationHop, row: Row) -> dict[str, str]:
    from upsert_platform.core.destination import STATUS

    names = [item.name for item in hop.destination.columns]
    is_missing = row[_APPENDED] > row[_THERE]
    told = describe(
        {**row.asDict(), STATUS: "missing" if is_missing else "extra"},
        names, (), skips_nulls=False, mask=Mask.of(hop.target.table),
    )  # fmt: skip
    return {**told, "difference": f"appended {row[_APPENDED]} times, there {row[_THERE]} times"}
