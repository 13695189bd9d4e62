"""The first hop: topic to changelog. Plan, read, commit; batch after batch until the end that was planned."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from upsert_platform.changelog.accounting import OffsetRange, RangeAccount, total
from upsert_platform.changelog.store import ChangelogStore, Head, Positions
from upsert_platform.changelog.upkeep import note_times
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.source import Source, TakesSnapshots
from upsert_platform.core.task_runner import TaskRunner
from upsert_platform.core.wording import counted
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.waiting import told_while_waiting
from upsert_platform.sync.widened_topics import MovedKeys, moved_keys, moved_keys_locally, new_partitions

_LOST_RACES = 5


@dataclass(frozen=True)
class ChangelogPlan:
    """The plan of a changelog's sync: new records in the topics of a table.

    Attributes:
        head: of the changelog, or None when it does not exist yet.
        topics: what the broker tells of each topic.
        backlog: every offset from the committed position to the end, as ranges.
        versions: topic to where it ends, as text.
        details: what more the committed positions tell.
        warnings: what people have to be told of them.
    """

    head: Head | None
    topics: tuple[Any, ...]
    backlog: tuple[OffsetRange, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, str | int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def lag(self) -> int:
        """Offsets not read yet."""
        return sum(item.offsets for item in self.backlog)

    @property
    def work(self) -> str:
        """The work of a run, empty if there is none. A first run fixes where reading begins, also without a record."""
        if not self.backlog:
            return ""
        return f"{counted(self.lag, 'offset')} to read" if self.lag else "the offset at which reading begins, to fix"

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """Return the end offset of the run per topic and partition."""
        return {(item.topic, item.partition): item.end for item in self.backlog}


@dataclass(frozen=True)
class CommittedBatch:
    """One batch that was committed.

    Attributes:
        moved: of partitions that were new to it, how many keys others had given before; none where there were none.
    """

    batch: int
    accounts: tuple[RangeAccount, ...]
    seconds: float
    moved: tuple[MovedKeys, ...] = ()


@dataclass(frozen=True)
class ChangelogRun:
    """The result of a run, for metadata.

    Attributes:
        moved: see `CommittedBatch`.
    """

    head: Head
    batches: int
    account: RangeAccount
    seconds: float
    ranges: tuple[RangeAccount, ...] = field(default=())
    moved: tuple[MovedKeys, ...] = ()


class ChangelogHop:
    """Keeps the changelog of a declared table up with its topics.

    Args:
        run: name of the run, stored in every commit.
    """

    def __init__(self, source: Source, store: ChangelogStore, *, run: str) -> None:
        self.source = source
        self.store = store
        self.run = run
        self._known: tuple[tuple[str, int, str], Sequence[RangeAccount]] | None = None

    def plan(self) -> ChangelogPlan:
        """Compares the committed position with the ends of the topics. No JVM.

        Raises:
            TopicError: a topic is missing, was recreated, or lost records before they were read.
            EndpointError: the brokers cannot be reached.
            ChangelogError: the changelog does not fit the table as it is declared now.
        """
        head = self.store.check_declared()
        topics = self.source.discover()
        backlog = self.source.backlog(topics, head.positions if head else Positions())
        versions = {topic.name: self.source.version(topic) for topic in topics}
        details = self.source.details(head.positions) if head else {}
        warnings = [*(self.source.warnings(head.positions) if head else ()), *self.source.stream_warnings(topics)]
        return ChangelogPlan(head, tuple(topics), tuple(backlog), versions, details, tuple(warnings))

    def execute(
        self,
        spark: OnDemand,
        plan: ChangelogPlan,
        *,
        progress: Callable[[CommittedBatch], None] | None = None,
        waiting: Callable[[str], None] | None = None,
    ) -> ChangelogRun:
        """Reads and commits batches until the planned end is reached.

        Args:
            spark: opens a session for what a task, or this process, should not do by itself.
            progress: is given each batch that was committed.
            waiting: is given a line every few seconds that a batch takes, so that brokers that are away are noticed.

        Raises:
            RecordError: a record cannot be decoded and ``on-error`` is ``fail``.
            ChangelogError: other runs keep committing to the same changelog.
        """
        started = time.monotonic()
        head = self._head_of(plan.head)
        batches = 0
        accounts: list[RangeAccount] = []
        moved: list[MovedKeys] = []
        lost = 0
        while True:
            ranges = self._next_ranges(spark, plan, head, record_bytes=_mean_bytes(accounts))
            if not ranges:
                break
            if not batches:
                with suppress(ChangelogError):  # other commits come first all the time; the next sync notes them
                    note_times(self.store)
            since = time.monotonic()
            offsets = sum(item.offsets for item in ranges)
            with told_while_waiting(waiting, f"batch {head.batch + 1}: reading {offsets:,} offsets"):
                after = self._commit(spark, plan, head, ranges)
            if after is None:
                lost += 1
                if lost > _LOST_RACES:
                    raise ChangelogError(
                        f"the changelog of '{self.source.table.name}' is written by another run all the time; stop one"
                    )
                head = self._head_of(head)
                continue
            new = new_partitions(head, ranges)
            head, batches = after, batches + 1
            done = CommittedBatch(
                head.batch,
                tuple(self._accounts_of(head)),
                time.monotonic() - since,
                tuple(self._moved(spark, head.batch, new)),
            )
            accounts.extend(done.accounts)
            moved.extend(done.moved)
            if progress is not None:
                progress(done)
            self.source.publish(head.positions)
        return ChangelogRun(head, batches, total(accounts), time.monotonic() - started, tuple(accounts), tuple(moved))

    def _head_of(self, known: Head | None) -> Head:
        """Return the head of the changelog, which is created where there is none.

        Raises:
            ChangelogError: it is another one than `known` was of: what was planned to be read begins elsewhere in it.
        """
        head = self.store.create()
        if known is not None and head.changelog_id != known.changelog_id:
            raise ChangelogError(
                f"the changelog of '{self.source.table.name}' was made anew while it was read; nothing of this batch"
                " was committed, run it again"
            )
        return head

    def begin_anew(self) -> Head | None:
        """Commits a batch behind which a new snapshot begins; None where nothing was read yet. No JVM.

        Raises:
            ChangelogError: the source has no snapshots, or another run commits to the same changelog.
        """
        if not isinstance(self.source, TakesSnapshots):
            raise ChangelogError(f"table '{self.source.table.name}' is not read by snapshots")
        head = self.store.head()
        if head is None or not head.batch:
            return None
        landed = self.source.begin_anew(head, location=self.store.location)
        made = self.store.append(landed.files, head=head, positions=landed.positions, run=self.run)
        if made is None:
            raise ChangelogError(
                f"the changelog of '{self.source.table.name}' is written by another run; run it again when that"
                " has ended"
            )
        return made

    def _next_ranges(
        self, spark: OnDemand, plan: ChangelogPlan, head: Head, *, record_bytes: float | None
    ) -> tuple[OffsetRange, ...]:
        remaining = tuple(self.source.remaining(plan.backlog, head.positions))
        if not remaining:
            return ()
        widened = spark.times_a_batch(sum(item.offsets for item in remaining))
        return self.source.bound(remaining, record_bytes=record_bytes, widened=widened)

    def _commit(self, spark: OnDemand, plan: ChangelogPlan, head: Head, ranges: tuple[OffsetRange, ...]) -> Head | None:
        runner = self._runner(spark, head, ranges)
        landed = self.source.land(
            spark.open, ranges, streams=plan.topics, head=head, location=self.store.location, runner=runner
        )
        return self.store.append(landed.files, head=head, positions=landed.positions, run=self.run)

    def _moved(self, spark: OnDemand, batch: int, partitions: list[tuple[str, int]]) -> list[MovedKeys]:
        if not partitions:
            return []
        files = [item for item in self.store.files() if item.may_hold(after=0, upto=batch)]
        if spark.is_local(sum(item.rows or 0 for item in files), sum(item.size for item in files)):
            return moved_keys_locally(self.store, files, batch=batch, partitions=partitions)
        return moved_keys(spark.open(), self.store, batch=batch, partitions=partitions)

    def _runner(self, spark: OnDemand, head: Head, ranges: tuple[OffsetRange, ...]) -> TaskRunner | None:
        """Return the runner of the single task that reads a batch, or None if Spark divides the ranges."""
        offsets = sum(item.offsets for item in ranges)
        if spark.runner(offsets, 0) is None:
            return None
        return spark.runner(offsets, offsets * (_mean_bytes(self._accounts_of(head)) or 0.0))

    def _accounts_of(self, head: Head) -> Sequence[RangeAccount]:
        """The account of the last batch; what the batch before the next one had is asked for again by that."""
        known = (head.changelog_id, head.batch, head.run)
        if self._known is None or self._known[0] != known:
            found = self.store.accounts(after=head.batch - 1, upto=head.batch).get(head.batch, []) if head.batch else []
            self._known = (known, found)
        return self._known[1]


def _mean_bytes(accounts: Sequence[RangeAccount]) -> float | None:
    """Mean size of a record of the batches so far, or None before the first."""
    summed = total(accounts)
    return summed.bytes / summed.records if summed.records else None
