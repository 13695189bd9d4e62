"""Lookup joins: rows of another system's table, found by their key when rows arrive.

Delta rule: a row that is added is shown with what the table holds now; a row that is taken back, with what it was shown
with, whatever became of the table since. State: row to its count and what was found for it, all of it where a row may
find several; none over rows that are only added. Rows that nothing tells apart share what was found for the first of
them, until the last of them is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.plan import Lookup, LookupRows
from upsert_platform.core.types import arrow_type
from upsert_platform.engine.aggregate import COUNT
from upsert_platform.engine.keys import consolidate, first_rows, is_member, match_rows, place_rows
from upsert_platform.engine.state import State, StateSchema
from upsert_platform.engine.steps import WEIGHT

FOUND: Final = internal("found")
"""BOOLEAN: the table had a row of the key."""
NUMBER: Final = internal("number")
"""INT: which of the rows that were found for a row it is, from 0; only where there may be several."""
Find = Callable[[pa.Table], Iterator[pa.RecordBatch]]
"""Rows of keys, and perhaps of others, in the columns of a table as it is declared."""
_BUFFERED_ROWS: Final = 1 << 16
_WEIGHTS: Final = pa.field(WEIGHT, pa.int64())


@dataclass(frozen=True)
class Found:
    """Rows with what is found for them. Input: signed rows."""

    node: Lookup
    state_name: str

    @property
    def names(self) -> list[str]:
        """The columns of a row that arrives."""
        return [field.name for field in self.node.input.fields]

    @property
    def on(self) -> list[str]:
        """Those of them that the table's key is equal to."""
        return [name for name, _ in self.node.on]

    @property
    def several(self) -> bool:
        """Return whether a row may find more than one."""
        return isinstance(self.node, LookupRows)

    @property
    def shown(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The columns that come from the table."""
        return tuple((name, arrow_type(item.type)) for name, item in self.node.columns)

    @property
    def states(self) -> tuple[StateSchema, ...]:
        """Row to its count, and what was found for it."""
        if self.node.input.appends:
            return ()
        keys = tuple((field.name, arrow_type(field.type)) for field in self.node.input.fields)
        if self.several:
            keys = (*keys, (NUMBER, pa.int32()))
        return (StateSchema(self.state_name, keys, ((COUNT, pa.int64()), (FOUND, pa.bool_()), *self.shown)),)

    def prepare(self, table: pa.Table) -> pa.Table:
        """Rows whose changes do not cancel out."""
        return table if self.node.input.appends else consolidate(table, weight=WEIGHT)

    combine = prepare

    def run_found(self, inputs: Sequence[pa.Table], states: Mapping[str, State], find: Find) -> pa.Table:
        """The change of the result."""
        kept = pa.schema([*(pa.field(item.name, arrow_type(item.type)) for item in self.node.input.fields), _WEIGHTS])
        change = self.prepare(pa.concat_tables(inputs).select(kept.names).cast(kept))
        if self.node.input.appends:
            return self._result(self._with_found(change, find)[0])
        state = states[self.state_name]
        kinds = [(name, kind) for name, _, kind in state.schema.columns]
        weights = change.column(WEIGHT).to_numpy()
        known = state.rows_at(place_rows(change, self.on, self.names))
        here, there = code_rows([change, known], [self.names, self.names])
        size = int(max(here.max(initial=-1), there.max(initial=-1))) + 1
        one = first_rows(there, size)[here]
        met = is_member(here, there)
        was = np.zeros(change.num_rows, dtype=np.int64)
        was[met] = known.column(COUNT).to_numpy()[one[met]]
        now = was + weights
        if len(now) and now.min() < 0 and state.forgets:
            state.forgotten -= int(now[now < 0].sum())
            there_before = now >= 0
            change, here, met = change.filter(pa.array(there_before)), here[there_before], met[there_before]
            now, weights = now[there_before], weights[there_before]
        if len(now) and now.min() < 0:
            raise ChangelogError(
                "a row of a lookup join was taken back more often than it was added; rebuild the query"
            )
        new, of_new = self._with_found(change.filter(pa.array(~met)), find)
        lefts, rights = match_rows(here[met], there)
        old = known.take(pa.array(rights)).append_column(WEIGHT, pa.array(weights[met][lefts]))
        names = [name for name, _ in kinds if name != COUNT]
        order = pa.schema([*(pa.field(name, kind) for name, kind in kinds if name != COUNT), _WEIGHTS])
        together = pa.concat_tables([part.select(order.names).cast(order) for part in (new, old)])
        counts = np.concatenate([now[~met][of_new], now[met][lefts]])
        rows = together.select(names).append_column(COUNT, pa.array(counts))
        state.put(rows, places=place_rows(rows, self.on, self.names), gone=counts == 0)
        return self._result(together)

    def _result(self, table: pa.Table) -> pa.Table:
        if not self.node.padded:
            table = table.filter(table.column(FOUND))
        return table.select([*self.names, *(name for name, _ in self.shown), WEIGHT])

    def _with_found(self, rows: pa.Table, find: Find) -> tuple[pa.Table, np.ndarray]:
        """Rows with the columns of the table, and whether it has their key: once, or once per row that was found.

        Returns:
            The rows, and the position among those given of each.
        """
        found = self._ask(rows, find)
        names = [internal(f"key{number}") for number in range(len(self.on))]
        whole, given = code_rows([rows, found], [self.on, names])
        if not self.several and len(np.unique(given)) < len(given):
            key = ", ".join(key for _, key in self.node.on)
            raise ChangelogError(
                f"table '{self.node.table}' has several rows of one key ({key}), by which a lookup join finds them:"
                " remove all but one, or declare a key that tells them apart"
            )
        lefts, rights = match_rows(whole, given)
        without = np.flatnonzero(~is_member(whole, given))
        at = np.concatenate([lefts, without])
        order = np.argsort(at, kind="stable")
        at, taken = at[order], np.concatenate([rights, np.full(len(without), -1)])[order]
        if self.several:
            rows = rows.take(pa.array(at))
            starts = np.flatnonzero(np.append(True, at[1:] != at[:-1])[: len(at)])
            numbers = np.arange(len(at)) - np.repeat(starts, np.diff(np.append(starts, len(at))))
            rows = rows.append_column(NUMBER, pa.array(numbers, pa.int32()))
        places = pa.array(taken, pa.int64(), mask=taken < 0)
        for name, kind in self.shown:
            values: Any = found.column(name).combine_chunks() if found.num_rows else pa.nulls(0, kind)
            column = values.take(places) if found.num_rows else pa.nulls(len(taken), kind)
            rows = rows.append_column(name, column)
        return rows.append_column(FOUND, pa.array(taken >= 0)), at

    def _ask(self, rows: pa.Table, find: Find) -> pa.Table:
        """The rows of the table that have a key of one of these rows, with the key as internal columns.

        Each key is asked for once; a null finds nothing.
        """
        keys = rows.select(self.on)
        for name in self.on:
            keys = keys.filter(pc.is_valid(keys.column(name)))
        one = keys.append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int64()), keys.num_rows))
        keys = consolidate(one, weight=WEIGHT).drop_columns([WEIGHT])
        schema = pa.schema(
            [
                *(pa.field(internal(f"key{at}"), keys.schema.field(name).type) for at, name in enumerate(self.on)),
                *(pa.field(name, kind) for name, kind in self.shown),
            ]
        )
        found: list[pa.Table] = [schema.empty_table()]
        if not keys.num_rows:
            return found[0]
        asked = keys.rename_columns([key for _, key in self.node.on])
        own = [*(key for _, key in self.node.on), *(item.name for _, item in self.node.columns)]
        waiting: list[pa.RecordBatch] = []
        for batch in find(asked):
            waiting.append(batch)
            if sum(item.num_rows for item in waiting) >= _BUFFERED_ROWS:
                found.append(_members(waiting, own, schema, keys))
                waiting = []
        if waiting:
            found.append(_members(waiting, own, schema, keys))
        return pa.concat_tables(found)


def _members(batches: Sequence[pa.RecordBatch], own: Sequence[str], schema: pa.Schema, keys: pa.Table) -> pa.Table:
    """Those rows whose key is among the keys."""
    table = pa.Table.from_batches(list(batches))
    columns = [table.column(name).cast(field.type) for name, field in zip(own, schema, strict=True)]
    table = pa.table(columns, schema=schema)
    names = schema.names[: keys.num_columns]
    mine, asked = code_rows([table, keys], [names, keys.column_names])
    return table.filter(pa.array(is_member(mine, asked)))
