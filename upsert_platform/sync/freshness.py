"""The age of the oldest record that has not reached a table, and the stage where it waits. No JVM, nothing written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.changelog.change_rows import change_times
from upsert_platform.changelog.commit_times import first_commit_after
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.store import ChangelogStore, Positions
from upsert_platform.core.model import Table
from upsert_platform.core.platform_options import platform_settings
from upsert_platform.core.source import Source
from upsert_platform.sync.binding import Binding, QuerySource, Target, changelog_of
from upsert_platform.sync.position import check_position

MAX_DELAY: Final = "freshness.max-delay"
WARN_DELAY: Final = "freshness.warn-delay"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Records waiting at one stage.

    Attributes:
        what: for people: ``3 batches of changelog 'users' are not applied``.
        since: when the oldest record of it was made, UTC; None where nobody tells.
    """

    what: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Freshness:
    """Records that have not reached a table, with the time since when they wait.

    Attributes:
        at: when that was looked at, UTC.
    """

    at: datetime
    waiting: tuple[Waiting, ...] = ()

    @property
    def delay(self) -> float | None:
        """Seconds since the oldest record that waits was made; 0 when none waits, None when its age is not known."""
        known = [item.since for item in self.waiting if item.since is not None]
        if not known:
            return None if self.waiting else 0.0
        return max(0.0, (self.at - min(known)).total_seconds())

    @property
    def behind(self) -> str:
        """Return a description of what waits; empty if nothing does."""
        return "; ".join(f"{item.what} ({self._age(item)})" for item in self.waiting)

    def _age(self, item: Waiting) -> str:
        if item.since is None:
            return "how long is not known: the oldest has no time"
        return f"the oldest for {max(0.0, (self.at - item.since).total_seconds()):.1f} s"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of check `freshness` for a table.

    Attributes:
        fails: the delay is above `freshness.max-delay`; a judgement that neither passes nor fails is a warning.
        text: what is wrong; empty when nothing is.
        limits: option name to seconds.
    """

    passed: bool
    fails: bool
    text: str
    freshness: Freshness
    limits: dict[str, float]


@dataclass(frozen=True, slots=True)
class FreshnessLimits:
    """From which delay on a table is late; None where nothing is declared."""

    warn: timedelta | None
    fail: timedelta | None

    @classmethod
    def of(cls, table: Table) -> Self | None:
        """Those that a table of a project without errors declares; None if it declares none."""
        settings = platform_settings(table)
        warn, fail = settings.warn_delay, settings.max_delay
        return None if warn is None and fail is None else cls(warn, fail)

    def judge(self, freshness: Freshness) -> Judgement:
        """Compares a delay with the limits. A delay that is not known is a warning."""
        delay = freshness.delay
        over = [
            (name, limit.total_seconds())
            for name, limit in ((MAX_DELAY, self.fail), (WARN_DELAY, self.warn))
            if limit is not None and delay is not None and delay > limit.total_seconds()
        ]
        limits = {
            name: limit.total_seconds()
            for name, limit in ((MAX_DELAY, self.fail), (WARN_DELAY, self.warn))
            if limit is not None
        }
        if delay is None:
            return Judgement(
                False, False, f"how old the table is cannot be told: {freshness.behind}", freshness, limits
            )
        if not over:
            return Judgement(True, False, "", freshness, limits)
        name, most = over[0]
        late = f"the oldest record that is not in the table is {delay:.1f} s old, '{name}' is {most:g} s"
        return Judgement(False, name == MAX_DELAY, f"{late}: {freshness.behind}", freshness, limits)


def judge(binding: Binding, target: Target, lake: Lake) -> Judgement:
    """Asks a table that declares limits, and what it is made from.

    Raises:
        UpsertPlatformError: one of them does not answer.
    """
    limits = FreshnessLimits.of(target.table)
    assert limits is not None
    with closing(target.open()) as destination:
        state = destination.state()
    store = changelog_of(target.source, lake)
    check_position(store, store.head(), state, table=target.table.name, uri=destination.uri)
    return limits.judge(freshness_of(binding, target, lake, applied=state.applied_batch))


def freshness_of(binding: Binding, target: Target, lake: Lake, *, applied: int) -> Freshness:
    """Return the records missing from a table: unread in topics, not computed by its query, or not applied.

    Args:
        applied: the last batch that the table holds.

    Raises:
        TopicError, EndpointError: the topics cannot be asked.
        ChangelogError: a changelog cannot be read.
    """
    found = [unread(binding.sources[name], changelog_of(binding.sources[name], lake)) for name in target.insert.tables]
    found += unapplied(binding, target, lake, applied=applied)
    return Freshness(datetime.now(UTC), tuple(item for item in found if item is not None))


def unread(source: Source, store: ChangelogStore) -> Waiting | None:
    """Return the records of a table's topics that are not in its changelog."""
    head = store.head()
    return unread_of(source, source.backlog(source.discover(), head.positions if head else Positions()))


def unread_of(source: Source, backlog: Sequence[OffsetRange]) -> Waiting | None:
    """The same of a backlog that `Source.backlog` gave."""
    ranges = [item for item in backlog if item.offsets]
    times = source.first_times(ranges) if ranges else []
    if not times:
        return None
    known = [moment for moment in times if moment is not None]
    offsets = sum(item.offsets for item in ranges)
    return Waiting(f"{offsets} offsets of '{source.table.name}' are not read", min(known, default=None))


def unapplied(
    binding: Binding, target: Target, lake: Lake, *, applied: int, store: ChangelogStore | None = None
) -> list[Waiting]:
    """Return the committed records that have not been applied to a table.

    Args:
        store: what the table reads, where the caller has it open.
    """
    found = []
    if isinstance(target.source, QuerySource):
        inputs = {name: binding.changelog(name, lake) for name in target.insert.tables}
        plan = binding.query_hop(target.source.query.name, lake, run="").plan()
        for item in plan.slices:
            what = f"of changelog '{item.name}' are not in query '{target.source.query.name}'"
            found.append(_batches(inputs[item.name], after=item.after, what=what))
    store = changelog_of(target.source, lake) if store is None else store
    found.append(_batches(store, after=applied, what=f"of '{target.source.table.name}' are not applied"))
    return [item for item in found if item is not None]


def _batches(store: ChangelogStore, *, after: int, what: str) -> Waiting | None:
    """The changes of the batches after one; None where these hold none. Rows of a query are as old as their commit."""
    import pyarrow.compute as pc

    head = store.head()
    if head is None or head.batch <= after:
        return None
    count, oldest = 0, None
    for times in change_times(store, after=after, upto=head.batch):
        count += len(times)
        least = pc.min(times).as_py()
        oldest = least if oldest is None or (least is not None and least < oldest) else oldest
    if not count:
        return None
    number = head.batch - after
    told = f"{number} {'batch' if number == 1 else 'batches'} with {count} changes {what}"
    return Waiting(told, oldest or first_commit_after(store, after))
