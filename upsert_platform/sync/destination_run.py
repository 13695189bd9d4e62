"""The result of a destination's step for metadata, summed over several writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from upsert_platform.core.destination import BatchSpan, WriteReport

if TYPE_CHECKING:
    from upsert_platform.writing.outcomes import TaskStats, Written

_SHOWN = 20
"""Refused rows that a report shows."""
_LAST = ("tasks", "compacted")
"""Metrics of which a sum tells nothing."""


@dataclass(frozen=True)
class DestinationRun:
    """The result of a run, for metadata.

    Attributes:
        unmatched: deletes of rows that do not meet the insert's WHERE; the table need not have held them.
    """

    span: BatchSpan
    report: WriteReport
    multi_partition_keys: int
    unmatched: int
    seconds: float

    @property
    def never_written(self) -> int:
        """Deletes of keys that the platform has never put into the table: known of its first write alone."""
        return self.report.deletes if self.span.after == 0 else 0


def with_refused(report: WriteReport, failed: Written[TaskStats] | None) -> WriteReport:
    """A report that counts rows which never reached the destination too."""
    if failed is None:
        return report
    refused = (*failed.examples(), *report.refused)[:_SHOWN]
    return replace(report, refused_count=report.refused_count + failed.total.refused, refused=refused)


def summed_runs(runs: Sequence[DestinationRun]) -> DestinationRun | None:
    """Writes of spans that follow each other, as one; None of none."""
    if len(runs) < 2:
        return runs[0] if runs else None
    reports = [run.report for run in runs]
    metrics: dict[str, int | float | str] = {}
    for report in reports:
        for name, value in report.metrics.items():
            before = metrics.get(name)
            if name in _LAST or isinstance(value, str) or before is None or isinstance(before, str):
                metrics[name] = value
            else:
                metrics[name] = before + value
    return DestinationRun(
        replace(runs[-1].span, after=runs[0].span.after),
        WriteReport(
            upserts=sum(report.upserts for report in reports),
            deletes=sum(report.deletes for report in reports),
            refused_count=sum(report.refused_count for report in reports),
            refused=tuple(row for report in reports for row in report.refused)[:_SHOWN],
            metrics=metrics,
        ),
        multi_partition_keys=sum(run.multi_partition_keys for run in runs),
        unmatched=sum(run.unmatched for run in runs),
        seconds=sum(run.seconds for run in runs),
    )
