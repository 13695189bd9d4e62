"""Upsert-materialize: of the rows that share a key of the target, the one that arrived last is shown.

Delta rule: of each key that a batch touches, the row shown before is taken back and the one shown after is added; when
the row that is shown is taken back, the one that arrived before it takes its place. State: row to its count and the
batch that added it last. Rows that one batch adds have no order: the greatest by their columns counts as the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.row_codes import code_rows, last_positions
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.plan import Materialize
from upsert_platform.core.types import arrow_type
from upsert_platform.engine.aggregate import COUNT
from upsert_platform.engine.keys import consolidate, is_member, place_rows, settle
from upsert_platform.engine.partitions import negated
from upsert_platform.engine.row_order import sortable
from upsert_platform.engine.state import State, StateSchema
from upsert_platform.engine.steps import WEIGHT

SINCE: Final = internal("since")
"""BIGINT: the batch of the query that added a row last."""


@dataclass(frozen=True)
class LastRows:
    """The last row of each key. Input: signed rows."""

    node: Materialize
    state_name: str

    @property
    def names(self) -> list[str]:
        """The columns of a row."""
        return [field.name for field in self.node.fields]

    @property
    def states(self) -> tuple[StateSchema, ...]:
        """Row to its count and `SINCE`."""
        keys = tuple((field.name, arrow_type(field.type)) for field in self.node.fields)
        return (StateSchema(self.state_name, keys, ((COUNT, pa.int64()), (SINCE, pa.int64())), self.node.key),)

    def prepare(self, table: pa.Table) -> pa.Table:
        """Rows whose changes do not cancel out."""
        return settle(table, weight=WEIGHT)

    combine = prepare

    def run(self, inputs: Sequence[pa.Table], states: Mapping[str, State], *, first: bool) -> pa.Table:
        """The change of the result."""
        del first
        state = states[self.state_name]
        names = [*self.names, WEIGHT]
        change = settle(pa.concat_tables(inputs).select(names), weight=WEIGHT)
        known = state.rows_of_groups(place_rows(change, self.node.key))
        here, there = code_rows([change, known], [self.names, self.names])
        at = np.full(1 + int(max(here.max(initial=-1), there.max(initial=-1))), -1, dtype=np.int64)
        at[there] = np.arange(known.num_rows)
        at = at[here]
        was, since = np.zeros(change.num_rows, dtype=np.int64), np.full(change.num_rows, state.batch)
        was[at >= 0] = known.column(COUNT).to_numpy()[at[at >= 0]]
        weights = change.column(WEIGHT).to_numpy()
        older = (at >= 0) & (weights <= 0)
        since[older] = known.column(SINCE).to_numpy()[at[older]]
        now = was + weights
        if len(now) and now.min() < 0:
            if not state.forgets:
                raise ChangelogError(
                    "a row of the query was taken back more often than it was added; rebuild the query"
                )
            state.forgotten -= int(now[now < 0].sum())
            now = np.maximum(now, 0)
        moved = change.select(self.names).append_column(COUNT, pa.array(now)).append_column(SINCE, pa.array(since))
        moved = moved.cast(known.schema)
        state.put(moved, places=place_rows(moved, self.node.key, self.names), gone=now == 0)
        untouched = known.filter(pa.array(~is_member(there, here)))
        after = pa.concat_tables([untouched, moved.filter(pa.array(now > 0))])
        parts = [negated(self._shown(known)), self._shown(after)]
        return consolidate(pa.concat_tables(parts), weight=WEIGHT)

    def _shown(self, rows: pa.Table) -> pa.Table:
        """The row of each key that arrived last."""
        if rows.num_rows:
            (codes,) = code_rows([rows], [self.node.key]) if self.node.key else [np.zeros(rows.num_rows, np.int64)]
            columns = {"since": rows.column(SINCE)}
            for number, name in enumerate(self.names):
                columns[f"n{number}"] = pc.is_valid(rows.column(name)).cast(pa.int8())
                columns[f"v{number}"] = sortable(rows.column(name))
            order = pc.sort_indices(pa.table(columns), sort_keys=[(name, "ascending") for name in columns])
            rows = rows.take(pa.array(last_positions(codes, order.to_numpy())))
        return rows.select(self.names).append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))
