"""Runs of the same project: those of another code location have jobs of the same names."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import dagster as dg

LAKE_TAG: Final = "upsert/lake"
"""Tag of a run: a digest of its lake's root, by which runs of one project are known."""
_ORIGIN_TAG: Final = ".dagster/repository"
_OTHERS: Final = 4
"""So many times as many runs are looked at as are wanted, since some are of other locations."""


def lake_mark(root: str) -> str:
    """Return the tag that identifies a lake."""
    return hashlib.sha256(root.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class OwnRuns:
    """The runs of a code location's project.

    A run that Dagster launched says its location; one of ``dagster job execute`` does not, and says its lake once it is
    carried out. A run that says neither counts.

    Attributes:
        origin: of the code location, as Dagster tags runs; None where it is not known.
        lake: `lake_mark` of the project.
    """

    instance: dg.DagsterInstance
    origin: str | None
    lake: str

    @staticmethod
    def of(context: dg.SensorEvaluationContext, root: str) -> OwnRuns:
        """The runs of the location that a sensor belongs to."""
        place, repository = context.code_location_origin, context.repository_name
        origin = f"{repository}@{place.location_name}" if place is not None and repository is not None else None
        return OwnRuns(context.instance, origin, lake_mark(root))

    def records(
        self, job: str, *, limit: int, statuses: Sequence[dg.DagsterRunStatus] | None = None
    ) -> list[dg.RunRecord]:
        """The newest runs of a job, the newest first."""
        wanted = dg.RunsFilter(job_name=job, statuses=list(statuses) if statuses else None)
        found = self.instance.get_run_records(wanted, limit=limit * _OTHERS)
        return [record for record in found if self._is_own(record.dagster_run)][:limit]

    def _is_own(self, run: dg.DagsterRun) -> bool:
        origin, lake = run.tags.get(_ORIGIN_TAG), run.tags.get(LAKE_TAG)
        if origin is not None and self.origin is not None:
            return origin == self.origin
        return lake is None or lake == self.lake
