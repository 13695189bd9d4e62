"""Windows that close: how far the event time of a table is, which windows that closes, and what came too late.

The time is the least, over the partitions that have given rows, of the greatest value of each; it moves when a batch is
committed, so no row is late for what came in its own batch. A window that is closed stays so, whatever is declared
later: rows for it are counted and left out, and its groups leave the state when files of it are merged as a whole.

Where rows are given once their windows are closed (`core.plan.Finals`), a batch gives those of the windows that its own
rows close: stages that read changelogs run before those that give rows, so the time is known by then. The commit keeps
up to where windows were closed, so that no later batch takes rows for them, whatever is declared by then.
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
from upsert_platform.core.plan import Session, Watermark, Window
from upsert_platform.engine.steps import Tally, WindowStep

if TYPE_CHECKING:
    from upsert_platform.engine.stages import Stage


_MILLISECOND: Final = 1_000


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
        """With the windows closed that end so long before the time.

        A window ends after its last millisecond: as in Flink it is closed once that one has been reached.
        """
        now = (min(self.lanes.values()) - after) // _MILLISECOND * _MILLISECOND + _MILLISECOND if self.lanes else None
        known = [moment for moment in (self.closed, now) if moment is not None]
        return replace(self, closed=max(known) if known else None)

    @property
    def watermark(self) -> int | None:
        """The last millisecond of the windows that close last."""
        return None if self.closed is None else self.closed - _MILLISECOND

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
    clocks: dict[str, Clock] = {}
    for window in _windows(stages):
        end = window.names[1]
        kept = positions.get(position_name(end))
        if window.closing is not None:
            clocks[end] = Clock.of(kept).at(window.closing.after)
        elif kept is not None:
            clocks[end] = Clock.of(kept)
    return clocks


def _windows(stages: Sequence[Stage]) -> Iterator[Window | Session]:
    """The windows of a query; of sessions those that close."""
    for stage in stages:
        yield from (step.window for step in stage.steps if isinstance(step, WindowStep))
        if stage.session is not None:
            yield stage.session


@dataclass(frozen=True, slots=True)
class Times:
    """The clocks of a query's windows during a batch.

    Attributes:
        clocks: as the batch begins, by the names of the windows' ends.
        before: up to where the windows were closed as the commit before it says, by the same names.
        windows: those that close, by the same names.
        final: names of those whose rows are given once they are closed.
    """

    clocks: Mapping[str, Clock]
    before: Mapping[str, int | None]
    windows: Mapping[str, Window | Session]
    final: frozenset[str]

    @classmethod
    def of(cls, stages: Sequence[Stage], positions: Mapping[str, str]) -> Times:
        """The clocks of the next batch after a commit."""
        clocks = clocks_of(stages, positions)
        return cls(
            clocks,
            {end: Clock.of(positions.get(position_name(end))).closed for end in clocks},
            {window.names[1]: window for window in _windows(stages) if window.closing is not None},
            frozenset(end for stage in stages for end in stage.final_of),
        )

    def after(self, tally: Tally) -> dict[str, Clock]:
        """The clocks with what was read."""
        found = {end: clock.later(tally.times.get(end, {})) for end, clock in self.clocks.items()}
        return found | {end: found[end].at(self._lag(end)) for end in self.final}

    def at(self, stage: Stage, tally: Tally) -> Stage:
        """A stage that knows which windows are closed.

        Args:
            tally: of the stages before it.
        """
        clocks = self.clocks
        steps = tuple(
            _told(step, clocks[step.window.names[1]])
            if isinstance(step, WindowStep) and step.window.names[1] in clocks
            else step
            for step in stage.steps
        )
        closed = tuple(
            (state, (place, moment))
            for state, (place, ends) in stage.window_ends
            if (moment := _least([clocks[end].closed for end in ends])) is not None
        )
        over = clocks[stage.session.names[1]].closed if stage.session is not None else None
        return replace(stage, steps=steps, closed=closed, over=over, final=self._final(stage.final_of, tally))

    def _final(self, ends: Sequence[str], tally: Tally) -> int | None:
        """Return up to where windows are closed whose rows are given; None if no window closes in this batch."""
        if not ends:
            return None
        clocks = self.after(tally)
        now, before = _least([clocks[end].closed for end in ends]), _least([self.before[end] for end in ends])
        if now is None or before is None:
            return now
        return now if any(_ends_between(self.windows[end], before, now) for end in ends) else None

    def _lag(self, end: str) -> int:
        closing = self.windows[end].closing
        assert closing is not None
        return closing.after


def _told(step: WindowStep, clock: Clock) -> WindowStep:
    return replace(step, closed=clock.watermark if isinstance(step.window, Watermark) else clock.closed)


def _least(moments: Sequence[int | None]) -> int | None:
    """Return up to where several windows are all closed; None if one of them never was."""
    known = [moment for moment in moments if moment is not None]
    return min(known) if len(known) == len(moments) else None


def _ends_between(window: Window | Session, before: int, now: int) -> bool:
    """Return whether a window may end after the one moment, and not after the other."""
    if isinstance(window, Session):
        return now > before
    return (now - window.offset) // window.step > (before - window.offset) // window.step


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
