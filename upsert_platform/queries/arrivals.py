"""The first or the last row of each key, of rows that are only added, in the order of the records they are made of.

Within a topic's partition the offset decides, between partitions the records' time, then topic and partition. Delta
rule: a key's first row is added and stays; or the last row of the batch takes the place of the one before it. So what a
later batch brings has arrived later. State: the keys that were met, or key to its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.plan import Arrivals
from upsert_platform.queries.keys import code_rows, consolidate, is_member, last_rows, place_rows
from upsert_platform.queries.state import State, StateSchema
from upsert_platform.queries.steps import WEIGHT
from upsert_platform.types import arrow_type


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
        """The row per key that counts, of what a task has read."""
        for order in self.node.orders:
            table = _of_chosen_records(table, self.node.key, order, first=self.node.first)
        if not table.num_rows:
            return table
        # One record in several windows: they stand in the order in which Flink gives them.
        (codes,) = code_rows([table], [self.node.key]) if self.node.key else [np.zeros(table.num_rows, dtype=np.int64)]
        rows = np.arange(table.num_rows)
        return table.take(pa.array(last_rows(codes, rows[::-1] if self.node.first else rows)))

    combine = prepare

    def run(self, inputs: Sequence[pa.Table], states: Mapping[str, State], *, first: bool) -> pa.Table:
        """The change of the result."""
        del first
        state, key = states[self.state_name], self.node.key
        change = self.prepare(pa.concat_tables(inputs, promote_options="permissive"))
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


def _of_chosen_records(table: pa.Table, key: Sequence[str], order: Sequence[str], *, first: bool) -> pa.Table:
    """The rows that are made of the first or last record of their key."""
    if table.num_rows < 2:
        return table
    time, topic, partition, offset, row = order
    (codes,) = code_rows([table], [key]) if key else [np.zeros(table.num_rows, dtype=np.int64)]
    (lanes,) = code_rows([table], [[topic, partition]])
    within = np.lexsort((_numbers(table, row), _numbers(table, offset)))
    within = within[::-1] if first else within
    ends = last_rows(codes * (int(lanes.max()) + 1) + lanes, within)
    topics = pc.rank(pc.fill_null(table.column(topic), ""), tiebreaker="min").to_numpy()
    between = np.lexsort((_numbers(table, partition)[ends], topics[ends], _numbers(table, time)[ends]))
    between = between[::-1] if first else between
    chosen = np.zeros(int(codes.max()) + 1, dtype=np.int64)
    chosen[codes[ends[between]]] = ends[between]
    (records,) = code_rows([table], [[topic, partition, offset, row]])
    return table.filter(pa.array(records == records[chosen[codes]]))


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    """Numbers that order a column, nulls before everything."""
    return pc.fill_null(table.column(name).cast(pa.int64()), np.iinfo(np.int64).min).to_numpy()


def _weighted(table: pa.Table, weight: int) -> pa.Table:
    values: Any = pa.repeat(pa.scalar(weight, pa.int64()), table.num_rows)
    return table.append_column(WEIGHT, values)
