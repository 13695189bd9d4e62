"""The cursor of the sensor: since when records wait, which tables fail repeatedly, and when tables were asked."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from upsert_platform.graph.own_runs import OwnRuns

if TYPE_CHECKING:
    from dagster._core.execution.stats import RunStepKeyStatsSnapshot

LONGEST: Final = timedelta(hours=6)
"""Between two tries of a table, however often it has failed."""
_LOOKED_AT: Final = 50
"""Runs that are looked at once; more of them ended only while no sensor ran."""


@dataclass(frozen=True, slots=True)
class Failures:
    """The consecutive failures of a table.

    Attributes:
        at: seconds since 1970, of the last one.
    """

    count: int
    at: float

    def until(self, retry_after: timedelta) -> float:
        """Return the time of the next attempt in seconds since 1970; the delay doubles after each failure."""
        return self.at + min(retry_after * 2.0 ** min(self.count - 1, 20), LONGEST).total_seconds()


@dataclass
class SensorState:
    """The sensor's cursor.

    Attributes:
        since: table that is read to when the sensor first saw its waiting records, in seconds since 1970.
        failing: table that is written to its failures.
        seen: job to the storage number of its newest run that was there at the last look.
        running: storage numbers of those that had not ended then.
        tried: table that a run was requested for without new records to those requests, until an answer says that it
            is not behind.
        asked: table that was asked to when that was, and the batches of its changelogs then.
        unlanded: table that is read to the consecutive failures of its changelog.
        unsettled: when a run was seen that may have left tables behind their changelogs, in seconds since 1970.
    """

    since: dict[str, float] = field(default_factory=dict)
    failing: dict[str, Failures] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    running: list[int] = field(default_factory=list)
    tried: dict[str, Failures] = field(default_factory=dict)
    asked: dict[str, tuple[float, int]] = field(default_factory=dict)
    unsettled: float = 0.0
    unlanded: dict[str, Failures] = field(default_factory=dict)

    @staticmethod
    def read(cursor: str | None) -> SensorState:
        """The inverse of `text`; what a cursor of another version does not have begins empty, as does one of none."""
        try:
            found = json.loads(cursor or "{}")
            failing, tried, unlanded = (
                {
                    str(name): Failures(int(item["count"]), float(item["at"]))
                    for name, item in found.get(part, {}).items()
                }
                for part in ("failing", "tried", "unlanded")
            )
            since = {str(name): float(at) for name, at in found.get("since", {}).items()}
            seen = {str(name): int(number) for name, number in found.get("seen", {}).items()}
            asked = {str(name): (float(at), int(batches)) for name, (at, batches) in found.get("asked", {}).items()}
            running = [int(number) for number in found.get("running", ())]
            unsettled = float(found.get("unsettled", 0.0))
            return SensorState(since, failing, seen, running, tried, asked, unsettled, unlanded)
        except (ValueError, KeyError, TypeError, AttributeError):
            return SensorState()

    def text(self) -> str:
        """As it is kept."""
        return json.dumps(asdict(self))

    def wait(self, lags: Mapping[str, int]) -> None:
        """Notes which tables have records that wait, from now on if they had none before."""
        now = time.time()
        self.since = {name: self.since.get(name, now) for name, lag in lags.items() if lag}

    def to_ask(
        self, batches: Mapping[str, int], unnoted: Collection[str], *, since: float, again: Collection[str] = ()
    ) -> list[str]:
        """Tables with a reason to be asked, those first whose answer is the oldest.

        Args:
            batches: table to the batches of its changelogs now.
            unnoted: tables whose changelogs do not have it noted that they have applied those.
            since: an answer of before is old.
            again: tables whose next request is due, should they still be behind.
        """
        found = []
        for name, there in batches.items():
            at, then = self.asked.get(name, (0.0, 0))
            if name in again or at < max(since, self.unsettled) or (name in unnoted and then != there):
                found.append((at, name))
        return [name for _, name in sorted(found)]

    def request(self, tables: Collection[str]) -> None:
        """Notes that a run was requested for tables without new records."""
        now = time.time()
        for name in tables:
            self.tried[name] = Failures(1 + (self.tried[name].count if name in self.tried else 0), now)

    def learn(
        self,
        runs: OwnRuns,
        *,
        job: str,
        mended_by: Collection[str],
        steps: Mapping[str, str],
        landing: Mapping[str, str],
        others: Collection[str] = (),
    ) -> None:
        """Looks at the runs that ended since the last look: which tables failed, and which did not.

        Args:
            runs: of the project, of which none of `job` and `others` is alive.
            job: whose runs count.
            mended_by: jobs that repair tables; after one that succeeded, and was not asked just to show what differs,
                all are tried again.
            steps: step key to the table that it writes or checks.
            landing: step key to the table whose changelog it appends to.
            others: jobs that write tables, too; where such a run got is asked of the tables.
        """
        running, records = self.running, list[dg.RunRecord]()
        self.running = []
        for name in (job, *mended_by, *others):
            found = runs.records(name, limit=_LOOKED_AT)
            before = self.seen.get(name, 0)
            new = [record for record in found if record.storage_id > before or record.storage_id in running]
            settled = [record for record in new if name == job and record.dagster_run.is_success]
            known = [record for record in new if record.storage_id in running and not record.dagster_run.is_finished]
            if len(settled) + len(known) < len(new):
                self.unsettled = time.time()
            records += [record for record in new if record.dagster_run.is_finished]
            self.running += [record.storage_id for record in new if not record.dagster_run.is_finished]
            self.seen[name] = max([before, *(record.storage_id for record in found)])
        for record in sorted(records, key=lambda item: (item.end_time or 0.0, item.storage_id)):
            if record.dagster_run.job_name != job:
                run = record.dagster_run
                if run.is_success and run.job_name in mended_by and not _only_shows(run):
                    self.failing.clear()
                    self.tried.clear()
                    self.unlanded.clear()
                continue
            stats = runs.instance.get_run_step_stats(record.dagster_run.run_id)
            at = record.end_time or time.time()
            landed, ended = _ended(stats, landing), _ended(stats, steps)
            _count(self.unlanded, landed, at=at)
            _count(self.failing, ended, at=at)
            for table in [table for table, succeeded in ended.items() if succeeded and table in self.tried]:
                self.asked.pop(table, None)  # whether that has brought it further is asked of the table itself
            if not all(landed.values()):  # the run went no further: what it did not try is no failure of the tables
                for table in [name for name, item in self.tried.items() if item.count == 1 and name not in ended]:
                    self.asked.pop(table, None)
                    self.tried.pop(table)


def _only_shows(run: dg.DagsterRun) -> bool:
    """Return whether a run was asked to write nothing."""
    config: Mapping[str, Any] = run.run_config
    steps = (config.get("ops") or {}).values()
    return any((step.get("config") or {}).get("dry_run") is True for step in steps if isinstance(step, dict))


def _ended(stats: Sequence[RunStepKeyStatsSnapshot], steps: Mapping[str, str]) -> dict[str, bool]:
    """Return the tables whose steps a run has carried out, each with whether all of these succeeded."""
    found: dict[str, bool] = {}
    for item in stats:
        table = steps.get(item.step_key)
        if table is not None and item.status is not None and item.status.value in ("SUCCESS", "FAILURE"):
            found[table] = found.get(table, True) and item.status.value == "SUCCESS"
    return found


def _count(known: dict[str, Failures], ended: Mapping[str, bool], *, at: float) -> None:
    """Count the failures of tables, and forget those of tables that succeeded."""
    for table, succeeded in ended.items():
        last = known.pop(table, None)
        if not succeeded:
            known[table] = Failures(1 + (last.count if last else 0), at)
