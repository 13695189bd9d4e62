"""The first or the last row of each key, of rows that are only added, in the order of the records they are made of.

`record_order` has that order. Delta
rule: a key's first row is added and stays; or the last row of the batch takes the place of the one before it. So what a
later batch brings has arrived later. State: the keys that were met, or key to its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from upsert_platform.changelog.row_codes import code_rows, last_positions
from upsert_platform.core.plan import Arrivals
from upsert_platform.core.types import arrow_type
from upsert_platform.engine.keys import consolidate, is_member, place_rows
from upsert_platform.engine.record_order import of_chosen_records, partition_columns
from upsert_platform.engine.state import State, StateSchema
from upsert_platform.engine.steps import WEIGHT


@dataclass(frozen=True)
class Arrived:
    """One row per key. Input: rows with weights above zero."""

    node: Arrivals
    state_name: str

    @property
    def states(self) -> tuple[StateSchema, ...]:
        """The keys; with what is shown of them where that may be taken back."""
        kinds = {field.name: arrow_type(field.type) for field in self.node.fields}
        keys = tuple((name, kinds[name]) for name in self.node.key)
        values = () if self.node.first else tuple(item for item in kinds.items() if item[0] not in self.node.key)
        return (StateSchema(self.state_name, keys, values),)

    def prepare(self, table: pa.Table) -> pa.Table:
        """The rows that may count, of what a task has read: one per key and partition of its records' topics.

        Which partition is ahead of another is known when all of their rows are together.
        """
        return self._chosen(table, [*self.node.key, *partition_columns(self.node.orders)])

    def _chosen(self, table: pa.Table, key: Sequence[str]) -> pa.Table:
        """The row that counts of those that are equal in these columns."""
        for order in self.node.orders:
            table = of_chosen_records(table, _codes(table, key), order, first=self.node.first)
        if not table.num_rows:
            return table
        # One record in several windows: they stand in the order in which Flink gives them.
        codes, rows = _codes(table, key), np.arange(table.num_rows)
        return table.take(pa.array(last_positions(codes, rows[::-1] if self.node.first else rows)))

    combine = prepare

    def run(self, inputs: Sequence[pa.Table], states: Mapping[str, State], *, first: bool) -> pa.Table:
        """The change of the result."""
        del first
        state, key = states[self.state_name], self.node.key
        change = self._chosen(pa.concat_tables(inputs, promote_options="permissive"), key)
        shown = pa.table(
            [change.column(field.name).cast(arrow_type(field.type)) for field in self.node.fields],
            names=[field.name for field in self.node.fields],
        )
        stored = shown.select([name for name, _, _ in state.schema.columns])
        places = place_rows(stored, key)
        known = state.rows_at(places)
        there, here = (
            code_rows([known, stored], [key, key])
            if key
            else [np.zeros(item.num_rows, dtype=np.int64) for item in (known, stored)]
        )
        if self.node.first:
            new = ~is_member(here, there) if known.num_rows else np.ones(len(here), dtype=bool)
            state.put(stored.filter(pa.array(new)), places=places[new], gone=np.zeros(int(new.sum()), dtype=bool))
            return _weighted(shown.filter(pa.array(new)), 1)
        state.put(stored, places=places, gone=np.zeros(stored.num_rows, dtype=bool))
        before = known.filter(pa.array(is_member(there, here))).select(shown.column_names)
        return consolidate(pa.concat_tables([_weighted(before, -1), _weighted(shown, 1)]), weight=WEIGHT)


def _codes(table: pa.Table, key: Sequence[str]) -> np.ndarray:
    """The group of each row; all are one without a key."""
    return code_rows([table], [key])[0] if key else np.zeros(table.num_rows, dtype=np.int64)


def _weighted(table: pa.Table, weight: int) -> pa.Table:
    values: Any = pa.repeat(pa.scalar(weight, pa.int64()), table.num_rows)
    return table.append_column(WEIGHT, values)
