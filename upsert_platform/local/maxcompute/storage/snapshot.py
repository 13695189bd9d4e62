"""The content of a partition at a version: merge on read.

A row of a table with a primary key is live when it is the last one of its key, and an upsert. Which rows are live is
worked out once per list of segments and kept; a new segment only costs a join of its keys with the older ones.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from upsert_platform.local.maxcompute.schema import DELETE, OPERATION, Column, Table
from upsert_platform.local.maxcompute.storage.compute import Compute, quoted
from upsert_platform.local.maxcompute.storage.segments import Segment, SegmentFiles

_REMEMBERED_BYTES = 64 << 20
"""Bytes of masks, the latest excepted: one of a large table has as many as the table has rows."""
_CLOSE = 4
"""Numbers lie close where there are fewer times as many between the least and the greatest."""


@dataclass(frozen=True)
class Rows:
    """Rows of one partition.

    Attributes:
        table: the data columns of all its segments, dead rows included.
        live: which rows count; None when all do.
    """

    table: pa.Table
    live: np.ndarray | None

    @property
    def count(self) -> int:
        return self.table.num_rows if self.live is None else int(self.live.sum())

    @cached_property
    def size(self) -> int:
        """Bytes in memory, roughly; of a wide table each of thousands of arrays is asked."""
        return int(self.table.nbytes) + (0 if self.live is None else self.live.nbytes)

    def live_table(self) -> pa.Table:
        return self.table if self.live is None else self.table.filter(pa.array(self.live))


def last_of_each(values: np.ndarray) -> np.ndarray:
    """The places of the last occurrences of numbers: faster than grouping, most of all of numbers that lie close."""
    least = int(values.min()) if len(values) else 0
    width = int(values.max()) - least + 1 if len(values) else 0
    if width <= _CLOSE * len(values):
        last = np.full(width, -1)
        last[values.astype(np.int64) - least] = np.arange(len(values))  # of several the last one stays
        return last[last >= 0]
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    return order[np.append(ordered[1:] != ordered[:-1], True)]


class Snapshots:
    """Reads partitions, and remembers which of their rows are live."""

    def __init__(self, files: SegmentFiles, compute: Compute) -> None:
        self._files = files
        self._compute = compute
        self._lock = threading.Lock()
        self._masks: OrderedDict[tuple[int, ...], np.ndarray] = OrderedDict()
        self._bytes = 0

    def rows(self, table: Table, segments: Sequence[Segment]) -> Rows:
        """The rows of these segments, oldest segment first."""
        parts = [self._files.aligned(segment.file, table.columns, operations=False) for segment in segments]
        joined = pa.concat_tables(parts) if parts else table.arrow_schema.empty_table()
        if not table.primary_key or not segments or (len(segments) == 1 and segments[0].compacted):
            return Rows(joined, None)
        return Rows(joined, self.live(table, segments))

    def live(self, table: Table, segments: Sequence[Segment]) -> np.ndarray:
        """One boolean per row of these segments."""
        identity = tuple(segment.segment_id for segment in segments)
        with self._lock:
            known = next(
                (length for length in range(len(identity), 0, -1) if identity[:length] in self._masks),
                0,
            )
            mask = self._masks[identity[:known]] if known else np.zeros(0, dtype=bool)
            if known == len(identity):
                self._masks.move_to_end(identity)
        if not known and segments[0].compacted:
            known, mask = 1, np.ones(segments[0].file.rows, dtype=bool)
        if known == len(segments):
            return mask
        mask = self._extend(table, segments, known, mask)
        self._remember(identity, mask)
        return mask

    def _remember(self, identity: tuple[int, ...], mask: np.ndarray) -> None:
        with self._lock:
            before = self._masks.pop(identity, None)
            self._masks[identity] = mask
            self._bytes += mask.nbytes - (0 if before is None else before.nbytes)
            while self._bytes > _REMEMBERED_BYTES and len(self._masks) > 1:
                self._bytes -= self._masks.popitem(last=False)[1].nbytes

    def _extend(self, table: Table, segments: Sequence[Segment], known: int, mask: np.ndarray) -> np.ndarray:
        keys = [table.column(name) for name in table.primary_key]
        newer = pa.concat_tables([self._keys(segment, keys, operations=True) for segment in segments[known:]])
        added = self._last(newer, keys) & (newer.column(OPERATION).to_numpy() != DELETE)
        if mask.any():
            older = pa.concat_tables([self._keys(segment, keys, operations=False) for segment in segments[:known]])
            mask = mask & ~self._replaced(older, newer, keys)
        return np.concatenate([mask, added])

    def _last(self, rows: pa.Table, keys: Sequence[Column]) -> np.ndarray:
        """Return a mask of the rows that are the last of their key."""
        if _is_number(keys):
            places = last_of_each(rows.column(0).to_numpy())
        else:
            places = self._places(f"SELECT max(__row) AS r FROM newer GROUP BY {_names(keys)}", newer=rows)
        return _mask(rows.num_rows, places)

    def _replaced(self, older: pa.Table, newer: pa.Table, keys: Sequence[Column]) -> np.ndarray:
        """Return a mask of the older rows whose key a newer row has."""
        if _is_number(keys):
            return np.isin(older.column(0).to_numpy(), newer.column(0).to_numpy())
        statement = f"SELECT __row AS r FROM older SEMI JOIN newer USING ({_names(keys)})"
        return _mask(older.num_rows, self._places(statement, older=older, newer=newer))

    def _places(self, statement: str, **tables: pa.Table) -> np.ndarray:
        with self._compute.cursor() as cursor:
            for name, table in tables.items():
                cursor.register(name, table.append_column("__row", pa.array(np.arange(table.num_rows))))
            return np.asarray(cursor.execute(statement).fetchnumpy()["r"], dtype=np.int64)

    def _keys(self, segment: Segment, keys: Sequence[Column], *, operations: bool) -> pa.Table:
        return self._files.aligned(segment.file, keys, operations=operations)


def _is_number(keys: Sequence[Column]) -> bool:
    """Return whether there is one key column, of integers: these need no join."""
    return len(keys) == 1 and pa.types.is_integer(keys[0].type.arrow)


def _names(keys: Sequence[Column]) -> str:
    return ", ".join(quoted(key.name) for key in keys)


def _mask(rows: int, places: np.ndarray) -> np.ndarray:
    found = np.zeros(rows, dtype=bool)
    found[places] = True
    return found
