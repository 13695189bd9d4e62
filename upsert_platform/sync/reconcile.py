"""Repairs a table: writes the rows that differ from the last values of its changelog, and no others.

The table serves on meanwhile. Its position stays: what is written belongs to batches that it has applied. A table that
holds batches which its changelog does not have, since that was restored from an older copy, is made equal to the
changelog as it is, and takes over its position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from upsert_platform.changelog.store import Head
from upsert_platform.changelog.upkeep import note_applied
from upsert_platform.core.capabilities import ComparesRecords
from upsert_platform.core.destination import (
    OPERATION,
    OPERATION_DELETE,
    SEQUENCE,
    STATUS,
    DestinationState,
    WriteReport,
)
from upsert_platform.core.errors import DestinationError
from upsert_platform.core.types import quote_name, spark_type
from upsert_platform.sync.comparison import Comparison, keep_verdict
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.position import restored_from_older
from upsert_platform.sync.verify import CHANGE, as_held, check_everything, judged_by_buckets, summed

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

WRITTEN: tuple[str, ...] = ("missing", "extra", "stale")


@dataclass(frozen=True)
class Reconciliation:
    """The result of a repair.

    Attributes:
        before: the comparison of every row that it began with.
        report: of the write; None when nothing differed, or nothing was to be written.
        after: the comparison of every row after the write, whose verdict is kept in the destination; else None.
        unnamed: of an adoption, the extra rows whose key the changelog does not know, which were deleted.
    """

    before: Comparison
    report: WriteReport | None = None
    after: Comparison | None = None
    unnamed: int = 0

    @property
    def last(self) -> Comparison:
        """The comparison that tells how the table is now."""
        return self.after or self.before


def check_reconcilable(hop: DestinationHop) -> None:
    """Refuses tables of which nothing tells which rows differ.

    Raises:
        DestinationError: rows have no key, or follow from records by rules of the connector's own.
    """
    destination = hop.destination
    if isinstance(destination, ComparesRecords):
        raise DestinationError(
            f"table '{destination.name}' is made of records by its connector's own rules, so no single row can be"
            " written from its last value; drop the table to have it written again from its changelog"
        )
    if not destination.primary_key:
        raise DestinationError(f"table '{destination.name}' appends rows without a key: there is no last value per key")


def check_adoptable(table: str, head: Head | None, state: DestinationState) -> None:
    """Refuse to adopt a table whose position is one of its changelog.

    Args:
        head: of the changelog.
        state: what the table's control record says.

    Raises:
        DestinationError: it is the platform's already.
    """
    if head is not None and state.applied_batch and state.changelog_id == head.changelog_id:
        raise DestinationError(
            f"table '{table}' has applied batch {state.applied_batch} of its changelog: it is the platform's already."
            f" 'upsert-platform prove {table}' proves it, 'upsert-platform reconcile {table}' repairs it"
        )


def reconcile(
    spark: SparkSession,
    hop: DestinationHop,
    *,
    dry_run: bool,
    adopts: bool = False,
    through: Head | None = None,
    check: Callable[[Comparison], None] = lambda found: None,
    check_unnamed: Callable[[DestinationHop, DataFrame], None] = lambda hop, rows: None,
    tell: Callable[[str], None] = lambda message: None,
    progress: Callable[[str], None] | None = None,
) -> Reconciliation:
    """Compares every row of a table with its changelog, up to the applied batch, and writes those that differ.

    Missing and stale rows are put, extra ones deleted. Rows that the destination refuses again are kept aside, and so
    are those that the insert cannot compute, whose rows in the table stay.

    Args:
        dry_run: compare only.
        adopts: the table was filled by another writer: it is made equal to all of the changelog, and takes over its
            position.
        through: the head of the changelog to which the table is made equal, whose position it takes; its applied batch
            if left out.
        check: is given what differs before anything is written, and may raise.
        check_unnamed: is given the extra rows of a table that is adopted whose key the changelog does not know, as
            `verify.judged_rows` has them, and may raise; they are deleted else.
        tell: is given a line when the run has to wait for another writer.
        progress: is given a line every few seconds while rows are written.

    Raises:
        DestinationError: the table cannot be repaired by row, holds nothing yet, or the write failed.
        LeaseHeldError: another run writes the table.
    """
    check_reconcilable(hop)
    if dry_run:
        return Reconciliation(check_everything(spark, hop, upto=_repairable(hop, adopts=adopts).upto))
    hop.destination.prepare()
    with hop.leased(tell) as lease:
        found = _repairable(hop, adopts=adopts, through=through)
        if found.restored:
            tell(
                f"table '{hop.destination.name}' has applied {found.restored}; the table is made equal to the changelog"
            )
        applied = found.upto
        changes = as_held(hop.destination, hop.changes_with_failures(spark, after=0, upto=applied))
        joined, equal = judged_by_buckets(hop, changes, hop.destination.read(spark), keeps_change=True)
        judged = joined.persist()
        try:
            before = summed(hop, judged, batch=applied, complete=True, equal=equal)
            check(before)
            hop.keep_failed(changes, batch=applied)
            unnamed = 0
            if adopts and before.extra:
                among = judged.where(is_unnamed())
                check_unnamed(hop, among)
                unnamed = among.count()
            if before.passed and not found.moves:
                keep_verdict(hop, before, found.state)
                return Reconciliation(before)
            span = hop.span(after=found.after, upto=applied, head=found.head, repeats=True)
            differing = _differing(hop, judged, applied=applied)
            watch = hop.watch(progress, most=before.missing + before.extra + before.stale)
            keep = hop.refused.again(applied, progress=watch)
            report = hop.destination.write(differing, span=span, lease=lease, keep_refused=keep)
            if found.moves:
                note_applied(hop.store, hop.destination.name, applied, commit=span.commit)
        finally:
            judged.unpersist()
        # A verdict that another check recorded while rows were written is of the rows before.
        written = replace(hop.destination.state(), last_verdict=hop.destination.last_verdict())
        after = check_everything(spark, hop, upto=applied)
        keep_verdict(hop, after, written)
    return Reconciliation(before, report, after, unnamed)


def is_unnamed() -> SparkColumn:
    """Return whether a judged row that has `CHANGE` is extra, and no change names its key."""
    from pyspark.sql import functions as F

    return (F.col(STATUS) == "extra") & F.col(CHANGE).isNull()


@dataclass(frozen=True)
class _Repairable:
    """Up to which batch a table is repaired.

    Attributes:
        state: of the table.
        after: the batch that it has applied, as far as the changelog has one of that number.
        restored: why its own batch is none of the changelog's, which was restored from an older copy: then the table is
            made equal to all of it, and holds its last batch. Empty where the table's position stays.
        moved: the table takes the position of the changelog for another reason: another writer filled it, so that it
            has none yet, or a result that was computed anew is at this batch.
    """

    state: DestinationState
    head: Head
    after: int
    upto: int
    restored: str = ""
    moved: bool = False

    @property
    def moves(self) -> bool:
        """Return whether the table takes over the position of the changelog."""
        return bool(self.restored) or self.moved


def _repairable(hop: DestinationHop, *, adopts: bool = False, through: Head | None = None) -> _Repairable:
    plan = hop.unchecked_plan()
    head, applied = plan.head, plan.state.applied_batch
    if adopts and head is not None:
        check_adoptable(hop.destination.name, head, plan.state)
        return _Repairable(plan.state, head, head.batch, head.batch, moved=True)
    if head is not None and applied and plan.state.changelog_id == head.changelog_id:
        restored = restored_from_older(hop.store, head, plan.state)
        if restored:
            return _Repairable(plan.state, head, min(applied, head.batch), head.batch, restored)
    hop.check(plan)
    if through is not None:
        if head is None or (head.changelog_id, head.run) != (through.changelog_id, through.run):
            raise DestinationError(
                f"table '{hop.destination.name}': another run advanced its changelog meanwhile; nothing was written,"
                " plan again"
            )
        return _Repairable(plan.state, head, head.batch, head.batch, moved=applied < head.batch)
    if head is None or not applied:
        why = plan.state.lost or "nothing was written to it yet"
        raise DestinationError(f"table '{hop.destination.name}': {why}; run job 'sync'")
    return _Repairable(plan.state, head, applied, applied)


def _differing(hop: DestinationHop, judged: DataFrame, *, applied: int) -> DataFrame:
    """The change frame of the rows that differ: as the changelog has them; a key that it does not know is deleted."""
    from pyspark.sql import functions as F

    destination = hop.destination
    places = {name: f"k{index}" for index, name in enumerate(destination.primary_key)}
    known = F.col(CHANGE).isNotNull()
    columns = []
    for column in destination.columns:
        assert column.type is not None
        unknown = F.col(places[column.name]) if column.name in places else F.lit(None)
        told = F.col(f"{CHANGE}.{quote_name(column.name)}")
        value = F.when(known, told).otherwise(unknown).cast(spark_type(column.type))
        columns.append(value.alias(column.name))
    operation = F.when(known, F.col(f"{CHANGE}.{OPERATION}")).otherwise(F.lit(OPERATION_DELETE)).alias(OPERATION)
    sequence = F.when(known, F.col(f"{CHANGE}.{SEQUENCE}")).otherwise(F.lit(applied)).cast("bigint").alias(SEQUENCE)
    return judged.where(F.col(STATUS).isin(*WRITTEN)).select(*columns, operation, sequence)
