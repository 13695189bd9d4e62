"""ROW_NUMBER() <= n: the first rows of every partition that a batch touches, before and after it.

Delta rule: the first n before are taken back, the first n after are added; what is the same cancels out. State: every
row of a partition with its count, in order to know who moves up when one leaves; over rows that are only added, n rows.
Rows that are only added and that the declared order leaves equal are in the order of their arrival (`record_order`), as
in Flink. Rows that change have no such order: they are ordered by their columns, so the result depends on nothing but
the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.core.plan import ArrivedTopN, TopN
from upsert_platform.core.types import arrow_type
from upsert_platform.engine.aggregate import COUNT
from upsert_platform.engine.keys import consolidate, is_member, place_rows, settle
from upsert_platform.engine.partitions import is_known, negated, without_forgotten
from upsert_platform.engine.record_order import partition_columns
from upsert_platform.engine.row_order import ARRIVED, Arrival, rows_in_order
from upsert_platform.engine.state import State, StateSchema
from upsert_platform.engine.steps import WEIGHT


@dataclass(frozen=True)
class FirstRows:
    """The first rows of each partition. Input: signed rows."""

    node: TopN
    state_name: str

    @property
    def names(self) -> list[str]:
        """The columns of a row."""
        return [name for name, _ in self._columns]

    @property
    def _columns(self) -> tuple[tuple[str, pa.DataType], ...]:
        given = tuple((field.name, arrow_type(field.type)) for field in self.node.input.fields)
        return (*given, (ARRIVED, pa.int64())) if isinstance(self.node, ArrivedTopN) else given

    @property
    def states(self) -> tuple[StateSchema, ...]:
        """Row to its count."""
        keys = self._columns
        return (StateSchema(self.state_name, keys, ((COUNT, pa.int64()),), self.node.partition),)

    def prepare(self, table: pa.Table) -> pa.Table:
        """Rows whose changes do not cancel out; of rows that are only added, those that may be among the first."""
        table = settle(table, weight=WEIGHT)
        if isinstance(self.node, ArrivedTopN):
            # Which partition is ahead of another is known when all of their rows are together.
            return self._cut(table, [*self.node.partition, *partition_columns(self.node.records)])
        return self._cut(table, self.node.partition) if self.node.input.appends else table

    combine = prepare

    def run(self, inputs: Sequence[pa.Table], states: Mapping[str, State], *, first: bool) -> pa.Table:
        """The change of the result."""
        del first
        state = states[self.state_name]
        change = pa.concat_tables(inputs)
        if isinstance(self.node, ArrivedTopN):
            change = change.append_column(ARRIVED, pa.repeat(pa.scalar(state.batch, pa.int64()), change.num_rows))
        change = settle(change.select([*self.names, WEIGHT]), weight=WEIGHT)
        known = state.rows_of_groups(place_rows(change, self.node.partition))
        before = known.rename_columns([*self.names, WEIGHT])
        change = change.cast(before.schema)
        after = consolidate(pa.concat_tables([before, change]), weight=WEIGHT)
        if after.num_rows and after.column(WEIGHT).to_numpy().min() < 0:
            after = without_forgotten(after, state)
        stays = self._cut(after, self.node.partition) if self.node.input.appends else after
        # Rows whose count differs from what is kept; those that left have none.
        moved = consolidate(pa.concat_tables([stays, negated(before)]), weight=WEIGHT)
        if state.forgets:
            moved = self._in_use(moved, change, stays)
        here, there = code_rows([moved, stays], [self.names, self.names])
        counts = np.zeros(int(max(here.max(initial=-1), there.max(initial=-1))) + 1, dtype=np.int64)
        counts[there] = stays.column(WEIGHT).to_numpy()
        now = counts[here]
        rows = moved.set_column(len(self.names), COUNT, pa.array(now))
        state.put(rows, places=place_rows(rows, self.node.partition, self.names), gone=now == 0)
        difference = pa.concat_tables([negated(self._ranked(before)), self._ranked(stays)])
        shown = [field.name for field in self.node.fields]
        return consolidate(difference.select([*shown, WEIGHT]), weight=WEIGHT)

    def _in_use(self, moved: pa.Table, change: pa.Table, stays: pa.Table) -> pa.Table:
        """The rows that are written anew: those that moved, and one at least of each partition that is in use."""
        firsts = stays
        if len(self.node.partition):
            (codes,) = code_rows([stays], [self.node.partition])
            firsts = stays.take(pa.array(np.unique(codes, return_index=True)[1]))
        elif stays.num_rows:
            firsts = stays.slice(0, 1)
        partition = list(self.node.partition)
        firsts = firsts.filter(pa.array(is_known(firsts, partition, [change])))
        return pa.concat_tables([moved, firsts.filter(pa.array(~_among(firsts, moved, self.names)))])

    def _order(self, table: pa.Table, partition: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Positions in order, by partition, and the partitions' codes."""
        node = self.node
        partitions = code_rows([table], [partition])[0] if partition else np.zeros(table.num_rows, dtype=np.int64)
        arrival = None
        if isinstance(node, ArrivedTopN):
            arrival = Arrival(node.records, node.at, node.latest)
        return rows_in_order(table, partition, partitions, node.order, self.names, arrival), partitions

    def _positions(self, table: pa.Table, partition: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Positions of rows in order, and the row number that each begins at, from 0."""
        order, partitions = self._order(table, partition)
        counts = table.column(WEIGHT).to_numpy()[order]
        sorted_partitions = partitions[order]
        before = np.cumsum(counts) - counts
        begins = np.append(True, sorted_partitions[1:] != sorted_partitions[:-1]) if len(order) else np.array([])
        base = np.maximum.accumulate(np.where(begins, before, -1)) if len(order) else before
        return order, before - base

    def _cut(self, table: pa.Table, partition: Sequence[str]) -> pa.Table:
        """The first rows of each partition, no more copies of the last than have room."""
        order, number = self._positions(table, partition)
        counts = np.minimum(table.column(WEIGHT).to_numpy()[order], np.maximum(self.node.limit - number, 0))
        kept = counts > 0
        rows = table.take(pa.array(order[kept]))
        return rows.set_column(rows.schema.get_field_index(WEIGHT), WEIGHT, pa.array(counts[kept]))

    def _ranked(self, table: pa.Table) -> pa.Table:
        """The first rows with their numbers, if those are shown."""
        cut = self._cut(table, self.node.partition)
        if self.node.rank is None:
            return cut
        order, number = self._positions(cut, self.node.partition)
        counts = cut.column(WEIGHT).to_numpy()[order]
        copies = np.repeat(np.arange(len(order)), counts)
        numbers = np.repeat(number, counts) + (np.arange(len(copies)) - np.repeat(np.cumsum(counts) - counts, counts))
        rows = cut.take(pa.array(order[copies])).drop_columns([WEIGHT])
        rank = pa.array(numbers + 1).cast(arrow_type(self.node.rank.type))
        weights = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
        return rows.append_column(self.node.rank.name, rank).append_column(WEIGHT, weights)


def _among(rows: pa.Table, others: pa.Table, names: Sequence[str]) -> np.ndarray:
    """Return a mask of the rows that the other table has."""
    one, other = code_rows([rows, others], [names, names])
    return is_member(one, other)
