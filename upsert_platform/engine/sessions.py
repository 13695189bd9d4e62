"""Session windows: which session each row of a partition belongs to.

A row that arrives may begin a session, extend one, or join two; a row that leaves may divide one. So the rows of a
partition that a batch touches take their sessions anew (`Partitions`), and a late row is like any other. Two rows whose
times differ by the gap exactly belong together, as in Flink.

Sessions that close are those of rows that are only added. The rows of a closed session leave the state when their
partition is touched, or when files of it are merged as a whole; a row that comes later belongs to another session, and
is late if that is closed already, as in Flink.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.plan import Field, Session
from upsert_platform.core.types import arrow_type
from upsert_platform.engine.aggregate import COUNT
from upsert_platform.engine.keys import consolidate, is_member, place_rows, settle
from upsert_platform.engine.partitions import Partitions, negated
from upsert_platform.engine.state import State
from upsert_platform.engine.steps import WEIGHT, Tally

_LAST_MILLISECOND = 1_000
_PLACE = internal("row")
"""BIGINT: the number of a row while its session is looked for."""


@dataclass(frozen=True)
class Sessions(Partitions):
    """Rows with their sessions. Input: signed rows."""

    node: Session
    state_name: str

    @property
    def partition(self) -> tuple[str, ...]:
        return self.node.partition

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.node.input.fields

    @property
    def shown(self) -> tuple[Field, ...]:
        return self.node.fields

    def prepare(self, table: pa.Table) -> pa.Table:
        """Rows that have a time, and whose changes do not cancel out."""
        return super().prepare(table.filter(pc.is_valid(table.column(self.node.time))))

    combine = prepare

    def run_closing(
        self, inputs: Sequence[pa.Table], states: Mapping[str, State], *, closed: int, tally: Tally
    ) -> pa.Table:
        """The change of the result, where sessions that end by a moment are closed.

        Args:
            closed: the moment, in microseconds since 1970.
            tally: is told of rows that come too late.
        """
        state = states[self.state_name]
        names = [field.name for field in self.fields]
        change = settle(pa.concat_tables(inputs).select([*names, WEIGHT]), weight=WEIGHT)
        held = state.rows_of_groups(place_rows(change, self.partition)).rename_columns([*names, WEIGHT])
        change = change.cast(held.schema)
        over = self.closed_rows(held, closed)
        before, left = held.filter(pa.array(~over)), held.filter(pa.array(over))
        after = self.computed(consolidate(pa.concat_tables([before, change]), weight=WEIGHT))
        late = self._ends(after) <= closed
        tally.late += int(after.column(WEIGHT).to_numpy()[late].sum())
        after = after.filter(pa.array(~late))
        self._put(change.select(names), left.select(names), after.select([*names, WEIGHT]), state)
        state.let_go += left.num_rows
        shown = [*(item.name for item in self.shown), WEIGHT]
        parts = [negated(self.computed(before)).select(shown), after.select(shown)]
        return consolidate(pa.concat_tables(parts), weight=WEIGHT)

    def closed_rows(self, table: pa.Table, closed: int) -> np.ndarray:
        """Return a mask of the rows whose session is closed, of whole partitions."""
        place = np.arange(table.num_rows)
        found = self.computed(table.append_column(_PLACE, pa.array(place)))
        mask = np.zeros(table.num_rows, dtype=bool)
        mask[found.column(_PLACE).to_numpy()] = self._ends(found) <= closed
        return mask

    def over(self, closed: int) -> Callable[[pa.Table], np.ndarray]:
        """Return the test of which rows of a state have left it, all of them given."""
        counted = [*(field.name for field in self.fields), WEIGHT]
        return lambda table: self.closed_rows(table.rename_columns(counted), closed)

    def _ends(self, table: pa.Table) -> np.ndarray:
        return table.column(self.node.names[1]).cast(pa.int64()).to_numpy()

    def _put(self, came: pa.Table, left: pa.Table, after: pa.Table, state: State) -> None:
        """Writes the rows that came or left, with their counts; a row that comes late is none of them."""
        names = came.column_names
        (new, held) = code_rows([came, after], [names, names])
        touched = pa.concat_tables([came.filter(pa.array(is_member(new, held))), left])
        once = touched.append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int64()), touched.num_rows))
        rows = consolidate(once, weight=WEIGHT).select(names)
        here, there = code_rows([rows, after], [names, names])
        counts = np.zeros(1 + int(max(here.max(initial=-1), there.max(initial=-1))), dtype=np.int64)
        counts[there] = after.column(WEIGHT).to_numpy()
        now = counts[here]
        stored = rows.append_column(COUNT, pa.array(now))
        state.put(stored, places=place_rows(stored, self.partition, names), gone=now == 0)

    def computed(self, table: pa.Table) -> pa.Table:
        """Rows with the edges of their sessions."""
        times = table.column(self.node.time).cast(pa.int64()).to_numpy()
        codes = code_rows([table], [self.partition])[0] if self.partition else np.zeros(len(times), dtype=np.int64)
        order = np.lexsort((times, codes))
        times, codes = times[order], codes[order]
        begins = np.append(True, (codes[1:] != codes[:-1]) | (np.diff(times) > self.node.gap))[: len(times)]
        number = np.cumsum(begins) - 1
        last = np.flatnonzero(np.append(begins[1:], True)[: len(times)])
        starts, ends = times[begins][number], times[last][number] + self.node.gap
        rows = table.take(pa.array(order))
        weights = rows.column(WEIGHT)
        rows = rows.drop_columns([WEIGHT])
        moments = (starts, ends, ends - _LAST_MILLISECOND)
        for field, moment in zip(self.node.fields[-3:], moments, strict=True):
            rows = rows.append_column(field.name, pa.array(moment).cast(arrow_type(field.type)))
        return rows.append_column(WEIGHT, weights)
