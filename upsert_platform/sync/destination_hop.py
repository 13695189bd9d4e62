"""The second hop: changelog to destination. Plan, read, transform, write and commit."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from upsert_platform.changelog.head import BEGUN
from upsert_platform.changelog.latest import COMMITTED_IN, every_row, last_written
from upsert_platform.changelog.latest_in_tasks import latest_of_span
from upsert_platform.changelog.progress import WriteProgress
from upsert_platform.changelog.refused import KEYS, RefusedStore, key_frame
from upsert_platform.changelog.replays import dated_rows, replays_of
from upsert_platform.changelog.rows import KIND, KIND_DELETE, PARTITIONS_MET, stored_columns
from upsert_platform.changelog.sampled_rows import latest_of_sample
from upsert_platform.changelog.store import ChangelogStore, Head
from upsert_platform.changelog.upkeep import applied_before, note_applied
from upsert_platform.core.capabilities import (
    ComparesRecords,
    KeepsOlderRows,
    StoresOtherValues,
    TellsBefore,
    WritesInTask,
)
from upsert_platform.core.destination import (
    FAILED,
    OPERATION,
    OPERATION_DELETE,
    SEQUENCE,
    BatchSpan,
    Destination,
    DestinationState,
    KeepRefused,
    Lease,
    WriteReport,
)
from upsert_platform.core.errors import RecordError
from upsert_platform.core.masking import Mask
from upsert_platform.core.task_runner import RowsOfTask, RowsOfTasks
from upsert_platform.core.types import quote_name
from upsert_platform.sync.arrow_insert import ArrowInsert, fails_at_bad_rows
from upsert_platform.sync.binding import Target
from upsert_platform.sync.destination_run import DestinationRun, summed_runs, with_refused
from upsert_platform.sync.few_files import few_files, rows_by_accounts
from upsert_platform.sync.images_before import image_rows, with_images
from upsert_platform.sync.leased import leased
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.position import check_position
from upsert_platform.sync.transform import change_frame, computed, failed_rows
from upsert_platform.writing.outcomes import TaskStats, Written, raising_what_tasks_raised
from upsert_platform.writing.same_key import join_by_key

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class DestinationPlan:
    """The plan of a destination's sync: the distance between table and changelog.

    Attributes:
        head: of the changelog, or None when it does not exist.
    """

    state: DestinationState
    head: Head | None

    @property
    def behind(self) -> int:
        """Batches to apply."""
        return max(0, self.head.batch - self.state.applied_batch) if self.head else 0


class DestinationHop:
    """Keeps a destination table equal to what its insert selects from a changelog.

    Args:
        refused: keeps rows that the destination will not take.
        run: name of the run, for the lease and for messages.

    Attributes:
        notes: whether the lake is told of each write how far the table is.
    """

    def __init__(
        self, target: Target, store: ChangelogStore, destination: Destination, *, refused: RefusedStore, run: str
    ) -> None:
        self.target = target
        self.store = store
        self.destination = destination
        self.refused = refused
        self.run = run
        self.notes = True

    def plan(self) -> DestinationPlan:
        """Compares the applied batch with the head of the changelog. No JVM.

        Raises:
            DestinationError: the destination was written from another changelog, or from commits that the changelog
                does not have, or the changelog is gone.
        """
        plan = self.unchecked_plan()
        self.check(plan)
        return plan

    def unchecked_plan(self) -> DestinationPlan:
        """As `plan`, of a table that may hold what its changelog does not tell: for a repair. No JVM."""
        return DestinationPlan(self._state(), self.store.head())

    def span(self, *, after: int, upto: int, head: Head, replaces: bool = False, repeats: bool = False) -> BatchSpan:
        """Return a span of batches, with the identity of the commit that it ends with, if anything tells it.

        Args:
            head: of the changelog.
        """
        commit = head.run if upto == head.batch else self.store.commit_of(upto)
        return BatchSpan(after, upto, head.changelog_id, self.run, replaces, repeats, commit or "")

    def _state(self) -> DestinationState:
        """Return the destination's state; if the destination has none, the lake records whether it ever had one."""
        state = self.destination.state()
        if state.applied_batch or state.lost:
            return state
        before = applied_before(self.store, self.destination.name)
        if not before:
            return state
        return replace(
            state,
            lost=f"the batches up to {before} were applied to {self.destination.uri}, but it tells of none of them: the"
            " table or its control record was dropped, or the declaration leads to another table now; every batch is"
            " written again by the next sync",
        )

    def rows_behind(self, plan: DestinationPlan) -> int:
        """Change rows that a plan found to apply. No JVM."""
        return 0 if plan.head is None else self.rows_between(after=plan.state.applied_batch, upto=plan.head.batch)

    def rows_between(self, *, after: int, upto: int) -> int:
        """Change rows of a span of batches, by their accounts. No JVM."""
        return rows_by_accounts(self.store, after=after, upto=upto)

    def execute(
        self,
        spark: OnDemand,
        plan: DestinationPlan,
        *,
        tell: Callable[[str], None] = lambda message: None,
        progress: Callable[[str], None] | None = None,
    ) -> DestinationRun | None:
        """Applies every batch that is not applied yet; None when another run did so meanwhile.

        Args:
            spark: opens a session for what a task, or this process, should not do by itself.
            plan: what was found to do; it is made anew under the lease.
            tell: is given a line when the run has to wait for another writer, or has to write everything again.
            progress: is given a line every few seconds while rows are written.

        Raises:
            LeaseHeldError: another run writes the destination, and does so for longer than PATIENCE.
            DestinationError: the write failed; nothing is recorded as applied.
        """
        if plan.state.lost:
            tell(f"table '{self.destination.name}': {plan.state.lost}")
        self.destination.prepare()
        with self.leased(tell) as lease:
            return self.apply(spark, lease, progress=progress)

    def apply(
        self, spark: OnDemand, lease: Lease, *, progress: Callable[[str], None] | None = None
    ) -> DestinationRun | None:
        """Apply the plan once the destination is prepared and its lease is held."""
        plan = self.plan()
        if plan.head is None or not plan.behind:
            return None
        if not isinstance(self.destination, TellsBefore):
            return self._write(spark, lease, plan, upto=plan.head.batch, progress=progress)
        # Images before belong to one batch each.
        runs: list[DestinationRun] = []
        for upto in range(plan.state.applied_batch + 1, plan.head.batch + 1):
            runs.append(self._write(spark, lease, self.plan(), upto=upto, progress=progress))
        return summed_runs(runs)

    def _write(
        self,
        spark: OnDemand,
        lease: Lease,
        plan: DestinationPlan,
        *,
        upto: int,
        progress: Callable[[str], None] | None,
    ) -> DestinationRun:
        """Writes the batches behind the applied one, up to a batch."""
        assert plan.head is not None
        started = time.monotonic()
        replaces = self.target.insert.overwrite
        after = 0 if replaces else plan.state.applied_batch
        span = self.span(after=after, upto=upto, head=plan.head, replaces=replaces)
        # What an earlier try kept belongs to batches that were not recorded: this one refuses them again, or not.
        self.refused.forget(span)
        if self.destination.commits_in_parts and span.commit:
            # If the write breaks off, the log may lose this commit before somebody comes back to what it left.
            note_applied(self.store, f"{self.destination.name}{BEGUN}", span.upto, commit=span.commit)
        report, met, unmatched = (
            self._applied_by_one_task(spark, span, lease, progress)
            or self._applied_by_tasks(spark, span, lease, progress)
            or self._applied_by_spark(spark.open(), span, lease, progress)
        )
        if self.notes:
            note_applied(self.store, self.destination.name, span.upto, commit=span.commit)
        self._settle_overtaken(spark, span)
        return DestinationRun(span, report, met, unmatched, time.monotonic() - started)

    def _applied_by_one_task(
        self, spark: OnDemand, span: BatchSpan, lease: Lease, progress: Callable[[str], None] | None
    ) -> tuple[WriteReport, int, int] | None:
        """Applies a span of few rows by one task, if the insert needs nothing but Arrow."""
        few = few_files(spark, self.store, after=span.after, upto=span.upto)
        insert = None if few is None else self.arrow_insert(after=span.after, upto=span.upto, sets_aside=True)
        if few is None or insert is None:
            return None
        make = insert.of_span(self.store, few.paths, after=span.after, upto=span.upto)
        changes = RowsOfTask(make, few.runner, self._failed_key())
        keep = self.refused.of(span, progress=self.watch(progress, most=few.rows))
        report = self.destination.write(changes, span=span, lease=lease, keep_refused=keep)
        return report, changes.counted.get("met", 0), changes.counted.get("unmatched", 0)

    def _applied_by_tasks(
        self, spark: OnDemand, span: BatchSpan, lease: Lease, progress: Callable[[str], None] | None
    ) -> tuple[WriteReport, int, int] | None:
        """Applies a span by tasks that make the rows which they write, if Arrow computes them."""
        if not isinstance(self.destination, WritesInTask) or not self.destination.writes_in_tasks():
            return None
        insert = self.arrow_insert(after=span.after, upto=span.upto, sets_aside=True)
        if insert is None or (spark.on_cluster and not self.target.source.table.primary_key):
            return None
        session = spark.open()
        with (
            raising_what_tasks_raised(f"table '{self.destination.name}'"),
            insert.shares_of(session, self.store, after=span.after, upto=span.upto) as found,
        ):
            if found is None:
                return None
            share, deleted = found
            shares = max(1, int(session.sparkContext.defaultParallelism))
            changes = RowsOfTasks(share, session, shares, failed_key=self._failed_key())
            watch = self.watch(progress, most=self.rows_between(after=span.after, upto=span.upto))
            keep = self.refused.of(span, progress=watch)
            report = self.destination.write(changes, span=span, lease=lease, keep_refused=keep)
        return report, changes.counted["met"], max(0, changes.counted["deletes"] - deleted)

    def arrow_insert(self, *, after: int, upto: int, sets_aside: bool = False) -> ArrowInsert | None:
        """Return the insert where Arrow computes it of a span of batches; None where Spark has to. No JVM.

        A span of a source without a key that a replay came into is Spark's: see `_reduced`.

        Args:
            sets_aside: rows that cannot be computed may be among what the insert makes. Where one of them ends the
                write, Spark computes all rows before any is written.
        """
        insert = ArrowInsert.of(self.target, self.destination, sets_aside=sets_aside and self._keeps_failed)
        if insert is None or self.target.source.table.primary_key:
            return insert
        return None if replays_of(self.store.accounts(after=after, upto=upto)) else insert

    def _applied_by_spark(
        self, spark: SparkSession, span: BatchSpan, lease: Lease, progress: Callable[[str], None] | None
    ) -> tuple[WriteReport, int, int]:
        """Applies a span in Spark's workers.

        Returns:
            The report, how many keys were met in several partitions, and unmatched deletes.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        met = F.count(F.when(F.col(PARTITIONS_MET) > 1, 1)).alias("met")
        read = Observation(f"reduced {self.destination.name} {span.upto}")
        made = Observation(f"changes {self.destination.name} {span.upto}")
        places = self._places()
        reduced = self._reduced(spark, after=span.after, upto=span.upto, whole=bool(places))
        deleted = self._is_of(reduced, after=span.after) & (F.col(KIND) == KIND_DELETE)
        reduced = reduced.observe(read, met, F.count(F.when(deleted, 1)).alias("deleted"))
        transformed = self._transformed(spark, reduced)
        failed = self._failed(transformed, span)
        changes = self._last_written(computed(transformed), after=span.after, upto=span.upto, places=places)
        deletes = F.count(F.when(F.col(OPERATION) == OPERATION_DELETE, 1)).alias("deletes")
        if PARTITIONS_MET in changes.columns:
            changes = changes.observe(made, met, deletes).drop(PARTITIONS_MET)
        else:
            changes = changes.observe(made, F.lit(0).alias("met"), deletes)
        if isinstance(self.destination, TellsBefore):
            changes = self._with_images(spark, changes, after=span.after, upto=span.upto)
        rows = self.rows_between(after=span.after, upto=span.upto)
        watch = self.watch(progress, most=rows)
        keep = self.refused.of(span, failed=() if failed is None else failed.files, progress=watch)
        try:
            report = self.destination.write(changes, span=span, lease=lease, keep_refused=keep)
        finally:
            keep.give_up()
        # Of a batch without a row Spark leaves out all operators, those that count too.
        if not rows:
            return with_refused(report, failed), 0, 0
        unmatched = max(0, int(made.get["deletes"]) - int(read.get["deleted"]))
        return with_refused(report, failed), int(read.get["met"]) + int(made.get["met"]), unmatched

    def _with_images(self, spark: SparkSession, changes: DataFrame, *, after: int, upto: int) -> DataFrame:
        """A change frame of one batch, with what its rows were before it."""
        source = self.target.source.table
        names = [column.name for column in stored_columns(source)]
        images = image_rows(self.store.read(spark, after=after, upto=upto), columns=names)
        columns = [column.name for column in self.destination.columns]
        told = computed(self._transformed(spark, images))
        return with_images(changes, told, columns=columns, key=self.destination.primary_key)

    def watch(self, tell: Callable[[str], None] | None, *, most: int) -> WriteProgress | None:
        """Report the progress of a write; does nothing without a listener.

        Args:
            tell: is given a line every few seconds.
            most: rows that are written at most.
        """
        what = f"table '{self.destination.name}'"
        return None if tell is None else WriteProgress(self.refused.location, what=what, tell=tell, most=most)

    def _settle_overtaken(self, spark: OnDemand, span: BatchSpan) -> None:
        """Takes out refused rows of whose keys the destination has now taken a later value (or their delete)."""
        import pyarrow.compute as pc

        key = self.destination.primary_key
        if not key or isinstance(self.destination, ComparesRecords):
            return
        kept = self.refused.keys()
        older = kept.filter(pc.less_equal(kept["batch"], span.after))
        if not older.num_rows:
            return
        from pyspark.sql import functions as F

        session = spark.open()
        found = key_frame(session, older, columns=self.destination.columns, key=key)
        changes = self.changes(session, after=span.after, upto=span.upto)
        written = changes.select(*[F.col(quote_name(name)).alias(f"k{index}") for index, name in enumerate(key)])
        met = join_by_key(F.broadcast(found), written, [f"k{index}" for index in range(len(key))], "left_semi")
        overtaken = {text for row in met.select(KEYS).collect() for text in row[KEYS]}
        again = set(kept.filter(pc.greater(kept["batch"], span.after))["key"].to_pylist())
        self.refused.settle(overtaken - again)

    def leased(self, tell: Callable[[str], None]) -> AbstractContextManager[Lease]:
        """Takes the destination's lease; see `leased`."""
        return leased(self.destination, owner=self.run, tell=tell)

    def changes(self, spark: SparkSession, *, after: int, upto: int) -> DataFrame:
        """The change frame of a span of batches: the target's columns, `_op` and `_seq`, one row per key.

        A key whose last row could not be computed is there, with nulls: it is kept aside as refused. Of a source
        without a key only rows that could be computed count.
        """
        return self.changes_with_failures(spark, after=after, upto=upto).drop(FAILED)

    def changes_with_failures(self, spark: SparkSession, *, after: int, upto: int) -> DataFrame:
        """As `changes`, with the column `transform.FAILED` if an expression can fail for a row."""
        frame = self._transformed(spark, self._reduced(spark, after=after, upto=upto))
        if self.target.source.table.primary_key:
            return self._last_written(frame, after=after, upto=upto)
        return self._last_written(computed(frame), after=after, upto=upto).drop(PARTITIONS_MET)

    def every_change(self, spark: SparkSession, *, upto: int) -> DataFrame:
        """The change frame of all batches up to one, for a destination without a key: no row is reduced with another.

        Where an expression can fail for a row it has the column `transform.FAILED`.
        """
        from pyspark.sql import functions as F

        frame = self._transformed(spark, self._reduced(spark, after=0, upto=upto))
        return frame.drop(PARTITIONS_MET).withColumn(SEQUENCE, F.lit(upto).cast("bigint"))

    def sample(self, spark: SparkSession, *, upto: int, one_in: int) -> DataFrame:
        """Return the last rows up to a batch of about one in `one_in` keys of the source, which has a key."""
        names = [column.name for column in stored_columns(self.target.source.table)]
        return latest_of_sample(
            spark, self.store, upto=upto, columns=names, one_in=one_in, ordered=bool(self._folded_key())
        )

    def changes_of_sample(self, spark: SparkSession, sample: DataFrame, *, upto: int) -> DataFrame:
        """As `changes_with_failures` of the batches up to one, of the rows of `sample`."""
        return self._last_written(self._transformed(spark, sample), after=0, upto=upto)

    def _failed(self, transformed: DataFrame, span: BatchSpan) -> Written[TaskStats] | None:
        """Sets the rows that cannot be computed aside, before anything is written; they are kept with the others.

        Raises:
            RecordError: there are some, and ``on-error`` is ``fail``, as it is where images before are told.
        """
        return self._failed_of(transformed.where(self._is_of(transformed, after=span.after)), self.refused.of(span))

    def keep_failed(self, changes: DataFrame, *, batch: int) -> int:
        """Sets the rows of `changes_with_failures` that cannot be computed aside, in the place of what is kept of them.

        Args:
            batch: the applied batch.

        Returns:
            How many there are.

        Raises:
            RecordError: there are some, and ``on-error`` is ``fail``, as it is where images before are told.
        """
        failed = self._failed_of(changes, self.refused.again(batch))
        if failed is None:
            return 0
        failed.keep_refused()
        return failed.total.refused

    def _failed_of(self, changes: DataFrame, keep: KeepRefused) -> Written[TaskStats] | None:
        what = f"table '{self.destination.name}'"
        failed = failed_rows(changes, self.destination.primary_key, what=what, keep=keep)
        if failed is None or not failed.total.refused:
            return None
        if not self._keeps_failed:
            aside = "" if isinstance(self.destination, TellsBefore) else ", or set 'on-error' = 'quarantine'"
            first = Mask.of(self.target.table).told(failed.examples()[0])
            failed.discard()
            raise RecordError(
                f"{what}: {failed.total.refused} rows cannot be computed, the first {first}. Mend"
                f" the expression or the source{aside}"
            )
        return failed

    @property
    def _keeps_failed(self) -> bool:
        """Return whether rows that cannot be computed are kept aside; otherwise the first of them ends the write."""
        return not (fails_at_bad_rows(self.target.table) or isinstance(self.destination, TellsBefore))

    def _failed_key(self) -> tuple[str, ...] | None:
        """Return the key of rows that cannot be computed; None where all rows can be."""
        return None if self.target.insert.failure is None else tuple(self.destination.primary_key)

    def _reduced(self, spark: SparkSession, *, after: int, upto: int, whole: bool = False) -> DataFrame:
        """The rows of a span of batches, one per key of the source, or all of them.

        Where a source has no key, nobody could tell yet which records overtook those that a replay brought back: then
        the rows of earlier batches are there too, until `_last_written` knows the keys of the target.
        """
        source = self.target.source.table
        names = [column.name for column in stored_columns(source)]
        if not source.primary_key:
            dated = dated_rows(spark, self.store, after=after, upto=upto) if self.destination.primary_key else None
            return every_row(self.store.read(spark, after=after, upto=upto) if dated is None else dated, columns=names)
        if whole:
            return every_row(self.store.read(spark, after=after, upto=upto), columns=names)
        return latest_of_span(
            spark, self.store, after=after, upto=upto, key=source.primary_key, columns=names,
            ordered=bool(self._folded_key()),
        )  # fmt: skip

    def _transformed(self, spark: SparkSession, reduced: DataFrame) -> DataFrame:
        """The change frame of reduced rows."""
        # A name of its own per frame: frames are lazy, and two of one destination may be alive at once.
        view = f"changes_{uuid.uuid4().hex}"
        reduced.createOrReplaceTempView(view)
        return change_frame(spark, self.target.insert, self.target.source.table, self.target.table, view)

    def _is_of(self, frame: DataFrame, *, after: int) -> SparkColumn:
        """Return whether rows on their way were committed after a batch; earlier ones are beside rows of a replay."""
        from pyspark.sql import functions as F

        if self.target.source.table.primary_key:
            return F.lit(True)
        return F.col(f"{SEQUENCE}.{COMMITTED_IN}") > after

    def _last_written(self, changes: DataFrame, *, after: int, upto: int, places: tuple[str, ...] = ()) -> DataFrame:
        """One row per key; where the source had none, with `PARTITIONS_MET` of the target's keys.

        Keys of which no row was committed after `after` are not written again: their rows are there for a replay alone.

        Args:
            places: of a destination that keeps older rows: one put per key and place, and at most one delete per key.
        """
        from pyspark.sql import functions as F

        key, keyed = self.destination.primary_key, bool(self.target.source.table.primary_key)
        stored: dict[str, SparkColumn] = {}
        if isinstance(self.destination, StoresOtherValues) and (places or self._folded_key()):
            # Keys that the destination stores as one are one key, of which the last row counts.
            stored = {
                f"_stored_{place}": self.destination.stored_value(name, F.col(quote_name(name)))
                for place, name in enumerate((*key, *places))
            }
        if keyed and not stored:
            return changes
        names = list(stored) or list(key)
        last = last_written(
            changes.withColumns(stored) if stored else changes,
            key=names[: len(key)],
            places=names[len(key) :],
            count=self.store.about_rows(after=after, upto=upto),
        ).drop(*stored)
        if not keyed:
            return last.where(F.col(SEQUENCE) > after)
        return last if places else last.drop(PARTITIONS_MET)

    def _places(self) -> tuple[str, ...]:
        """Columns that identify a row beside its key. After `Destination.prepare`."""
        return self.destination.places if isinstance(self.destination, KeepsOlderRows) else ()

    def _folded_key(self) -> tuple[str, ...]:
        return self.destination.folded_key() if isinstance(self.destination, StoresOtherValues) else ()

    def check(self, plan: DestinationPlan) -> None:
        """Refuses a table whose position is none of its changelog's; see `check_position`."""
        check_position(self.store, plan.head, plan.state, table=self.destination.name, uri=self.destination.uri)
