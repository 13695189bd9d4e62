"""Temporal joins: rows with the version of a table that was valid at their time.

A version is valid from its event time to that of the next one of its key. Delta rule: the rows of the keys that a batch
touches are joined anew with all versions of these keys; what is the same cancels out. So a version that comes late
changes the rows after its time, and a row that comes late finds what was valid then. State: rows with their counts, and
versions with the batch that brought them, by key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.plan import Field, Temporal
from upsert_platform.core.types import arrow_type
from upsert_platform.engine.join import with_nulls, without_null_keys
from upsert_platform.engine.keys import code_rows, consolidate, place_rows
from upsert_platform.engine.partitions import move_rows, negated, rows_state
from upsert_platform.engine.record_order import arrival_ranks
from upsert_platform.engine.row_order import ARRIVED
from upsert_platform.engine.state import State, StateSchema
from upsert_platform.engine.steps import WEIGHT


@dataclass(frozen=True)
class AsOf:
    """A temporal join. Inputs: signed rows, and versions, which are only added."""

    node: Temporal
    left_state: str
    right_state: str

    @property
    def sides(self) -> tuple[Sequence[Field], Sequence[Field]]:
        """Columns of the rows, and of the versions."""
        return self.node.input.fields, self.node.versions.fields

    @property
    def states(self) -> tuple[StateSchema, ...]:
        """Row to its count; version, and the batch that brought it, to its count."""
        rows, versions = self.sides
        return (
            rows_state(self.left_state, rows),
            rows_state(self.right_state, versions, more=((ARRIVED, pa.int64()),)),
        )

    def prepare(self, table: pa.Table) -> pa.Table:
        """Rows whose changes do not cancel out."""
        return consolidate(table, weight=WEIGHT)

    combine = prepare

    def run_sides(self, left: pa.Table, right: pa.Table, states: Mapping[str, State]) -> pa.Table:
        """The change of the result."""
        node = self.node
        left, single = without_null_keys(self.prepare(left), node.on)
        right, _ = without_null_keys(self.prepare(right), node.key)
        batch = states[self.right_state].batch
        right = right.append_column(ARRIVED, pa.repeat(pa.scalar(batch, pa.int64()), right.num_rows))
        places = np.concatenate([place_rows(left, node.on), place_rows(right, node.key)])
        before, after, _ = move_rows(states[self.left_state], left, places, node.on)
        old, new, _ = move_rows(states[self.right_state], right, places, node.key)
        out = [negated(self._joined(before, old)), self._joined(after, new)]
        if node.padded:
            out.append(self._shaped(with_nulls(single, node.found)))
        return consolidate(pa.concat_tables(out), weight=WEIGHT)

    def _shaped(self, table: pa.Table) -> pa.Table:
        fields = [pa.field(item.name, arrow_type(item.type)) for item in self.node.fields]
        schema = pa.schema([*fields, pa.field(WEIGHT, pa.int64())])
        return table.select(schema.names).cast(schema)

    def _joined(self, left: pa.Table, versions: pa.Table) -> pa.Table:
        """Rows with the versions that were valid at their times."""
        node = self.node
        versions = self._timed(versions)
        codes, keys = code_rows([left, versions], [node.on, node.key])
        times, none = _microseconds(left, node.time)
        size = versions.num_rows
        order = np.lexsort(
            (
                np.concatenate([np.arange(size), np.full(left.num_rows, size)]),
                np.concatenate([_microseconds(versions, node.since)[0], times]),
                np.concatenate([keys, codes]),
            )
        )
        # The last version before each row, if it is of the row's key.
        last = np.maximum.accumulate(np.where(order < size, np.arange(len(order)), -1)) if len(order) else order
        at = np.full(left.num_rows, -1, dtype=np.int64)
        asked = order >= size
        at[order[asked] - size] = np.where(last[asked] >= 0, order[last[asked]], -1)
        there = (at >= 0) & ~none
        there[there] = keys[at[there]] == codes[there]
        put = versions.column(node.put).to_numpy() if size else np.zeros(0, dtype=bool)
        there[there] = put[at[there]]
        if not node.padded:
            left, at, there = left.filter(pa.array(there)), at[there], there[there]
        taken = pa.array(np.where(there, at, 0), mask=~there)
        joined = left
        for name in node.columns:
            joined = joined.append_column(name, versions.column(name).take(taken))
        return self._shaped(joined)

    def _timed(self, versions: pa.Table) -> pa.Table:
        """Versions in the order of key, time and arrival, each with its time; those that have none are left out."""
        node = self.node
        if not versions.num_rows:
            return versions
        (codes,) = code_rows([versions], [node.key])
        ranks = arrival_ranks(versions, codes, [node.record], latest=False, arrived=ARRIVED)
        order = np.lexsort((ranks, codes))
        versions, codes = versions.take(pa.array(order)), codes[order]
        times, none = _microseconds(versions, node.since)
        deleted = none & ~versions.column(node.put).to_numpy()
        if node.of_record:
            times = np.where(deleted, _microseconds(versions, node.record[1])[0], times)
            valid = ~none | deleted
        else:
            known = np.maximum.accumulate(np.where(none, -1, np.arange(len(times))))
            valid = known >= 0
            valid[valid] = codes[known[valid]] == codes[valid]
            valid &= ~none | deleted
            times = np.where(deleted & valid, times[known], times)
        chosen = np.flatnonzero(valid)
        chosen = chosen[np.lexsort((chosen, times[chosen], codes[chosen]))]
        at = versions.schema.get_field_index(node.since)
        moments = pa.array(times[chosen]).cast(versions.schema.field(at).type)
        return versions.take(pa.array(chosen)).set_column(at, node.since, moments)


def _microseconds(table: pa.Table, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Moments as numbers, and which rows have none."""
    column = table.column(name)
    none = column.is_null().to_numpy()
    return pc.fill_null(column.cast(pa.int64()), np.iinfo(np.int64).min).to_numpy(), none
