"""Windows that close, reckoned with a list and a dictionary: what each holds, and what comes too late for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

MINUTE = timedelta(minutes=1)
DELAY, LATENESS = MINUTE, 2 * MINUTE
NOON = datetime(2024, 5, 1, 12)  # noqa: DTZ001 - TIMESTAMP has no zone


def windows(moment: datetime, *, size: int, step: int) -> Iterator[tuple[datetime, datetime]]:
    """The windows of whole minutes that hold a moment."""
    minute = int((moment - NOON).total_seconds() // 60)
    for start in range(minute - size + 1, minute + 1):
        if start % step == 0:
            yield NOON + start * MINUTE, NOON + (start + size) * MINUTE


@dataclass
class Reckoning:
    """What windows hold, with those closed that earlier batches have left behind."""

    size: int
    step: int
    lateness: timedelta = LATENESS
    held: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    lanes: dict[int, datetime] = field(default_factory=dict)
    closed: datetime | None = None

    def batch(self, changes: Sequence[tuple[int, datetime, Any]], seen: Sequence[tuple[int, datetime]]) -> int:
        """Takes signed rows (weight, time, group), and what the batch's records told; how many came too late."""
        if self.lanes:
            moment = min(self.lanes.values()) - DELAY - self.lateness
            self.closed = moment if self.closed is None else max(self.closed, moment)
        late = 0
        for weight, moment, group in changes:
            for start, end in windows(moment, size=self.size, step=self.step):
                if self.closed is not None and end <= self.closed:
                    late += 1
                else:
                    self.held[start, end, group] += weight
        for lane, moment in seen:
            self.lanes[lane] = max(moment, self.lanes.get(lane, moment))
        return late

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [(*group, count) for group, count in self.held.items() if count]
