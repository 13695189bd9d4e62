"""One turn of each hop in continuous mode: what `sync` does with it, with what can be kept open kept open.

Positions, commits and leases are those of `sync`, so both may alternate. A step belongs to one worker, which calls it
from one thread.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog.change_rows import change_times
from upsert_platform.changelog.head import Head
from upsert_platform.changelog.pauses import Pause
from upsert_platform.changelog.upkeep import applied_before, note_applied
from upsert_platform.core.capabilities import PacesCommits
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.sync.changelog_hop import ChangelogHop
from upsert_platform.sync.comparison import keep_verdict
from upsert_platform.sync.destination_hop import DestinationHop, DestinationRun
from upsert_platform.sync.leased import LEASE
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.query_hop import QueryHop
from upsert_platform.sync.streaming.beside import Beside
from upsert_platform.sync.streaming.measures import Measures
from upsert_platform.sync.streaming.upkeep import Upkeep
from upsert_platform.sync.verify import check_batch, is_comparable

if TYPE_CHECKING:
    from upsert_platform.changelog.store import ChangelogStore
    from upsert_platform.core.destination import Lease

CHECKED_ROWS: Final = 10_000
"""Change rows of the newest batches that the check of an interval looks at: nothing is written meanwhile."""

_NOTE_SECONDS: Final = 10.0
"""Between two commits that note in the lake how far a table is: each batch would be two commits."""


class Step(ABC):
    """A repeated unit of work of a worker.

    Attributes:
        measures: of its table.
        warnings: what people have to be told of it, as it stands.
        upkeep: of the Delta table that it commits to; None where it commits to none.
    """

    measures: Measures
    warnings: Sequence[str] = ()
    upkeep: Upkeep | None = None

    @abstractmethod
    def run(self, *, drains: bool) -> bool:
        """Does what there is to do now; whether something was committed.

        Args:
            drains: the process is about to end: nothing new is begun, what was read is brought to its tables.

        Raises:
            UpsertPlatformError: it failed, and may be tried again.
        """

    def keep_up(self) -> None:
        """Does the upkeep that is due by what was committed.

        Raises:
            UpsertPlatformError: it failed, and may be tried again.
        """
        if self.upkeep is not None:
            self.upkeep.do_due()

    def reset(self) -> None:
        """Gives up what is kept open: after a failure, and at the end."""
        return


class ChangelogStep(Step):
    """Topics to a changelog."""

    upkeep: Upkeep

    def __init__(self, hop: ChangelogHop, spark: OnDemand) -> None:
        self.hop = hop
        self.measures = Measures(hop.source.table.name, "changelog")
        self._spark = spark
        self.upkeep = Upkeep(hop.store)
        self._connections: ExitStack | None = None
        hop.store.keep_open()

    def run(self, *, drains: bool) -> bool:
        """Commits batches up to the ends that the topics have now."""
        if drains:
            return False
        if self._connections is None:
            self._connections = ExitStack()
            self._connections.enter_context(self.hop.source.connected())
        plan = self.hop.plan()
        self.warnings = plan.warnings
        self.measures.set(lag=plan.lag)
        if not plan.backlog:
            return False
        run = self.hop.execute(self._spark, plan)
        self.measures.add(
            batches=run.batches,
            records=run.account.records,
            quarantined=run.account.quarantined,
            commit_seconds=run.seconds,
        )
        self.measures.set(lag=0, applied=run.head.batch)
        self.upkeep.note(run.batches)
        return bool(run.batches)

    def reset(self) -> None:
        """Closes the connections to the source, and lets a merge end."""
        from deltalake.exceptions import DeltaError

        connections, self._connections = self._connections, None
        if connections is not None:
            connections.close()
        with suppress(UpsertPlatformError, DeltaError, OSError):  # files that are not merged are as good
            self.upkeep.wait()


class QueryStep(Step):
    """Changelogs to the result of a query."""

    upkeep: Upkeep

    def __init__(self, hop: QueryHop, spark: OnDemand) -> None:
        self.hop = hop
        self.measures = Measures(hop.store.query.name, "query")
        self._spark = spark
        self.upkeep = Upkeep(hop.store)
        hop.note_seconds = _NOTE_SECONDS
        for store in (hop.store, *hop.inputs.values()):
            store.keep_open()

    def run(self, *, drains: bool) -> bool:
        """Computes the batches that are not applied."""
        plan = self.hop.plan()
        self.measures.set(lag=plan.behind)
        if not plan.is_due:
            return False
        run = self.hop.execute(self._spark)
        self.measures.add(batches=run.batches, records=run.read, commit_seconds=run.seconds)
        self.measures.set(lag=0, applied=run.batch)
        self.upkeep.note(run.batches)
        return bool(run.batches)

    def reset(self) -> None:
        """Notes in the inputs what the result has of them: they may let go of its commit before it goes on."""
        from deltalake.exceptions import DeltaError

        with suppress(UpsertPlatformError, DeltaError, OSError):  # the next batch notes it
            self.hop.note()
        with suppress(UpsertPlatformError, DeltaError, OSError):  # files that are not merged are as good
            self.upkeep.wait()


@dataclass
class _Held:
    """A destination that is open, prepared and leased.

    Attributes:
        noted_at: when it was last noted in the lake how far the table is, of `time.monotonic`.
        unnoted: the applied batch, if that is not noted yet, else 0.
        applied: the applied batch, and `commit` the identity of its commit.
        aside: the changelog, for the thread that counts.
    """

    hop: DestinationHop
    lease: Lease
    stack: ExitStack
    aside: ChangelogStore
    noted_at: float = -math.inf
    unnoted: int = 0
    applied: int = 0
    commit: str = ""

    def is_of(self, head: Head | None) -> bool:
        """Return whether a changelog with this head may have made what the table holds."""
        if head is None:
            return not self.applied
        if head.batch > self.applied:
            return True  # compared with the changelog before the next write
        return head.batch == self.applied and self.commit in ("", head.run)


class DestinationStep(Step):
    """A changelog, or the result of a query, to a table; the lease is kept from turn to turn.

    Args:
        make: opens the hop; the step closes its destination.
        check_seconds: how long after a check the newest batches are looked at again.
        paused: tells whether the table is paused, turn for turn; its lease is given back then.
        stopped: tells why nothing is written from the changelogs, as they are now.
        tell: is given a line when the table has to be written from its beginning again.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], DestinationHop],
        spark: OnDemand,
        *,
        run: str,
        check_seconds: float,
        paused: Callable[[], Pause | None] = lambda: None,
        stopped: Callable[[], str | None] = lambda: None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.measures = Measures(name, "table")
        self._make = make
        self._spark = spark
        self._run = run
        self._check_seconds = check_seconds
        self._paused = paused
        self._stopped = stopped
        self._tell = tell
        self._checked_at = time.monotonic()
        self._looked_upto = 0
        self._written_at: float | None = None
        self._held: _Held | None = None
        self._counting = Beside("measures")

    def run(self, *, drains: bool) -> bool:
        """Applies the batches that are not applied, and checks the newest ones from time to time."""
        if self._paused() is not None:
            self.reset()
            return False
        held = self._held or self._open()
        hop = held.hop
        held.lease.check()
        head = hop.store.head()
        if not held.is_of(head):
            hop.plan()  # says which batches are in neither
        behind = (head.batch if head else 0) - self.measures.read().applied
        self.measures.set(lag=max(0, behind))
        if behind <= 0 or (not drains and self._comes_too_soon(hop)):
            self._counting.look()  # behind the comparison: it may have failed because the changelog is another one
            if not drains:
                self._check_when_due(hop)
            return False
        stop = self._stopped()
        self.warnings = () if stop is None else (f"nothing is written, {stop}",)
        if stop is not None:
            return False
        notes = time.monotonic() - held.noted_at >= _NOTE_SECONDS
        hop.notes = notes
        done = hop.apply(self._spark, held.lease)
        now = time.time()
        if done is None:
            state = hop.plan().state
            held.applied, held.commit = state.applied_batch, state.commit
            self.measures.set(lag=0, applied=held.applied)
            return False
        self.measures.set(lag=0, applied=done.span.upto)
        self._written_at = time.monotonic()
        held.applied, held.commit = done.span.upto, done.span.commit
        held.noted_at, held.unnoted = (self._written_at, 0) if notes else (held.noted_at, done.span.upto)
        self._counting.begin(partial(self._count, held.aside, done, now))
        if not drains:
            self._check_when_due(hop)
        return True

    def _count(self, store: ChangelogStore, done: DestinationRun, now: float) -> None:
        """Adds a batch to the measures, beside the next one: the ages of its rows are read from the changelog."""
        report = done.report
        self.measures.add(
            batches=1,
            records=report.upserts + report.deletes,
            refused=report.refused_count,
            commit_seconds=done.seconds,
            delays=_delays(store, after=done.span.after, upto=done.span.upto, now=now),
        )

    def reset(self) -> None:
        """Gives the lease back and closes the destination."""
        from deltalake.exceptions import DeltaError

        held, self._held = self._held, None
        with suppress(UpsertPlatformError, DeltaError, OSError):  # its numbers are added all the same
            self._counting.wait()
        if held is not None:
            with held.stack:
                if held.unnoted:
                    with suppress(UpsertPlatformError, DeltaError, OSError):  # the table itself knows
                        name = held.hop.destination.name
                        if applied_before(held.hop.store, name) < held.unnoted:
                            note_applied(held.hop.store, name, held.unnoted, commit=held.commit)

    def _open(self) -> _Held:
        with ExitStack() as stack:
            hop = self._make()
            hop.store.keep_open()
            stack.callback(hop.destination.close)
            state = hop.plan().state  # a table of another changelog is left alone
            if state.lost:
                self._tell(f"table '{self.measures.name}': {state.lost}")
            hop.destination.prepare()
            self._looked_upto = 0
            lease = stack.enter_context(hop.destination.lease(owner=self._run, duration=LEASE))
            state = hop.plan().state
            self.measures.set(applied=state.applied_batch)
            self._held = _Held(
                hop, lease, stack.pop_all(), hop.store.beside(), applied=state.applied_batch, commit=state.commit
            )
        return self._held

    def _comes_too_soon(self, hop: DestinationHop) -> bool:
        """Return whether the table wants commits to be further apart: then batches wait, and are written as one."""
        if self._written_at is None or not isinstance(hop.destination, PacesCommits):
            return False
        return time.monotonic() - self._written_at < hop.destination.least_interval.total_seconds()

    def _check_when_due(self, hop: DestinationHop) -> None:
        """Looks at the keys of the newest batches, if an interval is over and something was written in it.

        A verdict tells of every batch up to its own. Where batches between it and the last one were too large to be
        looked at, only a difference is recorded, and the next sync looks at all of them.
        """
        if time.monotonic() - self._checked_at < self._check_seconds or not is_comparable(hop):
            return
        state = hop.plan().state
        checked = state.verdict.batch if state.verdict else 0
        if state.verdict is not None and not state.verdict.passed:
            self.measures.set(passed=False)  # until somebody has looked at it: job verify, or reconcile
            self._checked_at = time.monotonic()
            return
        after = self._newest_since(hop, max(checked, self._looked_upto), state.applied_batch)
        if after is None:
            return  # nothing new, or batches so large that the next small one is waited for
        found = check_batch(self._spark, hop, after=after, upto=state.applied_batch)
        stood = (after <= checked or not found.passed) and not keep_verdict(hop, found, state)
        self._looked_upto = state.applied_batch
        self.measures.set(passed=found.passed and not stood, compared=found.compared)
        self.measures.add(checks=1)
        self._checked_at = time.monotonic()

    def _newest_since(self, hop: DestinationHop, checked: int, applied: int) -> int | None:
        """The batch after which there are at most CHECKED_ROWS change rows; None if that is the applied one."""
        first = max(checked, applied - CHECKED_ROWS)
        accounts = hop.store.accounts(after=first, upto=applied)
        found, total = applied, 0
        for batch in range(applied, first, -1):
            total += sum(account.rows for account in accounts.get(batch, ()))
            if total > CHECKED_ROWS:
                break
            found = batch - 1
        return found if found < applied else None


def _delays(store: ChangelogStore, *, after: int, upto: int, now: float) -> Iterator[Any]:
    """Arrays of seconds: of every row that can be read by now, how old its record is."""
    import numpy as np
    import pyarrow as pa

    for times in change_times(store, after=after, upto=upto):
        micros = times.drop_null().cast(pa.int64()).to_numpy()
        yield now - micros.astype(np.float64) / 1e6
