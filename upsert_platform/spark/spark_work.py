"""Spark's work for a step (jobs, stages, tasks), as Spark counts it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SparkWork:
    """Counts of what ran.

    Attributes:
        stages: without those that Spark skipped, since their shuffle files were there.
        tasks: that came to an end.
    """

    jobs: int = 0
    stages: int = 0
    tasks: int = 0


class WorkCounter:
    """Counts what a session does from its beginning on, or from a turn of a warm one.

    Spark keeps the newest thousand jobs (`spark.ui.retainedJobs`), with or without a page.
    """

    def __init__(self, session: SparkSession) -> None:
        self._tracker = session.sparkContext.statusTracker()
        self._next = 1 + max(self._jobs(), default=-1)

    def take(self) -> SparkWork:
        """Return what was done since this was asked for last."""
        new = sorted(job for job in self._jobs() if job >= self._next)
        if not new:
            return SparkWork()
        self._next = new[-1] + 1
        jobs = [info for job in new if (info := self._tracker.getJobInfo(job)) is not None]
        stages = {stage for info in jobs for stage in info.stageIds}
        told = [info for stage in stages if (info := self._tracker.getStageInfo(stage)) is not None]
        ran = [info for info in told if info.numCompletedTasks]
        return SparkWork(len(new), len(ran), sum(info.numCompletedTasks for info in ran))

    def _jobs(self) -> Iterable[int]:
        found: Iterable[int] = self._tracker.getJobIdsForGroup(None)
        return found
