"""Session windows: which session each row of a partition belongs to.

A row that arrives may begin a session, extend one, or join two; a row that leaves may divide one. So the rows of a
partition that a batch touches take their sessions anew (`Partitions`), and a late row is like any other. Two rows whose
times differ by the gap exactly belong together, as in Flink.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.core.plan import Field, Session
from upsert_platform.core.types import arrow_type
from upsert_platform.engine.partitions import Partitions
from upsert_platform.engine.steps import WEIGHT

_LAST_MILLISECOND = 1_000


@dataclass(frozen=True)
class Sessions(Partitions):
    """Rows with their sessions. Input: signed rows."""

    node: Session
    state_name: str

    @property
    def partition(self) -> tuple[str, ...]:
        return self.node.partition

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.node.input.fields

    @property
    def shown(self) -> tuple[Field, ...]:
        return self.node.fields

    def prepare(self, table: pa.Table) -> pa.Table:
        """Rows that have a time, and whose changes do not cancel out."""
        return super().prepare(table.filter(pc.is_valid(table.column(self.node.time))))

    combine = prepare

    def computed(self, table: pa.Table) -> pa.Table:
        """Rows with the edges of their sessions."""
        times = table.column(self.node.time).cast(pa.int64()).to_numpy()
        codes = code_rows([table], [self.partition])[0] if self.partition else np.zeros(len(times), dtype=np.int64)
        order = np.lexsort((times, codes))
        times, codes = times[order], codes[order]
        begins = np.append(True, (codes[1:] != codes[:-1]) | (np.diff(times) > self.node.gap))[: len(times)]
        number = np.cumsum(begins) - 1
        last = np.flatnonzero(np.append(begins[1:], True)[: len(times)])
        starts, ends = times[begins][number], times[last][number] + self.node.gap
        rows = table.take(pa.array(order))
        weights = rows.column(WEIGHT)
        rows = rows.drop_columns([WEIGHT])
        moments = (starts, ends, ends - _LAST_MILLISECOND)
        for field, moment in zip(self.node.fields[-3:], moments, strict=True):
            rows = rows.append_column(field.name, pa.array(moment).cast(arrow_type(field.type)))
        return rows.append_column(WEIGHT, weights)
