"""Asks tables what a sync would do and what its checks would say, before a run is started. No Dagster, no Spark.

Nothing is created or changed: only a run does that.

Every changelog, query and table is asked as the step of a run asks it, and every check of a sync evaluated as its step
does where nothing is new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from upsert_platform.changelog.pauses import paused
from upsert_platform.changelog.quarantine import quarantined_count
from upsert_platform.core import check_names
from upsert_platform.core.error_catalogue import shown
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.redaction import redact
from upsert_platform.core.wording import counted
from upsert_platform.sync.freshness import FreshnessLimits, judge
from upsert_platform.sync.standing import accounted, standing_verdict
from upsert_platform.writing.time_limit import time_limit

if TYPE_CHECKING:
    from upsert_platform.sync.project_hops import ProjectHops

_SIDE_BY_SIDE: Final = 4
"""Tables that are asked at a time."""


class Kind(StrEnum):
    """The asset of a declared table, or query, that is asked."""

    CHANGELOG = "changelog"
    QUERY = "query"
    TABLE = "table"


class Asked(NamedTuple):
    """A declared table, or query, and which of its assets is asked."""

    kind: Kind
    table: str


@dataclass(frozen=True)
class Look:
    """A changelog, a query's result or a table as it stands.

    Attributes:
        batch: the last one committed or applied; 0 before the first.
        offsets: how many are read of its topics; 0 for what reads none.
        checks: name of a check of a sync to whether it passes.
        work: what a run has to do; empty if nothing.
        note: what does not need a run, such as a pause.
        failed: whether asking ended with an error, whose text is `work` then: a run fails with it, and reports it.
    """

    batch: int = 0
    offsets: int = 0
    checks: Mapping[str, bool] = field(default_factory=dict)
    work: str = ""
    note: str = ""
    failed: bool = False


class Looks:
    """Asks the tables of one project."""

    def __init__(self, project: ProjectHops) -> None:
        self._project = project
        self._paused: Mapping[str, object] | None = None
        self._opening = Lock()

    def of(self, wanted: Sequence[Asked], *, seconds: float | None = None) -> dict[Asked, Look]:
        """Ask some tables.

        The first of each kind is asked alone: it loads modules, and what all share. The others are asked side by side,
        for half of their time goes by in brokers, tables and the reading of logs. Threads have the context of the
        caller: they share its connections, and wait as often as it does for endpoints that are away.

        Args:
            seconds: within which requests to tables have to end; as long as they take if left out. Then none is asked
                alone: a table that does not answer takes the time of no other one.
        """
        with nullcontext() if seconds is None else time_limit(seconds):
            alone = {item.kind: item for item in reversed(wanted)}.values() if seconds is None else ()
            found = {item: self.one(item) for item in alone}
            others = [item for item in wanted if item not in found]
            with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
                asked = [pool.submit(copy_context().run, self.one, item) for item in others]
                found |= {item: answer.result() for item, answer in zip(others, asked, strict=True)}
        return found

    def one(self, asked: Asked) -> Look:
        """Ask one table. An error of any kind is its work: a run fails with it and reports it, and others go on."""
        try:
            if asked.kind is Kind.CHANGELOG:
                return self._changelog(asked.table)
            if asked.kind is Kind.QUERY:
                return self._query(asked.table)
            return self._destination(asked.table)
        except UpsertPlatformError as error:
            return Look(work=shown(error), failed=True)
        except Exception as error:  # noqa: BLE001 - of a library: what it leaves of one table is no reason to ask no other
            return Look(work=redact(f"it cannot be asked ({type(error).__name__}: {error})"), failed=True)

    def _changelog(self, table: str) -> Look:
        with self._opening:
            hop = self._project.changelog_hop(table, run="")
        hop.store.begin_look()
        plan = hop.plan()
        checks = {
            check_names.ACCOUNTED: not accounted(hop.store).wrong,
            check_names.QUARANTINE: not quarantined_count(hop.store),
        }
        positions = plan.head.positions.offsets if plan.head else {}
        return Look(
            plan.head.batch if plan.head else 0,
            sum(sum(offsets.values()) for offsets in positions.values()),
            checks,
            plan.work,
        )

    def _query(self, table: str) -> Look:
        with self._opening:
            hop = self._project.query_hop(table, run="")
        plan = hop.plan()
        work = f"{counted(plan.behind, 'batch')} to compute" if plan.is_due else ""
        return Look(plan.head.batch if plan.head else 0, work=work)

    def _destination(self, table: str) -> Look:
        bound = self._project.binding.targets[table]
        with self._opening:
            hop = self._project.destination_hop(table, run="")
        hop.store.begin_look()
        try:
            plan = hop.plan()
            note = str(self._pauses().get(table, ""))
            work = ""
            if (plan.behind or plan.state.lost) and not note:
                work = plan.state.lost or f"{counted(plan.behind, 'batch')} to apply"
            elif plan.head is not None and not note:
                work = hop.destination.unprepared()  # a run prepares the table, or refuses what it finds
            standing = standing_verdict(hop, plan.state)
        finally:
            hop.destination.close()
        checks: dict[str, bool] = {}
        if standing is None:
            work = work or "batches to compare"
        else:
            checks[check_names.LAST_VALUE] = standing.passed
        if FreshnessLimits.of(bound.table) is not None:
            checks[check_names.FRESHNESS] = judge(self._project.binding, bound, self._project.lake).passed
        return Look(plan.state.applied_batch, checks=checks, work=work, note=note)

    def _pauses(self) -> Mapping[str, object]:
        if self._paused is None:
            self._paused = dict(paused(self._project.lake))
        return self._paused
