"""OVER: each row with functions of the rows before it in its partition.

The rows of the partitions that a batch touches take their values anew (`Partitions`): a row that comes late, or leaves,
changes those behind it. Rows that are only added and that the order leaves equal are in the order of their arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.core.plan import Field, Over, OverCall
from upsert_platform.core.types import arrow_type
from upsert_platform.engine import frames
from upsert_platform.engine.frames import Frames
from upsert_platform.engine.partitions import Partitions, rows_state
from upsert_platform.engine.row_order import ARRIVED, Arrival, rows_in_order
from upsert_platform.engine.state import State, StateSchema
from upsert_platform.engine.steps import WEIGHT


@dataclass(frozen=True)
class Overs(Partitions):
    """Rows with the functions of their frames. Input: signed rows."""

    node: Over
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

    @property
    def states(self) -> tuple[StateSchema, ...]:
        """Row, and the batch that brought it where rows are only added, to its count."""
        more = ((ARRIVED, pa.int64()),) if self._dates else ()
        return (rows_state(self.state_name, self.fields, more=more, together=self.partition),)

    @property
    def _dates(self) -> bool:
        """Return whether the batch that brings a row is kept with it, which an OVER below would tell."""
        return bool(self.node.records) and not self.node.is_given_arrival

    def arrived(self, change: pa.Table, state: State) -> pa.Table:
        if not self._dates:
            return change
        return change.append_column(ARRIVED, pa.repeat(pa.scalar(state.batch, pa.int64()), change.num_rows))

    def computed(self, table: pa.Table) -> pa.Table:
        """Each row, once per copy, with its values."""
        copies = np.repeat(np.arange(table.num_rows), table.column(WEIGHT).to_numpy())
        table = table.take(pa.array(copies)).drop_columns([WEIGHT])
        node, by = self.node, self.partition
        codes = code_rows([table], [by])[0] if by else np.zeros(table.num_rows, dtype=np.int64)
        arrival = Arrival(node.records, node.at, node.latest) if node.records else None
        names = [item.name for item in self.fields]
        order = rows_in_order(table, by, codes, node.order, names, arrival)
        table = table.take(pa.array(order))
        found = self._frames(table, codes[order])
        for call in node.calls:
            table = table.append_column(call.name, _value(call, table, found))
        return table.append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int64()), table.num_rows))

    def _frames(self, table: pa.Table, codes: np.ndarray) -> Frames:
        node, size = self.node, table.num_rows
        places = np.arange(size)
        begins = np.append(True, codes[1:] != codes[:-1])[:size]
        first, end = _runs(begins)
        # Rows by their arrival follow one another, whatever their columns are.
        same = [*self.partition, *(item.column for item in node.order)]
        differs = np.ones(size, dtype=bool)
        if size and same and not self.node.by_arrival:
            (equal,) = code_rows([table], [same])
            differs = np.append(True, equal[1:] != equal[:-1])
        peers, behind = _runs(differs)
        if node.rows:
            reach = places if node.preceding is None else np.minimum(places, node.preceding)
            return Frames(first, end, peers, np.maximum(first, places - reach), places + 1)
        start = first if node.preceding is None else self._reached(table, codes, first, peers)
        return Frames(first, end, peers, start, behind)

    def _reached(self, table: pa.Table, codes: np.ndarray, first: np.ndarray, peers: np.ndarray) -> np.ndarray:
        """The first row of each partition that is at most so long before a row; of a row without a time its equals."""
        assert self.node.preceding is not None
        (by,) = self.node.order
        column = table.column(by.column)
        nulls = column.is_null().to_numpy()
        times = column.cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
        wanted = np.where(nulls, times, times - self.node.preceding)
        runs = np.cumsum(np.append(True, codes[1:] != codes[:-1])[: len(codes)])
        size = len(times)
        order = np.lexsort(
            (
                np.concatenate([np.ones(size, dtype=np.int8), np.zeros(size, dtype=np.int8)]),
                np.concatenate([times, wanted]),
                np.concatenate([runs, runs]),
            )
        )
        rows_before = np.cumsum(order < size)
        found = np.zeros(size, dtype=np.int64)
        asked = order >= size
        found[order[asked] - size] = rows_before[asked]
        # Rows without a time, counted before all others of their partition, are in no other row's frame.
        untimed = _per_run(nulls, first)
        start = np.maximum(found, first + untimed) if by.nulls_first else np.maximum(found - untimed, first)
        return np.where(nulls, peers, start)


def _per_run(flags: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the number of set flags in the run of each row; `first` is the start of the run."""
    if not len(flags):
        return first
    totals = np.bincount(first, weights=flags, minlength=len(flags)).astype(np.int64)
    return totals[first]


def _runs(begins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first place of each row's run, and the place behind its last."""
    size = len(begins)
    starts = np.flatnonzero(begins)
    number = np.cumsum(begins) - 1
    ends = np.append(starts[1:], size)
    return starts[number], ends[number] if size else starts


def _value(call: OverCall, table: pa.Table, found: Frames) -> Any:
    kind = arrow_type(call.type)
    values = table.column(call.argument).combine_chunks() if call.argument is not None else None
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    match call.function:
        case "row_number":
            return pa.array(frames.row_numbers(found)).cast(kind)
        case "rank":
            return pa.array(frames.ranks(found)).cast(kind)
        case "dense_rank":
            return pa.array(frames.dense_ranks(found)).cast(kind)
        case "count" if not call.distinct:
            return pa.array(frames.counts(values, found)).cast(kind)
    assert values is not None
    if call.distinct:
        (codes,) = code_rows([table], [[str(call.argument)]])
        return frames.distinct_values(values, call.type, found, codes, function=call.function).cast(kind)
    match call.function:
        case "lag" | "lead":
            default = table.column(call.default).combine_chunks().cast(values.type) if call.default else None
            away = call.offset if call.function == "lag" else -call.offset
            return frames.neighbours(values, found, away, default).cast(kind)
        case "min" | "max":
            return frames.extremes(values, found, greatest=call.function == "max").cast(kind)
        case "first_value" | "last_value":
            return frames.first_values(values, found, last=call.function == "last_value").cast(kind)
    return frames.sums(values, call.type, found, mean=call.function == "avg").cast(kind)
