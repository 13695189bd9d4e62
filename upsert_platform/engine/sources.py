"""Conversion of a table's changelog to diffs: every upsert becomes a retraction of its old row and an addition of its
new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog import rows
from upsert_platform.changelog.last_rows import last_rows
from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.changelog.rows import PARTITIONS_MET
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.plan import Field
from upsert_platform.core.types import arrow_type
from upsert_platform.engine.keys import is_member, place_rows
from upsert_platform.engine.state import State, StateSchema
from upsert_platform.engine.steps import WEIGHT

PUT: Final = internal("put")
"""BOOLEAN: the row is there after the change; false after a delete, and where a filter does not hold."""


def signed_rows(table: pa.Table, *, paired: bool) -> pa.Table:
    """Rows of a changelog that count by themselves: before-images and deletes against.

    Args:
        paired: a query's changelog, whose deletes have their before-image beside them and count for nothing.
    """
    kinds = table.column(rows.KIND)
    if paired:
        table = table.filter(pc.not_equal(kinds, rows.KIND_DELETE))
        kinds = table.column(rows.KIND)
    back = pc.is_in(kinds, pa.array([rows.KIND_UPDATE_BEFORE, rows.KIND_DELETE]))
    return table.append_column(WEIGHT, pc.if_else(back, pa.scalar(-1, pa.int64()), pa.scalar(1, pa.int64())))


@dataclass(frozen=True)
class Upserts:
    """The contribution index of an upsert source. Input: changes with `PUT` and the columns of `rows.ORDER`.

    Delta rule: minus the row that the index has of the key, plus the new one; a row that a record repeats has weight 0
    in a query that lets go of idle state, so that the rows made of it stay in use. State: key to exactly the columns
    that the query uses, as it computed them; keys that are deleted, or fail the query's filter, leave.
    """

    key: tuple[str, ...]
    columns: tuple[Field, ...]
    state_name: str

    @property
    def states(self) -> tuple[StateSchema, ...]:
        """Key to columns."""
        kinds = {field.name: arrow_type(field.type) for field in self.columns}
        keys = tuple((name, kinds[name]) for name in self.key)
        return (StateSchema(self.state_name, keys, tuple(item for item in kinds.items() if item[0] not in self.key)),)

    def prepare(self, table: pa.Table) -> pa.Table:
        """The last changes per key of what a task has read."""
        return last_rows(table, key=self.key, of_partitions=True).drop_columns([PARTITIONS_MET])

    def combine(self, table: pa.Table) -> pa.Table:
        """The last changes per key."""
        return last_rows(table, key=self.key, of_partitions=True).drop_columns([PARTITIONS_MET])

    def run(self, inputs: Sequence[pa.Table], states: Mapping[str, State], *, first: bool) -> pa.Table:
        """Signed rows: what the changes take back and add."""
        del first
        state = states[self.state_name]
        names = [name for name, _, _ in state.schema.columns]
        change = last_rows(pa.concat_tables(inputs), key=self.key)
        after = pa.table([change.column(name).cast(kind) for name, _, kind in state.schema.columns], names=names)
        places = place_rows(after, self.key)
        known = state.rows_at(places)
        put = change.column(PUT).to_numpy()
        if not known.num_rows:
            added = after.filter(pa.array(put))
            state.put(added, places=places[put], gone=np.zeros(added.num_rows, dtype=bool))
            return _weighted(added, 1)
        one, other = code_rows([known, after], [self.key, self.key])
        there = is_member(other, one)
        whole, new = code_rows([known, after], [names, names])
        # Nothing changes where the key is not there and stays away, or is there as it was.
        same = (~there & ~put) | (put & is_member(new, whole))
        written = ~same | put if state.forgets else ~same
        state.put(after.filter(pa.array(written)), places=places[written], gone=~put[written])
        taken = known.filter(pa.array(is_member(one, other[~same])))
        parts = [_weighted(taken, -1), _weighted(after.filter(pa.array(put & ~same)), 1)]
        if state.forgets:
            parts.append(_weighted(after.filter(pa.array(put & same)), 0))
        return pa.concat_tables(parts)


def _weighted(table: pa.Table, weight: int) -> pa.Table:
    values: Any = pa.repeat(pa.scalar(weight, pa.int64()), table.num_rows)
    return table.append_column(WEIGHT, values)
