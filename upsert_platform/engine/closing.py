"""Windows that close: how far the event time of a table is, which windows that closes, and what came too late.

The time is the least, over the partitions that have given rows, of the greatest value of each; it moves when a batch is
committed, so no row is late for what came in its own batch. A window that is closed stays so, whatever is declared
later: rows for it are counted and left out, and its groups leave the state when files of it are merged as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog import rows
from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.engine.steps import Tally, WindowStep

if TYPE_CHECKING:
    from upsert_platform.engine.stages import Stage


@dataclass(frozen=True, slots=True)
class Clock:
    """The time of the windows of one table function.

    Attributes:
        lanes: per topic and partition, as ``topic/partition``, the greatest event time that it gave.
        closed: windows that end so early, or earlier, are closed; None while none is. Microseconds since 1970, all.
    """

    lanes: Mapping[str, int] = field(default_factory=dict)
    closed: int | None = None

    @classmethod
    def of(cls, text: str | None) -> Clock:
        """A clock as a commit keeps it."""
        found = json.loads(text) if text else {}
        return cls(found.get("lanes", {}), found.get("closed"))

    def text(self) -> str:
        """As a commit keeps it."""
        return json.dumps({"lanes": dict(self.lanes), "closed": self.closed}, separators=(",", ":"))

    def at(self, after: int) -> Clock:
        """With the windows closed that end so long before the time."""
        now = min(self.lanes.values()) - after if self.lanes else None
        known = [moment for moment in (self.closed, now) if moment is not None]
        return replace(self, closed=max(known) if known else None)

    def later(self, lanes: Mapping[str, int]) -> Clock:
        """With what a batch has seen."""
        return replace(self, lanes=_greatest(self.lanes, lanes))


_POSITION: Final = "(time "


def position_name(end: str) -> str:
    """Name of a window's clock among the positions of a commit.

    Args:
        end: name of the window's end.
    """
    return f"{_POSITION}{end})"


def without_clocks(positions: Mapping[str, str]) -> dict[str, str]:
    """Positions of a result that is computed anew: none of its windows is closed yet."""
    return {name: text for name, text in positions.items() if not name.startswith(_POSITION)}


def clocks_of(stages: Sequence[Stage], positions: Mapping[str, str]) -> dict[str, Clock]:
    """The clocks of a query's windows as a batch begins, by the names of the windows' ends.

    What was closed stays so where nothing closes any more: its groups may have left the state.
    """
    steps = (step for stage in stages for step in stage.steps)
    clocks: dict[str, Clock] = {}
    for window in (step.window for step in steps if isinstance(step, WindowStep)):
        end = window.names[1]
        kept = positions.get(position_name(end))
        if window.closing is not None:
            clocks[end] = Clock.of(kept).at(window.closing.after)
        elif kept is not None:
            clocks[end] = Clock.of(kept)
    return clocks


def at_time(stage: Stage, clocks: Mapping[str, Clock]) -> Stage:
    """A stage that knows which windows are closed."""
    steps = tuple(
        replace(step, closed=clocks[step.window.names[1]].closed)
        if isinstance(step, WindowStep) and step.window.names[1] in clocks
        else step
        for step in stage.steps
    )
    ends = stage.window_end
    closed = clocks[ends[1]].closed if ends is not None else None
    return replace(stage, steps=steps, closed=closed)


def times_of(table: pa.Table, watched: Sequence[tuple[str, str]]) -> Iterator[tuple[str, dict[str, int]]]:
    """The greatest event times of rows of a changelog: name of the window's end, and lane to time.

    Args:
        watched: names of ends of windows, each with the column that tells its time.
    """
    for end, name in watched:
        column = table.column(name)
        there = table.filter(pc.is_valid(column)).select([rows.TOPIC, rows.PARTITION, name])
        if not there.num_rows:
            continue
        (codes,) = code_rows([there], [[rows.TOPIC, rows.PARTITION]])
        greatest = np.full(int(codes.max()) + 1, np.iinfo(np.int64).min)
        np.maximum.at(greatest, codes, there.column(name).cast(pa.int64()).to_numpy())
        firsts = np.unique(codes, return_index=True)[1]
        topics, partitions = (
            there.column(lane).take(pa.array(firsts)).to_pylist() for lane in (rows.TOPIC, rows.PARTITION)
        )
        lanes = (f"{topic}/{partition}" for topic, partition in zip(topics, partitions, strict=True))
        yield end, dict(zip(lanes, greatest.tolist(), strict=True))


def add_times(tally: Tally, table: pa.Table, watched: Sequence[tuple[str, str]]) -> None:
    """Counts the times of rows of a changelog."""
    for end, lanes in times_of(table, watched):
        tally.times[end] = _greatest(tally.times.get(end, {}), lanes)


def merged(one: Tally, other: Tally) -> Tally:
    """Return the merged counts of two tasks."""
    ends = {*one.times, *other.times}
    times = {end: _greatest(one.times.get(end, {}), other.times.get(end, {})) for end in ends}
    return Tally(one.late + other.late, times)


def _greatest(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {lane: max(item[lane] for item in (one, other) if lane in item) for lane in {**one, **other}}
