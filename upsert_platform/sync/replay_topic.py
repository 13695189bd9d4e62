"""Replays a topic into the changelog that it was read into: its records are decoded again, as declared now.

No older value wins. A record keeps its topic, partition and offset, and stands among the records of its key by the
batch that had read it first (`changelog/replays.py`); one that was never read stands before all others. Of each key
the row that then counts is committed, where it is not the one that counted already: all of them in one batch, so
nobody ever reads half a replay. A row whose record does not decode any more stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import OffsetRange, RangeAccount, total
from upsert_platform.changelog.data_files import DataFile, read_files
from upsert_platform.changelog.head import Head, Positions
from upsert_platform.changelog.latest import last_rows
from upsert_platform.changelog.quarantine import quarantined_places
from upsert_platform.changelog.replays import ACCOUNT_TOPIC, read_in_column, replays_of
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.tables import file_system
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.source import MODE_UPSERT, ReplaysFrom, Source, Start
from upsert_platform.core.types import quote_name
from upsert_platform.core.wording import counted
from upsert_platform.writing.same_key import join_by_key

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LOST_RACES: Final = 5
_PLACE: Final = (rows.TOPIC, rows.PARTITION, rows.OFFSET)
_IS_READ: Final = internal("is_read")
_WAS: Final = internal("was")
_INTO_NEW: Final = "replay it into a new table, which has a changelog of its own"


@dataclass(frozen=True)
class TopicReplay:
    """The result of replaying a topic.

    Attributes:
        ranges: the offsets that were read again.
        records: read in them.
        rows: that were committed: those whose key now has another row than before.
        quarantined: records that do not decode and had never been read; they are in quarantine now.
        recovered: records that were in quarantine and decode now; they have left it.
        uncertain: keys that are not in the changelog, and whose delete may have been removed from it by a compaction;
            their records were left alone.
        batch: the batch that was committed, or None when nothing was.
    """

    ranges: tuple[OffsetRange, ...] = ()
    records: int = 0
    rows: int = 0
    quarantined: int = 0
    recovered: int = 0
    uncertain: int = 0
    batch: int | None = None

    def counts(self) -> dict[str, int]:
        """The numbers, by name."""
        return {
            "offsets": sum(item.offsets for item in self.ranges),
            "records": self.records,
            "rows_changed": self.rows,
            "quarantined": self.quarantined,
            "left_quarantine": self.recovered,
            **({"uncertain_keys": self.uncertain} if self.uncertain else {}),
        }

    def warning(self) -> str:
        """Return the warning about uncertain keys."""
        return (
            f"{self.uncertain} keys are not in the changelog, and a compaction may have removed their deletes: they"
            " were left alone; a replay into a new table has them"
        )


def replays_from(source: Source) -> ReplaysFrom:
    """The source, as one that can be read again.

    Raises:
        ChangelogError: it is no topic.
    """
    if not isinstance(source, ReplaysFrom):
        raise ChangelogError(
            f"table '{source.table.name}' is not read from a topic: job 'rebuild' takes a new snapshot of a database"
        )
    return source


def check_start(source: Source, start: Start) -> None:
    """Refuses offsets of partitions that there are not, or that mean several topics.

    Raises:
        ChangelogError: for the first of them.
    """
    if not start.offsets:
        return
    streams = source.discover()
    if len(streams) != 1:
        raise ChangelogError(
            f"offsets number the partitions of one topic, and table '{source.table.name}' reads {len(streams)}: start"
            " at a timestamp"
        )
    known = sorted(lane.partition for lane in streams[0].partitions)
    for lane, _ in start.offsets:
        if lane not in known:
            raise ChangelogError(f"topic '{streams[0].name}' has no partition {lane}; it has {known[0]} to {known[-1]}")


def planned_ranges(source: Source, store: ChangelogStore, start: Start) -> tuple[Head, tuple[OffsetRange, ...]]:
    """Return the ranges of a replay: from its start to the changelog's position. No JVM.

    Raises:
        ChangelogError: nothing was read yet, or rows of the table have no key.
        TopicError: the topic is not the one that was read.
        EndpointError: the brokers cannot be reached.
    """
    again = replays_from(source)
    if source.mode != MODE_UPSERT or not source.table.primary_key:
        raise ChangelogError(
            f"table '{source.table.name}' keeps every record, so those of a replay would be there twice; {_INTO_NEW}"
        )
    check_start(source, start)
    head = store.head()
    if head is None or not head.batch:
        raise ChangelogError(f"table '{source.table.name}' was not read yet: the next sync reads its topic")
    streams = source.discover()
    source.backlog(streams, head.positions)  # refuses a topic that was made anew
    ranges = []
    for item in again.starting(start).backlog(streams, Positions()):
        end = min(item.end, head.positions.offsets.get(item.topic, {}).get(item.partition, item.start))
        if item.start < end:
            ranges.append(replace(item, end=end))
    return head, tuple(ranges)


def replay_topic(
    spark: SparkSession,
    source: Source,
    store: ChangelogStore,
    *,
    start: Start,
    run: str,
    dry_run: bool = False,
    tell: Callable[[str], None] = lambda message: None,
) -> TopicReplay:
    """Reads a topic again and commits the rows that count now and did not before.

    Args:
        dry_run: commit nothing; the counts are those that would be.
        tell: is given a line when it reads, and when another run committed meanwhile.

    Raises:
        ChangelogError: see `planned_ranges`; or other runs keep committing to the changelog.
        RecordError: a record does not decode and ``on-error`` is ``fail``.
    """
    first, ranges = planned_ranges(source, store, start)
    head = first
    if not ranges:
        return TopicReplay()
    tell(f"reading {sum(item.offsets for item in ranges)} offsets of {counted(len(ranges), 'partition')} again")
    # Files that no commit names are read by nobody else.
    files = replays_from(source).write(spark, ranges, batch=head.batch + 1, location=store.location)
    try:
        for _ in range(_LOST_RACES):
            found = _Judged(spark, store, head, ranges, files)
            try:
                if found.noted.erased > first.erased:
                    raise ChangelogError(
                        f"a key of '{source.table.name}' was erased while its topics were read, and may be among what"
                        " was read; replay again"
                    )
                done = found.summed()
                if dry_run or not found.is_due:
                    return done
                committed = found.committed(run)
            finally:
                found.close()
            if committed is not None:
                return replace(done, batch=committed.batch)
            tell("another run committed meanwhile: looking at the rows again")
            head = store.create()
    finally:
        _delete(store, files)
    raise ChangelogError(f"the changelog of '{source.table.name}' is written by another run all the time; stop one")


class _Judged:
    """The rows of a replay beside those of a changelog at one head."""

    def __init__(
        self,
        spark: SparkSession,
        store: ChangelogStore,
        head: Head,
        ranges: Sequence[OffsetRange],
        files: Sequence[DataFile],
    ) -> None:
        from pyspark.sql import functions as F

        self.spark, self.store, self.head, self.ranges = spark, store, head, tuple(ranges)
        self.schema = rows.spark_schema(store.table)
        read = read_files(spark, store.location, [item.path for item in files], schema=self.schema)
        texts = read.where(F.col(rows.KIND) == rows.KIND_ACCOUNTING).select(rows.ACCOUNTING).collect()
        self.account = total(RangeAccount.from_json(row[0]) for row in texts)
        self.accounts = store.accounts(after=0, upto=head.batch)
        self.read = read.where(F.col(rows.KIND).isin(*rows.CHANGE_KINDS))
        self.changed = self._changed().persist()
        # Asked behind the files that are read: whoever drops deletes of them notes it before.
        self.noted = store.head() or head
        self.refused = self._never_read(read.where(F.col(rows.KIND) == rows.KIND_QUARANTINED)).persist()
        self.marks = self._marks().persist()

    def close(self) -> None:
        """Lets go of what Spark keeps. Idempotent."""
        for frame in (self.changed, self.refused, self.marks):
            frame.unpersist()

    def summed(self) -> TopicReplay:
        """The counts, with no batch."""
        from pyspark.sql import functions as F

        certain = self._certain()
        self.rows = self.changed.where(certain).count()
        self.kept = self.changed.where(certain & F.col(_IS_READ)).select(*_PLACE).distinct().count()
        self.quarantined, self.recovered = self.refused.count(), self.marks.count()
        uncertain = self.changed.where(~certain).count()
        return TopicReplay(self.ranges, self.account.records, self.rows, self.quarantined, self.recovered, uncertain)

    @property
    def is_due(self) -> bool:
        """Return whether there is anything to commit."""
        return bool(self.rows or self.quarantined or self.recovered)

    def committed(self, run: str) -> Head | None:
        """Commits; None when another run did so first."""
        summed = self.account
        account = RangeAccount(
            ACCOUNT_TOPIC,
            -1,
            0,
            summed.offsets,
            records=summed.records,
            gaps=summed.gaps,
            kept=self.kept,
            superseded=summed.records - self.kept - self.quarantined - summed.skipped_total,
            quarantined=self.quarantined,
            skipped=summed.skipped,
            rows=self.rows,
            bytes=summed.bytes,
        )
        accounting = self.spark.createDataFrame(
            [(rows.KIND_ACCOUNTING, account.to_json())], f"{rows.KIND} STRING, {rows.ACCOUNTING} STRING"
        )
        frame = self.changed.where(self._certain()).select(*self._names())
        for other in (self.refused, self.marks, accounting):
            frame = frame.unionByName(self._completed(other))
        files = self.store.write(frame, batch=self.head.batch + 1)
        return self.store.append(files, head=self.head, positions=self.head.positions, run=run)

    def _names(self) -> list[Column]:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        return [F.col(quote_name(name)) for name in StructType.fromDDL(self.schema).names if name != rows.BATCH]

    def _completed(self, frame: DataFrame) -> DataFrame:
        """The rows with nulls in the columns that they lack."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        return frame.select(
            *[
                F.col(quote_name(field.name))
                if field.name in frame.columns
                else F.lit(None).cast(field.dataType).alias(field.name)
                for field in StructType.fromDDL(self.schema)
                if field.name != rows.BATCH
            ]
        )

    def _changed(self) -> DataFrame:
        """The row of each key that counts now, where another one, or none, counts in the changelog.

        With `_IS_READ` (whether the replay read it), `_batch` (which batch had read its record first, 0 for none) and
        `_WAS` (the row that counts in the changelog, null where it has none).
        """
        from pyspark.sql import functions as F

        names = list(self.store.table.primary_key)
        key = [F.col(quote_name(name)) for name in names]
        known = self.store.read(self.spark, after=0, upto=self.head.batch)
        known = join_by_key(known, self.read.select(*key).distinct(), names, "left_semi")
        # Rows that this replay decoded anew, of the same record and key, take the place of the old ones.
        older = join_by_key(known, self.read.select(*key, *_PLACE).distinct(), [*names, *_PLACE], "left_anti")
        first_read = read_in_column(self.accounts)
        replays = replays_of(self.accounts)
        if replays:
            dated = F.when(F.col(rows.BATCH).isin(replays), first_read).otherwise(F.col(rows.BATCH))
            older = older.withColumn(rows.BATCH, dated)
        again = self.read.withColumn(rows.BATCH, first_read).withColumn(_IS_READ, F.lit(True))
        every = older.withColumn(_IS_READ, F.lit(False)).unionByName(again)
        compared = [*_PLACE, rows.ROW, rows.KIND, *(name for name in self._declared() if name not in names)]
        was = F.struct(*[_comparable(known, name).alias(f"c{at}") for at, name in enumerate(compared)]).alias(_WAS)
        count = self.store.about_rows(upto=self.head.batch)
        counted = last_rows(known, key=names, count=count).select(*key, was)
        current = join_by_key(last_rows(every, key=names, count=count), counted, names, "left")
        same = F.lit(True)
        for at, name in enumerate(compared):
            same = same & _comparable(known, name).eqNullSafe(F.col(f"{_WAS}.c{at}"))
        # A delete of a key that the changelog does not know changes nothing.
        idle = F.col(_WAS).isNull() & (F.col(rows.KIND) == rows.KIND_DELETE)
        return current.where(~same & ~idle)

    def _declared(self) -> list[str]:
        return [column.name for column in rows.stored_columns(self.store.table)]

    def _certain(self) -> Column:
        """Return whether a row may be written: its key is known, or no delete of it can be missing.

        A compaction removes deletes that every table has applied, and the broker's own removes them from the topic. Of
        a key that moved to another partition, a record in its old one may outlive both.
        """
        from pyspark.sql import functions as F

        first: dict[tuple[str, int], int] = {}
        for found in self.accounts.values():
            for item in found:
                place = item.topic, item.partition
                first[place] = min(item.start, first.get(place, item.start))
        of_topics = {place for place in first if place[1] >= 0}
        starts = {(item.topic, item.partition): item.start for item in self.ranges}
        whole = not self.account.gaps and all(place in starts and starts[place] <= first[place] for place in of_topics)
        if not self.noted.floor or len(of_topics) < 2 or whole:
            return F.lit(True)
        return F.col(_WAS).isNotNull() | (F.col(rows.BATCH) > self.noted.floor)

    def _never_read(self, refused: DataFrame) -> DataFrame:
        """Those records that no batch had read: of the others the raw record, or a row, is there already."""
        from pyspark.sql import functions as F

        return refused.where(read_in_column(self.accounts) == F.lit(0)).join(
            self._quarantined(), list(_PLACE), "left_anti"
        )

    def _marks(self) -> DataFrame:
        """A row per record that leaves the quarantine: it decodes now, and is of no key that is left alone."""
        from pyspark.sql import functions as F

        names = list(self.store.table.primary_key)
        alone = self.changed.where(~self._certain()).select(*[F.col(quote_name(name)) for name in names])
        leaving = join_by_key(self.read, alone, names, "left_anti")
        found = self._quarantined().join(leaving.select(*_PLACE).distinct(), list(_PLACE), "left_semi")
        return found.withColumn(rows.KIND, F.lit(rows.KIND_REPLAYED))

    def _quarantined(self) -> DataFrame:
        ddl = f"{rows.TOPIC} STRING, {rows.PARTITION} INT, {rows.OFFSET} BIGINT"
        return self.spark.createDataFrame(
            quarantined_places(self.store, upto=self.head.batch, with_discarded=True), ddl
        )


def _comparable(frame: DataFrame, name: str) -> Column:
    """A column as Spark compares it: it refuses maps, however deep."""
    from pyspark.sql import functions as F

    found = F.col(quote_name(name))
    return found.cast("string") if "map<" in frame.schema[name].dataType.simpleString() else found


def _delete(store: ChangelogStore, files: Iterable[DataFile]) -> None:
    """Deletes files that no commit names."""
    system, folder = file_system(store.location)
    for item in files:
        system.delete_file(f"{folder}{item.path}")
