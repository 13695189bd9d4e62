"""Several inserts into one table: of the branches that have a key, the one whose row changed last is shown.

Delta rule: the row shown before is taken back, the one shown after is added. State: (key, branch) to the branch's row
and the batch that brought it. A branch that loses its row shows the one that another still has. Within one batch the
later statement counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from upsert_platform.changelog.row_codes import code_rows, last_positions
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.plan import Merge
from upsert_platform.core.types import LogicalType, TypeName, arrow_type
from upsert_platform.engine.keys import consolidate, is_member, place_rows
from upsert_platform.engine.state import State, StateSchema
from upsert_platform.engine.steps import WEIGHT

BRANCH: Final = internal("branch")
"""INT: the number of a row's branch."""
BRANCH_TYPE: Final = LogicalType(TypeName.INT, nullable=False)
_SINCE: Final = internal("since")
"""BIGINT: the batch that brought a branch's row."""


@dataclass(frozen=True)
class LastChanged:
    """The rows of a merge. Input: signed rows of all branches, with `BRANCH`."""

    node: Merge
    state_name: str

    @property
    def names(self) -> list[str]:
        """The columns of a row."""
        return [field.name for field in self.node.fields]

    @property
    def states(self) -> tuple[StateSchema, ...]:
        """(key, branch) to its row."""
        kinds = {field.name: arrow_type(field.type) for field in self.node.fields}
        keys = (*((name, kinds[name]) for name in self.node.key), (BRANCH, pa.int32()))
        values = (*((name, kind) for name, kind in kinds.items() if name not in self.node.key), (_SINCE, pa.int64()))
        return (StateSchema(self.state_name, keys, values),)

    def prepare(self, table: pa.Table) -> pa.Table:
        """Rows whose changes do not cancel out."""
        return consolidate(table, weight=WEIGHT)

    combine = prepare

    def run(self, inputs: Sequence[pa.Table], states: Mapping[str, State], *, first: bool) -> pa.Table:
        """The change of the result."""
        del first
        state = states[self.state_name]
        own = [*self.node.key, BRANCH]
        change = consolidate(pa.concat_tables(inputs).select([*self.names, BRANCH, WEIGHT]), weight=WEIGHT)
        weights = change.column(WEIGHT).to_numpy()
        put = change.filter(pa.array(weights > 0))
        put = put.append_column(_SINCE, pa.repeat(pa.scalar(state.batch, pa.int64()), put.num_rows))
        put = _shaped(put, state.schema)
        self._check(put, weights)
        before = _shaped(state.rows_of_groups(place_rows(change, self.node.key, [BRANCH])), state.schema)
        touched, known, new = code_rows([change, before, put], [own, own, own])
        untouched = before.filter(pa.array(~is_member(known, touched)))
        left = change.filter(pa.array((weights < 0) & ~is_member(touched, new)))
        gone = _shaped(left.append_column(_SINCE, pa.nulls(left.num_rows, pa.int64())), state.schema)
        after = pa.concat_tables([untouched, put])
        moved = pa.concat_tables([put, gone])
        state.put(
            moved,
            places=place_rows(moved, self.node.key, [BRANCH]),
            gone=np.arange(moved.num_rows) >= put.num_rows,
        )
        old, new_rows = self._shown(before), self._shown(after)
        state.met += self._shared(after, put)
        parts = [_weighted(old.select(self.names), -1), _weighted(new_rows.select(self.names), 1)]
        return consolidate(pa.concat_tables(parts), weight=WEIGHT)

    def _check(self, put: pa.Table, weights: np.ndarray) -> None:
        if not put.num_rows:
            return
        (codes,) = code_rows([put], [[*self.node.key, BRANCH]])
        if np.abs(weights).max() > 1 or len(np.unique(codes)) < len(codes):
            raise ChangelogError(
                f"one INSERT INTO gives several rows of one key ({', '.join(self.node.key)}), which it declares unique"
            )

    def _shown(self, rows: pa.Table) -> pa.Table:
        """The row of each key that counts."""
        if not rows.num_rows:
            return rows
        (codes,) = code_rows([rows], [self.node.key])
        order = np.lexsort((rows.column(BRANCH).to_numpy(), rows.column(_SINCE).to_numpy()))
        return rows.take(pa.array(last_positions(codes, order)))

    def _shared(self, after: pa.Table, put: pa.Table) -> int:
        """Keys that this batch gave and several branches have."""
        if not put.num_rows:
            return 0
        codes, given = code_rows([after, put], [self.node.key, self.node.key])
        counts = np.bincount(codes, minlength=int(given.max()) + 1)
        return int((counts[np.unique(given)] > 1).sum())


def _shaped(table: pa.Table, schema: StateSchema) -> pa.Table:
    columns = [table.column(name).cast(kind) for name, _, kind in schema.columns]
    return pa.table(columns, names=[name for name, _, _ in schema.columns])


def _weighted(table: pa.Table, weight: int) -> pa.Table:
    values: Any = pa.repeat(pa.scalar(weight, pa.int64()), table.num_rows)
    return table.append_column(WEIGHT, values)
