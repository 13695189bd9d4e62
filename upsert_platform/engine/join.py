"""Joins by equality of two changelogs.

Delta rule: the left side's change meets the right side as it was, the left side as it is now meets the right side's
change; so what changes on both sides in one batch is counted once. A row without a match appears null-padded (or by
itself: anti) while the other side has no row of its key, and the other way round for semi. State: the rows of each side
by join key, with their counts. Null keys match nothing: such rows need no state, unless the keys are those of groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.core.plan import Field, GroupJoin, Join
from upsert_platform.core.types import arrow_type
from upsert_platform.engine.keys import is_member, match_rows, place_rows, rows_in_use, settle
from upsert_platform.engine.partitions import move_rows, negated, rows_state
from upsert_platform.engine.state import State, StateSchema
from upsert_platform.engine.steps import WEIGHT


@dataclass(frozen=True)
class Matches:
    """A join. Inputs: signed rows of the left side, and of the right side."""

    node: Join
    left_state: str
    right_state: str

    @property
    def sides(self) -> tuple[Sequence[Field], Sequence[Field]]:
        """Columns of the left side, and of the right one."""
        return self.node.left.fields, self.node.right.fields

    @property
    def states(self) -> tuple[StateSchema, ...]:
        """Row to its count, for either side."""
        return (
            rows_state(self.left_state, self.node.left.fields),
            rows_state(self.right_state, self.node.right.fields),
        )

    def prepare(self, table: pa.Table) -> pa.Table:
        """Rows whose changes do not cancel out."""
        return settle(table, weight=WEIGHT)

    combine = prepare

    def run_sides(self, left: pa.Table, right: pa.Table, states: Mapping[str, State]) -> pa.Table:
        """The change of the result."""
        node = self.node
        pads_left, pads_right = node.kind in ("left", "full", "anti"), node.kind in ("right", "full")
        out: list[pa.Table] = []
        # Tasks that fed this bucket may each have a part of a row's change.
        left, right = self.prepare(left), self.prepare(right)
        if not isinstance(node, GroupJoin):
            left, single = without_null_keys(left, node.left_on)
            if pads_left:
                out.append(self._alone(single))
            right, single = without_null_keys(right, node.right_on)
            if pads_right:
                out.append(self._padded_right(single))
        places = np.concatenate([place_rows(left, node.left_on), place_rows(right, node.right_on)])
        left_before, left_after, left = move_rows(states[self.left_state], left, places, node.left_on)
        right_before, right_after, right = move_rows(states[self.right_state], right, places, node.right_on)
        left_used, right_used = rows_in_use(left, weight=WEIGHT), rows_in_use(right, weight=WEIGHT)
        if node.kind not in ("semi", "anti"):
            out += [self._pairs(left, right_before), self._pairs(left_after, right)]
        elif node.kind == "semi":
            out += [
                negated(self._matched(left_before, right_before, found=True)),
                self._matched(left_after, right_after, found=True),
                self._matched(left_used, right_after, found=True),
            ]
        if pads_left:
            out += [
                negated(self._alone(self._matched(left_before, right_before, found=False))),
                self._alone(self._matched(left_after, right_after, found=False)),
                self._alone(self._matched(left_used, right_after, found=False)),
            ]
        if pads_right:
            out += [
                negated(self._padded_right(self._unmatched_right(left_before, right_before))),
                self._padded_right(self._unmatched_right(left_after, right_after)),
                self._padded_right(self._unmatched_right(left_after, right_used)),
            ]
        return settle(pa.concat_tables([self._shaped(table) for table in out]), weight=WEIGHT)

    @property
    def _schema(self) -> pa.Schema:
        fields = [pa.field(field.name, arrow_type(field.type)) for field in self.node.fields]
        return pa.schema([*fields, pa.field(WEIGHT, pa.int64())])

    def _shaped(self, table: pa.Table) -> pa.Table:
        return table.select(self._schema.names).cast(self._schema)

    def _pairs(self, left: pa.Table, right: pa.Table) -> pa.Table:
        if not left.num_rows or not right.num_rows:  # nothing to look for, as in a first batch
            left, right = left.slice(0, 0), right.slice(0, 0)
        one, other = code_rows([left, right], [self.node.left_on, self.node.right_on])
        lefts, rights = match_rows(one, other)
        taken, met = left.take(pa.array(lefts)), right.take(pa.array(rights))
        weights = pc.multiply(taken.column(WEIGHT), met.column(WEIGHT))
        joined = taken.drop_columns([WEIGHT])
        for name in met.column_names:
            if name != WEIGHT:
                joined = joined.append_column(name, met.column(name))
        return joined.append_column(WEIGHT, weights)

    def _matched(self, left: pa.Table, right: pa.Table, *, found: bool) -> pa.Table:
        one, other = code_rows([left, right], [self.node.left_on, self.node.right_on])
        return left.filter(pa.array(is_member(one, other) == found))

    def _unmatched_right(self, left: pa.Table, right: pa.Table) -> pa.Table:
        one, other = code_rows([right, left], [self.node.right_on, self.node.left_on])
        return right.filter(pa.array(~is_member(one, other)))

    def _alone(self, left: pa.Table) -> pa.Table:
        """Left rows without a match, as the result shows them."""
        return left if self.node.kind == "anti" else with_nulls(left, self.node.right.fields)

    def _padded_right(self, right: pa.Table) -> pa.Table:
        return with_nulls(right, self.node.left.fields)


def without_null_keys(table: pa.Table, on: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Rows whose key is complete, and the others."""
    there = np.ones(table.num_rows, dtype=bool)
    for name in on:
        if table.column(name).null_count:
            there &= pc.is_valid(table.column(name)).to_numpy()
    return table.filter(pa.array(there)), table.filter(pa.array(~there))


def with_nulls(table: pa.Table, fields: Sequence[Field]) -> pa.Table:
    """Rows with nulls in further columns."""
    for field in fields:
        table = table.append_column(field.name, pa.nulls(table.num_rows, arrow_type(field.type)))
    return table
