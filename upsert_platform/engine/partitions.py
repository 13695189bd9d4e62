"""Operators that compute the rows of a partition anew when one of them changes.

Delta rule: what the touched partitions gave before is taken back, what they give now is added; what is the same cancels
out. State: every row with its count. A batch reads the partitions that it touches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.plan import Field
from upsert_platform.core.types import arrow_type
from upsert_platform.engine.aggregate import COUNT
from upsert_platform.engine.keys import consolidate, is_member, place_rows, rows_in_use, settle
from upsert_platform.engine.state import State, StateSchema
from upsert_platform.engine.steps import WEIGHT


def rows_state(
    name: str,
    fields: Sequence[Field],
    *,
    more: Sequence[tuple[str, pa.DataType]] = (),
    together: tuple[str, ...] | None = None,
) -> StateSchema:
    """The state of rows with their counts.

    Args:
        more: columns beside those of `fields`, with their types.
        together: as in `StateSchema`.
    """
    keys = tuple((field.name, arrow_type(field.type)) for field in fields)
    return StateSchema(name, (*keys, *more), ((COUNT, pa.int64()),), together)


def move_rows(
    state: State, change: pa.Table, places: np.ndarray, on: Sequence[str]
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Applies signed rows to a state of rows with their counts.

    Args:
        places: of the partitions that are wanted.
        on: columns of a partition.

    Returns:
        The rows of these partitions before and after, with their counts as `WEIGHT`, and the change from one to the
        other: rows that are taken back after they were let go of are not in it.

    Raises:
        ChangelogError: a row is taken back that is not there.
    """
    names = [name for name, _, _ in state.schema.columns][:-1]
    before = state.rows_of_groups(places).rename_columns([*names, WEIGHT])
    change = change.select(before.column_names).cast(before.schema)
    after = (
        consolidate(pa.concat_tables([before, change]), weight=WEIGHT) if before.num_rows or state.forgets else change
    )
    if after.num_rows and after.column(WEIGHT).to_numpy().min() < 0:
        after = without_forgotten(after, state)
        in_use = rows_in_use(change, weight=WEIGHT)
        change = consolidate(pa.concat_tables([after, negated(before)]), weight=WEIGHT)
        change = pa.concat_tables([change, in_use])
    if state.forgets:
        change = change.filter(pa.array(is_known(change, names, [before, after])))
    now = change.column(WEIGHT).to_numpy()
    if before.num_rows or state.forgets:
        here, there = code_rows([change, after], [names, names])
        counts = np.zeros(int(max(here.max(initial=-1), there.max(initial=-1))) + 1, dtype=np.int64)
        counts[there] = after.column(WEIGHT).to_numpy()
        now = counts[here]
    rows = change.set_column(len(names), COUNT, pa.array(now))
    state.put(rows, places=place_rows(rows, on, names), gone=now == 0)
    return before, after, change


def without_forgotten(counted: pa.Table, state: State) -> pa.Table:
    """Rows with their counts as `WEIGHT`, without those that are taken back although they were let go of.

    Raises:
        ChangelogError: the state lets go of nothing, so these rows were never there.
    """
    if not state.forgets:
        raise ChangelogError("a row of the query was taken back more often than it was ever added; rebuild the query")
    counts = counted.column(WEIGHT).to_numpy()
    state.forgotten -= int(counts[counts < 0].sum())
    return counted.filter(pa.array(counts > 0))


def is_known(rows: pa.Table, names: Sequence[str], tables: Sequence[pa.Table]) -> np.ndarray:
    """Return a mask of the rows that one of the tables has, by these columns."""
    known = pa.concat_tables([table.select(names) for table in tables])
    if not rows.num_rows or not names:
        return np.ones(rows.num_rows, dtype=bool)
    one, other = code_rows([rows, known], [names, names])
    return is_member(one, other)


def negated(table: pa.Table) -> pa.Table:
    """Signed rows with the opposite sign."""
    return table.set_column(table.schema.get_field_index(WEIGHT), WEIGHT, pc.negate(table.column(WEIGHT)))


class Partitions(ABC):
    """An operator whose result for a partition follows from the rows of that partition."""

    state_name: str

    @property
    @abstractmethod
    def partition(self) -> tuple[str, ...]:
        """Columns of the input that tell partitions apart."""

    @property
    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """Columns of the input."""

    @property
    @abstractmethod
    def shown(self) -> tuple[Field, ...]:
        """Columns of the result."""

    @abstractmethod
    def computed(self, table: pa.Table) -> pa.Table:
        """The result for whole partitions, with `WEIGHT`."""

    @property
    def states(self) -> tuple[StateSchema, ...]:
        """Row to its count."""
        return (rows_state(self.state_name, self.fields, together=self.partition),)

    def prepare(self, table: pa.Table) -> pa.Table:
        """Rows whose changes do not cancel out."""
        return settle(table, weight=WEIGHT)

    combine = prepare

    def arrived(self, change: pa.Table, state: State) -> pa.Table:
        """The change as the state keeps it."""
        del state
        return change

    def run(self, inputs: Sequence[pa.Table], states: Mapping[str, State], *, first: bool) -> pa.Table:
        """The change of the result."""
        del first
        state = states[self.state_name]
        change = self.arrived(
            settle(pa.concat_tables(inputs).select([*(item.name for item in self.fields), WEIGHT]), weight=WEIGHT),
            state,
        )
        before, after, _ = move_rows(state, change, place_rows(change, self.partition), self.partition)
        names = [*(item.name for item in self.shown), WEIGHT]
        parts = [negated(self.computed(before)).select(names), self.computed(after).select(names)]
        return consolidate(pa.concat_tables(parts), weight=WEIGHT)
