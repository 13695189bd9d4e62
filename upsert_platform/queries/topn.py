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
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.row_hashes import normal
from upsert_platform.errors import ChangelogError
from upsert_platform.internal_columns import internal
from upsert_platform.plan import ArrivedTopN, TopN
from upsert_platform.queries.aggregate import COUNT
from upsert_platform.queries.keys import code_rows, consolidate, place_rows
from upsert_platform.queries.partitions import negated
from upsert_platform.queries.record_order import arrival_ranks, partition_columns
from upsert_platform.queries.state import State, StateSchema
from upsert_platform.queries.steps import WEIGHT
from upsert_platform.types import arrow_type

ARRIVED: Final = internal("arrived")
"""BIGINT: the batch of the query that brought a row."""


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
        return (StateSchema(self.state_name, keys, ((COUNT, pa.int64()),)),)

    def prepare(self, table: pa.Table) -> pa.Table:
        """Rows whose changes do not cancel out; of rows that are only added, those that may be among the first."""
        table = consolidate(table, weight=WEIGHT)
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
        change = consolidate(change.select([*self.names, WEIGHT]), weight=WEIGHT)
        known = state.rows_of_groups(place_rows(change, self.node.partition))
        before = known.rename_columns([*self.names, WEIGHT])
        change = change.cast(before.schema)
        after = consolidate(pa.concat_tables([before, change]), weight=WEIGHT)
        if after.num_rows and after.column(WEIGHT).to_numpy().min() < 0:
            raise ChangelogError("a row of the query was taken back more often than it was ever added; rebuild it")
        stays = self._cut(after, self.node.partition) if self.node.input.appends else after
        # Rows whose count differs from what is kept; those that left have none.
        moved = consolidate(pa.concat_tables([stays, negated(before)]), weight=WEIGHT)
        here, there = code_rows([moved, stays], [self.names, self.names])
        counts = np.zeros(int(max(here.max(initial=-1), there.max(initial=-1))) + 1, dtype=np.int64)
        counts[there] = stays.column(WEIGHT).to_numpy()
        now = counts[here]
        rows = moved.set_column(len(self.names), COUNT, pa.array(now))
        state.put(rows, places=place_rows(rows, self.node.partition, self.names), gone=now == 0)
        difference = pa.concat_tables([negated(self._ranked(before)), self._ranked(stays)])
        shown = [field.name for field in self.node.fields]
        return consolidate(difference.select([*shown, WEIGHT]), weight=WEIGHT)

    def _order(self, table: pa.Table, partition: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Positions in order, by partition, and the partitions' codes."""
        node = self.node
        partitions = code_rows([table], [partition])[0] if partition else np.zeros(table.num_rows, dtype=np.int64)
        columns: dict[str, pa.Array | pa.ChunkedArray] = {"partition": pa.array(partitions)}
        keys = [("partition", "ascending")]
        arrival = node.at if isinstance(node, ArrivedTopN) else None
        for at, item in enumerate(node.order):
            if at == arrival:
                keys.append(("arrival", "ascending"))
            values = sortable(table.column(item.column))
            nulls = values.is_null().to_numpy(zero_copy_only=False).astype(np.int8)
            columns[f"n{at}"] = pa.array(-nulls if item.nulls_first else nulls)
            columns[f"o{at}"] = values
            keys += [(f"n{at}", "ascending"), (f"o{at}", "descending" if item.descending else "ascending")]
        if isinstance(node, ArrivedTopN):
            equal = [*partition, *(item.column for item in node.order[: node.at])]
            columns["arrival"] = pa.array(self._arrival(table, equal))
            if node.at >= len(node.order):
                keys.append(("arrival", "ascending"))
        for at, name in enumerate(self.names):
            if name in table.column_names:
                columns[f"t{at}"] = sortable(table.column(name))
                keys.append((f"t{at}", "ascending"))
        return pc.sort_indices(pa.table(columns), sort_keys=keys).to_numpy(), partitions

    def _arrival(self, table: pa.Table, equal: Sequence[str]) -> np.ndarray:
        """Numbers in the order of arrival for rows that are equal in these columns."""
        assert isinstance(self.node, ArrivedTopN)
        codes = code_rows([table], [equal])[0] if equal else np.zeros(table.num_rows, dtype=np.int64)
        ranks = np.zeros(table.num_rows, dtype=np.int64)
        ties = np.bincount(codes)[codes] > 1 if len(codes) else np.zeros(0, dtype=bool)
        several = table.filter(pa.array(ties))
        arrived = ARRIVED if ARRIVED in table.column_names else None
        ranks[ties] = arrival_ranks(several, codes[ties], self.node.records, latest=self.node.latest, arrived=arrived)
        return ranks

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


def sortable(column: pa.ChunkedArray) -> pa.Array:
    """A column as Arrow orders it: NaN after every number, as in Java; booleans as numbers."""
    values = normal(column)
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8())
    if pa.types.is_floating(values.type):
        numbers = values.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False).view(np.int64)
        # The bits of a double, turned so that they are ordered as the doubles are; NaN is the greatest.
        ordered = np.where(numbers < 0, np.int64(np.iinfo(np.int64).min) - numbers, numbers)
        return pa.array(ordered, mask=values.is_null().to_numpy(zero_copy_only=False))
    return values
