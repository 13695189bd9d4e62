"""GROUP BY and DISTINCT: partial results are merged into the groups that a batch touches, and into no others.

Delta rule: the new group is the old one plus the partial results of the batch's signed rows; the old result is taken
back, the new one added. State: group to rows, counts, sums. What does not add up (distinct values, extremes of what may
be taken back) is kept as a multiset of values beside it, which tells the group what changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.plan import Aggregate
from upsert_platform.core.types import arrow_type
from upsert_platform.engine.accumulators import (
    ROWS,
    Accumulator,
    Accumulators,
    add_rows,
    merge_groups,
    plan_accumulators,
    results_of,
    with_nan,
)  # fmt: skip
from upsert_platform.engine.keys import consolidate, is_member, place_rows, settle, sum_rows
from upsert_platform.engine.state import State, StateSchema
from upsert_platform.engine.steps import WEIGHT

BACK = internal("back")
"""BOOLEAN: a partial result is of rows that are taken back."""
COUNT = internal("count")
"""BIGINT: how often a value is in a multiset."""


@dataclass(frozen=True)
class Groups:
    """The groups of a GROUP BY. Input: partial results."""

    node: Aggregate
    state_name: str
    forgets: bool = False
    """The query lets go of idle state: rows that are taken back are kept apart from those that are added, since those
    of a group that is away count for nothing.
    """

    @property
    def plan(self) -> Accumulators:
        """Return the accumulators."""
        return plan_accumulators(self.node)

    @property
    def partial(self) -> Accumulators:
        """Return the accumulators of partial results."""
        return partial_plan(self.plan, forgets=self.forgets)

    @property
    def states(self) -> tuple[StateSchema, ...]:
        """Group to accumulators."""
        plan = self.plan
        return (StateSchema(self.state_name, plan.group, plan.values),)

    def prepare(self, table: pa.Table) -> pa.Table:
        """Partial results of signed rows, made before they go to the bucket of their group."""
        if self.forgets:
            table = table.append_column(BACK, pa.array(table.column(WEIGHT).to_numpy() < 0))
        return add_rows(table, self.partial)

    def combine(self, table: pa.Table) -> pa.Table:
        """Fewer partial results of the same meaning."""
        return merge_groups(table, self.partial)

    def run(self, inputs: Sequence[pa.Table], states: Mapping[str, State], *, first: bool) -> pa.Table:
        """The change of the result.

        Args:
            first: this bucket holds the row of a GROUP BY without columns, and the query has no batch yet.
        """
        plan, state = self.plan, states[self.state_name]
        nothing = [_nothing(plan)] if first and not plan.group else []
        given = (
            [self._of_known(pa.concat_tables([self.partial.complete(table) for table in inputs]), state)]
            if inputs
            else []
        )
        partial = pa.concat_tables([*(plan.complete(table) for table in given), *nothing])
        if not partial.num_rows:
            return results_of(partial, plan).append_column(WEIGHT, pa.array([], pa.int64()))
        touched = merge_groups(partial, plan)
        before = _same_groups(state.rows_at(place_rows(touched, plan.names)), touched, plan.names)
        after = merge_groups(pa.concat_tables([plan.complete(before), touched]), plan)
        counts = after.column(ROWS).to_numpy()
        if len(counts) and counts.min() < 0:
            if not state.forgets:
                raise ChangelogError(
                    f"a group of the query has {counts.min()} rows: more was taken back than was ever added; rebuild it"
                )
            state.forgotten -= int(counts[counts < 0].sum())
            after = after if plan.group else _nothing(plan)
        gone = (counts <= 0) & bool(plan.group)
        state.put(after, places=place_rows(after, plan.names), gone=gone)
        old, new = results_of(before, plan), results_of(after.filter(pa.array(~gone)), plan)
        difference = _difference(old, new)
        return pa.concat_tables([difference, _unchanged(old, new)]) if state.forgets else difference

    def _of_known(self, partial: pa.Table, state: State) -> pa.Table:
        """Partial results without rows that are taken back of groups that were let go of."""
        if not self.forgets or not partial.num_rows:
            return partial
        plan = self.plan
        back = partial.column(BACK).to_numpy(zero_copy_only=False)
        known = state.rows_at(place_rows(partial, plan.names))
        if plan.names:
            one, other = code_rows([partial, known], [plan.names, plan.names])
            away = back & ~is_member(one, other)
        else:
            away = back & (known.num_rows == 0)
        state.forgotten -= int(partial.column(ROWS).to_numpy()[away].sum())
        return partial.filter(pa.array(~away))


def partial_plan(plan: Accumulators, *, forgets: bool) -> Accumulators:
    """Return the accumulators of partial results, which say whether rows are taken back where that matters."""
    return replace(plan, group=(*plan.group, (BACK, pa.bool_()))) if forgets else plan


def _unchanged(old: pa.Table, new: pa.Table) -> pa.Table:
    """The results that are as they were, with weight 0: they are in use."""
    names = new.column_names
    one, other = code_rows([new, old], [names, names])
    kept = new.filter(pa.array(is_member(one, other)))
    return kept.append_column(WEIGHT, pa.repeat(pa.scalar(0, pa.int64()), kept.num_rows))


def _nothing(plan: Accumulators) -> pa.Table:
    """The partial result of no rows, of a GROUP BY without columns: one row of zeros."""
    return plan.complete(pa.table({ROWS: pa.array([0], pa.int64())}))


def _same_groups(found: pa.Table, touched: pa.Table, names: Sequence[str]) -> pa.Table:
    """Without groups that only share a place with those touched."""
    if not found.num_rows or not names:
        return found
    one, other = code_rows([found, touched], [names, names])
    return found.filter(pa.array(is_member(one, other)))


def _difference(before: pa.Table, after: pa.Table) -> pa.Table:
    """Rows taken back and rows added; those that are the same are left out."""
    old = before.append_column(WEIGHT, pa.repeat(pa.scalar(-1, pa.int64()), before.num_rows))
    new = after.append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int64()), after.num_rows))
    return consolidate(pa.concat_tables([old, new]), weight=WEIGHT)


@dataclass(frozen=True)
class Multiset:
    """The values of one argument per group, for the accumulators of a GROUP BY that need each of them.

    Input: signed rows of the group's columns and the argument. State: (group, value) to how often it is there. Values
    spread a large group over all buckets, unless an extreme is asked for: that needs a group's values together.
    """

    node: Aggregate
    argument: str
    filter: str | None
    state_name: str
    forgets: bool = False

    @property
    def plan(self) -> Accumulators:
        """Return the accumulators of the groups."""
        return plan_accumulators(self.node)

    @property
    def items(self) -> tuple[Accumulator, ...]:
        """The accumulators that are fed from here."""
        return tuple(item for item in self.plan.items if multiset_of(item) == (self.argument, self.filter))

    @property
    def spread(self) -> bool:
        """Return whether values of one group may lie in different buckets."""
        return not any(item.is_told_whole for item in self.items)

    @property
    def states(self) -> tuple[StateSchema, ...]:
        """(group, value) to its count."""
        kinds = {field.name: field.type for field in self.node.input.fields}

        value = (self.argument, arrow_type(kinds[self.argument]))
        keys = (*((f"g{at}", kind) for at, (_, kind) in enumerate(self.plan.group)), ("value", value[1]))
        together = None if self.spread else tuple(self.group_names)
        return (StateSchema(self.state_name, keys, ((COUNT, pa.int64()),), together),)

    def prepare(self, table: pa.Table) -> pa.Table:
        """Columns ``g0``, ``g1`` ..., ``value`` and `WEIGHT`, without nulls and filtered rows; `combine` adds up."""
        if table.column(self.argument).null_count:
            table = table.filter(pc.is_valid(table.column(self.argument)))
        if self.filter is not None:
            table = table.filter(pc.fill_null(table.column(self.filter), False))
        columns: dict[str, Any] = {f"g{at}": table.column(name) for at, name in enumerate(self.plan.names)}
        columns |= {"value": table.column(self.argument), WEIGHT: table.column(WEIGHT)}
        return pa.table(columns)

    def combine(self, table: pa.Table) -> pa.Table:
        """Fewer rows of the same meaning."""
        nested = any(pa.types.is_nested(kind) or pa.types.is_floating(kind) for kind in table.schema.types)
        if nested or not table.num_rows or self.forgets:
            return settle(table, weight=WEIGHT)
        sorted_rows = sum_rows(table, weight=WEIGHT)
        if sorted_rows is not None:
            return sorted_rows
        names = [name for name in table.column_names if name != WEIGHT]
        summed = table.group_by(names, use_threads=False).aggregate([(WEIGHT, "sum")])
        return summed.rename_columns([*names, WEIGHT]).filter(pc.not_equal(summed.column(f"{WEIGHT}_sum"), 0))

    @property
    def group_names(self) -> list[str]:
        """Names of the group's columns here."""
        return [f"g{at}" for at in range(len(self.plan.group))]

    def run(self, inputs: Sequence[pa.Table], states: Mapping[str, State], *, first: bool) -> pa.Table:
        """Partial results for the groups."""
        del first
        found = self._partial(inputs, states)
        if not self.forgets:
            return found
        return found.append_column(BACK, pa.array(np.zeros(found.num_rows, dtype=bool)))

    def _partial(self, inputs: Sequence[pa.Table], states: Mapping[str, State]) -> pa.Table:
        state = states[self.state_name]
        schema = state.schema
        names = [*self.group_names, "value"]
        change = self.combine(pa.concat_tables(inputs))
        if not change.num_rows:
            return self.plan.complete(_renamed(change.select(self.group_names), self.plan.names))
        places = place_rows(change, self.group_names, ["value"])
        before = state.rows_at(places) if self.spread else state.rows_of_groups(places)
        was = np.zeros(change.num_rows, dtype=np.int64)
        if before.num_rows:
            touched, known = code_rows([change, before], [names, names])
            counts = np.zeros(int(max(touched.max(), known.max())) + 1, dtype=np.int64)
            counts[known] = before.column(COUNT).to_numpy()
            was = counts[touched]
        now = was + change.column(WEIGHT).to_numpy()
        if now.min() < 0:
            if not state.forgets:
                raise ChangelogError(
                    "a value of the query was taken back more often than it was ever added; rebuild it"
                )
            now = np.maximum(now, 0)
        rows = pa.table([*(change.column(name) for name in names), pa.array(now)], names=[*names, COUNT])
        assert tuple(rows.column_names) == tuple(name for name, _, _ in schema.columns)
        state.put(rows, places=places, gone=now == 0)
        crossing = np.sign(now) - np.sign(was)
        parts = [self._crossings(change, crossing)]
        if not self.spread:
            old = before.select(names).append_column(WEIGHT, before.column(COUNT))
            every = pa.concat_tables([old, change.select(old.column_names).cast(old.schema)])
            after = consolidate(every, weight=WEIGHT)
            if self.forgets and after.num_rows:
                after = after.filter(pa.array(after.column(WEIGHT).to_numpy() > 0))
            parts.append(self._extremes(change, after))
        return pa.concat_tables(parts)

    def _crossings(self, change: pa.Table, crossing: np.ndarray) -> pa.Table:
        """Return the change of counts and sums by values that appeared or disappeared."""
        distinct = [item for item in self.items if item.distinct and not item.is_told_whole]
        crossed = pa.array(crossing != 0)
        columns: dict[str, Any] = {
            name: change.column(here) for name, here in zip(self.plan.names, self.group_names, strict=True)
        }
        columns[self.argument if self.argument not in columns else internal("value")] = change.column("value")
        columns[WEIGHT] = pa.array(crossing)
        rows = pa.table(columns).filter(crossed)

        argument = self.argument if self.argument not in self.plan.names else internal("value")
        plain = tuple(replace(item, distinct=False, filter=None, argument=argument) for item in distinct)
        partial = add_rows(rows, replace(self.plan, items=plain))
        zero = pa.repeat(pa.scalar(0, pa.int64()), partial.num_rows)
        return self.plan.complete(partial.set_column(partial.schema.get_field_index(ROWS), ROWS, zero))

    def _extremes(self, change: pa.Table, after: pa.Table) -> pa.Table:
        """The extremes of every group touched, null for one without values."""
        groups = _first_rows(change.select(self.group_names)) if self.group_names else None
        table = after.append_column(internal("all"), pa.repeat(pa.scalar(0), after.num_rows))
        keys = self.group_names or [internal("all")]
        one, other = code_rows(
            [groups if groups is not None else pa.table({internal("all"): pa.array([0])}), table], [keys, keys]
        )
        count = len(one)
        position = np.full(int(max(one.max(), other.max() if len(other) else 0)) + 1, -1, dtype=np.int64)
        position[one] = np.arange(count)
        mine = pa.table(
            {"group": pa.array(position[other]), "value": table.column("value"), COUNT: table.column(WEIGHT)}
        )
        mine = mine.filter(pc.greater_equal(mine.column("group"), 0))
        found = _least_and_greatest(mine)
        at = np.full(count, -1, dtype=np.int64)
        at[found.column("group").to_numpy()] = np.arange(found.num_rows)
        taken = pa.array(at, mask=at < 0)
        columns: dict[str, Any] = {}
        if groups is not None:
            columns = {name: groups.column(here) for name, here in zip(self.plan.names, self.group_names, strict=True)}
        columns[ROWS] = pa.repeat(pa.scalar(0, pa.int64()), count)
        for item in self.items:
            if item.is_told_whole:
                columns[item.name] = (
                    _joined(mine, count, item)
                    if item.kind in ("joined", "listed")
                    else found.column("value_min" if item.kind == "least" else "value_max").take(taken)
                )
                columns[f"{item.name}_told"] = pa.repeat(pa.scalar(True), count)
        return self.plan.complete(pa.table(columns))


def _least_and_greatest(values: pa.Table) -> pa.Table:
    """Columns `group`, `value_min` and `value_max`."""
    ends = [("value", "min"), ("value", "max")]
    if not pa.types.is_floating(values.schema.field("value").type):
        return values.group_by("group", use_threads=False).aggregate(ends)
    values = values.append_column("nan", pc.is_nan(values.column("value")))
    found = values.group_by("group", use_threads=False).aggregate([*ends, ("nan", "any")])
    greatest = with_nan(found.column("value_max"), found.column("nan_any"))
    return found.set_column(found.schema.get_field_index("value_max"), "value_max", greatest)


def _joined(values: pa.Table, count: int, item: Accumulator) -> pa.Array:
    """The values of each group from 0 to count - 1 in ascending order, as a list or put together as a text; null for a
    group without any.
    """
    values = values.sort_by([("group", "ascending"), ("value", "ascending")])
    groups = values.column("group").to_numpy()
    copies = np.ones(len(groups), dtype=np.int64) if item.distinct else values.column(COUNT).to_numpy()
    each = values.column("value").take(pa.array(np.repeat(np.arange(len(groups)), copies))).combine_chunks()
    sizes = np.zeros(count, dtype=np.int64)
    np.add.at(sizes, groups, copies)
    ends = np.append(0, np.cumsum(sizes))
    if item.kind == "listed":
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), each, mask=pa.array(sizes == 0))
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), each)
    return pc.if_else(pa.array(sizes > 0), pc.binary_join(lists, item.separator), pa.scalar(None, pa.string()))


def multiset_of(item: Accumulator) -> tuple[str, str | None] | None:
    """The argument and filter of the multiset that feeds an accumulator; None for one that rows add to."""
    if item.argument is not None and (item.distinct or item.is_told_whole):
        return item.argument, item.filter
    return None


def _first_rows(table: pa.Table) -> pa.Table:
    """Each row once."""
    weighted = table.append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int64()), table.num_rows))
    return consolidate(weighted, weight=WEIGHT).drop_columns([WEIGHT])


def _renamed(table: pa.Table, names: Sequence[str]) -> pa.Table:
    return table.rename_columns(list(names))
