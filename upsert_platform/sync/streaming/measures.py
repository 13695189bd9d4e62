"""Metrics of continuous mode per table: records, lag, delays, retries, seconds of commits. Written by its workers."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

DELAY_BOUNDS: Final = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
"""Seconds: upper ends of the classes of a histogram of delays; what is longer is in a class of its own."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of values by classes.

    Attributes:
        counts: per class, the last of which has no end.
        total: of all values.
        greatest: of all values.
    """

    counts: tuple[int, ...] = (0,) * (len(DELAY_BOUNDS) + 1)
    total: float = 0.0
    greatest: float = 0.0

    @property
    def count(self) -> int:
        """Return the number of values."""
        return sum(self.counts)

    @classmethod
    def of(cls, values: Any) -> Histogram:
        """Return the histogram of a numpy array; negative values count as zero."""
        import numpy as np

        if not len(values):
            return cls()
        values = np.maximum(values, 0.0)
        classes = np.searchsorted(DELAY_BOUNDS, values, side="left")
        counts = np.bincount(classes, minlength=len(DELAY_BOUNDS) + 1).tolist()
        return cls(tuple(counts), float(values.sum()), float(values.max()))

    def plus(self, more: Histogram) -> Histogram:
        """With more values."""
        summed = tuple(one + other for one, other in zip(self.counts, more.counts, strict=True))
        return Histogram(summed, self.total + more.total, max(self.greatest, more.greatest))

    def since(self, before: Histogram) -> Histogram:
        """Return the difference to an earlier state; `greatest` stays that of all values."""
        counts = tuple(one - other for one, other in zip(self.counts, before.counts, strict=True))
        return Histogram(counts, self.total - before.total, self.greatest)

    def quantile(self, part: float) -> float | None:
        """About the value that a part of all is at most, as the upper end of a class; None without values."""
        if not self.count:
            return None
        wanted, seen = part * self.count, 0
        for bound, count in zip((*DELAY_BOUNDS, self.greatest), self.counts, strict=True):
            seen += count
            if seen >= wanted:
                return min(bound, self.greatest) if self.greatest else bound
        return self.greatest


@dataclass(frozen=True, slots=True)
class Numbers:
    """The metrics of one changelog, query or table since the process started.

    Attributes:
        kind: ``changelog``, ``query`` or ``table``.
        batches: that were committed.
        records: read of topics, or rows of a change frame that were written.
        lag: offsets (of a changelog) or batches (of others) that wait.
        quarantined: records set aside; `refused` rows that the table does not take.
        retries: how often a step failed and was tried again.
        error: of the last try, empty when it succeeded.
        commit_seconds: that steps with a commit took, all together.
        delays: of a table: from the time of a record to the moment when its row could be read.
        applied: the last batch.
        passed: result of the last check; None before the first.
        compared: keys of that check.
        checks: how many took place.
    """

    kind: str
    batches: int = 0
    records: int = 0
    lag: int = 0
    quarantined: int = 0
    refused: int = 0
    retries: int = 0
    error: str = ""
    commit_seconds: float = 0.0
    delays: Histogram = field(default_factory=Histogram)
    applied: int = 0
    passed: bool | None = None
    compared: int = 0
    checks: int = 0


class Measures:
    """The numbers of one worker, for other threads to read."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self._numbers = Numbers(kind)
        self._lock = threading.Lock()

    def read(self) -> Numbers:
        """The numbers as they are."""
        return self._numbers

    def set(self, **values: Any) -> None:
        """Puts values in the place of others."""
        with self._lock:
            self._numbers = replace(self._numbers, **values)

    def add(self, *, delays: Iterable[Any] = (), **values: float) -> None:
        """Adds to values, all at once: who reads them finds a batch with its records and their delays.

        A batch that was committed ends the failure before it.

        Args:
            delays: arrays of numpy, of seconds; where asking for them fails, the values are added all the same.
        """
        added = Histogram()
        try:
            for seconds in delays:
                added = added.plus(Histogram.of(seconds))
        finally:
            with self._lock:
                now = self._numbers
                summed = {name: getattr(now, name) + value for name, value in values.items()}
                error = "" if values.get("batches") else now.error
                self._numbers = replace(now, delays=now.delays.plus(added), error=error, **summed)
