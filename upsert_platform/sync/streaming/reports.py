"""Interval reports of continuous mode: one line per table, and the metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from upsert_platform.core.wording import counted
from upsert_platform.sync.freshness import Judgement
from upsert_platform.sync.streaming.measures import Histogram, Numbers


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one changelog, query or table for an interval.

    Attributes:
        seconds: length of the interval.
        batches: committed in it; likewise `records`, `quarantined`, `refused`, `retries`, `commit_seconds`, `delays`.
        now: the numbers at its end.
        checked: whether a check took place in it.
        judged: how fresh a table is that declares limits.
    """

    name: str
    seconds: float
    batches: int
    records: int
    quarantined: int
    refused: int
    retries: int
    commit_seconds: float
    delays: Histogram
    now: Numbers
    checked: bool
    judged: Judgement | None = None

    def line(self) -> str:
        """For the console."""
        parts = [f"{self.records / self.seconds:.0f}/s", counted(self.batches, "batch")]
        if self.now.kind == "table" and self.delays.count:
            middle, late = self.delays.quantile(0.5), self.delays.quantile(0.95)
            parts.append(f"delay p50 {middle:.2g} s, p95 {late:.2g} s")
        unit = "offset" if self.now.kind == "changelog" else "batch"
        parts.append(f"{counted(self.now.lag, unit)} behind")
        parts += [f"{count} {what}" for count, what in self._troubles() if count]
        if self.checked:
            told = "passed" if self.now.passed else "FAILED: run job 'verify', then 'reconcile'"
            parts.append(f"check of {self.now.compared} keys {told}")
        if self.judged is not None and not self.judged.passed:
            parts.append(f"{'LATE' if self.judged.fails else 'late'}: {self.judged.text}")
        if self.now.error:
            parts.append(f"failing: {self.now.error}")
        return f"{self.now.kind} {self.name}: {', '.join(parts)}"

    def _troubles(self) -> Iterator[tuple[int, str]]:
        yield self.quarantined, "quarantined"
        yield self.refused, "refused"
        yield self.retries, "retries"


class Reporter:
    """Makes reports of the numbers, each of what came since the one before."""

    def __init__(self) -> None:
        self._before: Mapping[str, Numbers] = {}
        self._at = time.monotonic()

    def reports(self, numbers: Mapping[str, Numbers], judged: Mapping[str, Judgement] | None = None) -> list[Report]:
        """One of every changelog, query and table.

        Args:
            numbers: by kind and name, with a blank between.
            judged: how fresh tables are, by name.
        """
        now = time.monotonic()
        seconds, self._at = max(now - self._at, 0.001), now
        fresh = {f"table {name}": item for name, item in (judged or {}).items()}
        found = [
            replace(self._report(place, item, seconds), judged=fresh.get(place)) for place, item in numbers.items()
        ]
        self._before = dict(numbers)
        return found

    def _report(self, place: str, now: Numbers, seconds: float) -> Report:
        before = self._before.get(place, Numbers(now.kind))
        if before.batches > now.batches:  # a worker that was made anew counts from zero
            before = Numbers(now.kind)
        return Report(
            place.split(" ", 1)[1],
            seconds,
            now.batches - before.batches,
            now.records - before.records,
            now.quarantined - before.quarantined,
            now.refused - before.refused,
            now.retries - before.retries,
            now.commit_seconds - before.commit_seconds,
            now.delays.since(before.delays),
            now,
            now.checks > before.checks,
        )
