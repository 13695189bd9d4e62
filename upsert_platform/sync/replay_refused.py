"""Replays rows that a destination refused, once it or its declaration was mended.

What is written is the value that a key has by now, not the one that was refused, so nothing newer is overwritten: under
the destination's lease, and only when it has applied every batch of its changelog.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.refused import KEYS, REFUSED_IN, key_frame
from upsert_platform.core.capabilities import ComparesRecords
from upsert_platform.core.destination import SEQUENCE, Destination, RefusedRow
from upsert_platform.core.errors import DestinationError
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.types import quote_name
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.transform import computed, failed_rows
from upsert_platform.writing.same_key import join_by_key

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_LATE: Final = internal("late")


@dataclass(frozen=True)
class RefusedReplay:
    """The result of a replay of rejected rows. Keys are those of `RefusedRow`; what was replayed or superseded is no
    longer kept aside.

    Attributes:
        replayed: keys whose present value is in the destination now.
        superseded: keys of which the destination has taken a later value since.
        refused_count: rows that it refuses still; they stay aside.
        refused: some of them.
        unknown: keys that the insert does not give (any more); their rows stay aside.
    """

    replayed: int = 0
    superseded: int = 0
    refused_count: int = 0
    refused: tuple[RefusedRow, ...] = ()
    unknown: tuple[str, ...] = ()


def replay_refused(
    spark: SparkSession,
    hop: DestinationHop,
    *,
    keys: Collection[str] | None = None,
    tell: Callable[[str], None] = lambda message: None,
) -> RefusedReplay:
    """Writes the present values of refused keys again. Reads the changelog from its beginning.

    Args:
        keys: as they are kept; all if None.
        tell: is given a line when the run has to wait for another writer.

    Raises:
        LeaseHeldError: another run writes the destination.
        DestinationError: rows of the destination have no key, it has not applied every batch, or the write failed;
            nothing is taken out of what is kept aside then.
        RecordError: a row is refused again, and the declaration wants that to stop a write.
    """
    destination = hop.destination
    check_replayable(destination)
    destination.prepare()
    with hop.leased(tell) as lease:
        plan = hop.plan()
        kept = _chosen(hop.refused.keys(), keys)
        if not kept.num_rows:
            return RefusedReplay()
        if plan.head is None or plan.behind:
            ends = plan.head.batch if plan.head else 0
            raise DestinationError(
                f"table '{destination.name}' has applied batch {plan.state.applied_batch} of {ends}: run job 'sync',"
                " then replay again"
            )
        applied = plan.state.applied_batch
        again = hop.refused.again(applied)
        changes = hop.changes_with_failures(spark, after=0, upto=applied)
        with _wanted(spark, destination, changes, kept) as (wanted, late, frame):
            if wanted:
                span = hop.span(after=applied, upto=applied, head=plan.head, repeats=True)
                what = f"table '{destination.name}'"
                failed = failed_rows(frame, destination.primary_key, what=what, keep=again)
                if failed is not None:
                    failed.keep_refused()
                destination.write(computed(frame), span=span, lease=lease, keep_refused=again)
        still = again.keys
        hop.refused.settle((wanted | late) - still)
        return RefusedReplay(
            replayed=len(wanted - still),
            superseded=len(late),
            refused_count=len(still),
            refused=tuple(again.examples),
            unknown=tuple(sorted(set(kept["key"].to_pylist()) - wanted - late)),
        )


def check_replayable(destination: Destination) -> None:
    """Refuses destinations that only append.

    Raises:
        DestinationError: nobody could tell whether a row is there already.
    """
    if not destination.primary_key and not isinstance(destination, ComparesRecords):
        raise DestinationError(
            f"table '{destination.name}' appends rows without a key, so a refused row cannot be replayed: nothing tells"
            " whether it is there already. Send its record once more, or insert what 'quarantine show' prints by hand"
        )


def _chosen(kept: pa.Table, keys: Collection[str] | None) -> pa.Table:
    if keys is None:
        return kept
    import pyarrow as pa

    return kept.filter(pa.array([key in keys for key in kept["key"].to_pylist()], pa.bool_()))


@contextmanager
def _wanted(
    spark: SparkSession, destination: Destination, changes: DataFrame, kept: pa.Table
) -> Iterator[tuple[set[str], set[str], DataFrame]]:
    """Keys to write, keys that a later batch has overtaken, and the changes to write."""
    if isinstance(destination, ComparesRecords):
        # A record alone may be older than its row; all records of a row, in their order, give what must be in it.
        texts = set(kept["key"].to_pylist())
        yield texts, set(), destination.same_rows(changes, refused=texts)
        return
    from pyspark.sql import functions as F

    key = destination.primary_key
    found = key_frame(spark, kept, columns=destination.columns, key=key)
    named = [F.col(f"k{index}").alias(name) for index, name in enumerate(key)]
    found = found.select(*named, KEYS, REFUSED_IN)
    late = F.col(SEQUENCE) > F.col(REFUSED_IN)
    judged = join_by_key(changes, F.broadcast(found), key, "inner").withColumn(_LATE, late).persist()
    try:
        texts_of = {True: set[str](), False: set[str]()}
        for row in judged.select(KEYS, _LATE).collect():
            texts_of[row[_LATE]].update(row[KEYS])
        columns = [quote_name(name) for name in changes.columns]
        yield texts_of[False], texts_of[True], judged.where(~F.col(_LATE)).select(*columns)
    finally:
        judged.unpersist()
