"""Finals rows: those of closed windows, each once, as the window was when it closed.

Delta rule: the change of the input is applied to the rows that wait; when windows close, their rows are given and leave
the state. What a window takes after that was left out where rows get their windows, so nothing given changes any more.
State: the rows of open windows with their counts. A batch that closes windows reads and writes all of them, another one
the rows that changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.core.plan import Finals
from upsert_platform.engine.aggregate import COUNT
from upsert_platform.engine.keys import consolidate, is_member, place_rows
from upsert_platform.engine.partitions import rows_state, without_forgotten
from upsert_platform.engine.state import State, StateSchema
from upsert_platform.engine.steps import WEIGHT


@dataclass(frozen=True)
class FinalRows:
    """The rows of closed windows. Input: signed rows."""

    node: Finals
    state_name: str

    @property
    def names(self) -> list[str]:
        """The columns of a row."""
        return [field.name for field in self.node.fields]

    @property
    def states(self) -> tuple[StateSchema, ...]:
        """Row to its count."""
        return (rows_state(self.state_name, self.node.fields),)

    def prepare(self, table: pa.Table) -> pa.Table:
        """Rows whose changes do not cancel out."""
        return consolidate(table, weight=WEIGHT)

    combine = prepare

    def run(self, inputs: Sequence[pa.Table], states: Mapping[str, State], *, first: bool) -> pa.Table:
        """The change of a batch that closes nothing."""
        del first
        return self.run_final(inputs, states, upto=None)

    def run_final(self, inputs: Sequence[pa.Table], states: Mapping[str, State], *, upto: int | None) -> pa.Table:
        """The rows of windows that are closed.

        Args:
            upto: windows that end then, or before, are closed, in microseconds since 1970; None if no window closes.
        """
        state = states[self.state_name]
        nothing = state.schema.empty.rename_columns([*self.names, WEIGHT])
        shaped = [table.select(nothing.column_names).cast(nothing.schema) for table in inputs]
        change = self.prepare(pa.concat_tables([nothing, *shaped]))
        places = place_rows(change, self.names)
        held = state.rows_at(places) if upto is None else state.all_rows()
        before = held.rename_columns(nothing.column_names)
        after = consolidate(pa.concat_tables([before, change]), weight=WEIGHT)
        if after.num_rows and after.column(WEIGHT).to_numpy().min() < 0:
            after = without_forgotten(after, state)
        if upto is None:
            self._keep(change, after, places, state)
            return nothing
        ends = after.column(self.node.end).cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
        final, waiting = after.filter(pa.array(ends <= upto)), after.filter(pa.array(ends > upto))
        if final.num_rows or change.num_rows:
            rows = waiting.rename_columns([*self.names, COUNT])
            state.put_all(rows, places=place_rows(rows, self.names))
        state.let_go += final.num_rows
        return final

    def _keep(self, change: pa.Table, after: pa.Table, places: np.ndarray, state: State) -> None:
        """Writes the rows that changed with their counts."""
        here, there = code_rows([change, after], [self.names, self.names])
        counts = np.zeros(1 + int(max(here.max(initial=-1), there.max(initial=-1))), dtype=np.int64)
        counts[there] = after.column(WEIGHT).to_numpy()
        rows = change.set_column(len(self.names), COUNT, pa.array(counts[here]))
        state.put(rows, places=places, gone=~is_member(here, there))
