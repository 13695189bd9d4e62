"""Rows that a reader goes through: a fixed view of partitions, cut into ranges."""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from upsert_platform.local.maxcompute.schema import Column, Partition, Table
from upsert_platform.local.maxcompute.storage.snapshot import Rows
from upsert_platform.local.maxcompute.storage.store import Store

_KEPT, _ALWAYS_KEPT = 200, 8
_KEPT_BYTES = 256 << 20


@dataclass(frozen=True)
class View:
    """Partitions of a table at one moment; what is committed later does not show.

    Attributes:
        columns: data and partition columns, in the order in which rows are given.
        parts: a partition's constant values, and its rows.
    """

    columns: tuple[Column, ...]
    parts: tuple[tuple[dict[str, str], Rows], ...]

    @property
    def count(self) -> int:
        return sum(rows.count for _, rows in self.parts)

    @property
    def size(self) -> int:
        """Bytes in memory, roughly."""
        return sum(rows.size for _, rows in self.parts)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.type.arrow) for column in self.columns])

    def slices(self, start: int, count: int) -> Iterator[pa.Table]:
        """Rows from ``start`` on, ``count`` of them, one table per partition that has some."""
        for values, rows in self.parts:
            if count <= 0:
                return
            total = rows.count
            if start >= total:
                start -= total
                continue
            taken = min(count, total - start)
            yield self._projected(values, _live_slice(rows, start, taken))
            start, count = 0, count - taken

    def table(self, start: int = 0, count: int | None = None) -> pa.Table:
        """The rows as one table."""
        found = list(self.slices(start, self.count if count is None else count))
        return pa.concat_tables(found) if found else self.schema.empty_table()

    def _projected(self, values: dict[str, str], rows: pa.Table) -> pa.Table:
        arrays = []
        for column in self.columns:
            if column.name in values:
                constant = pa.scalar(values[column.name], pa.string()).cast(column.type.arrow)
                arrays.append(pa.chunked_array([pa.repeat(constant, rows.num_rows)]))
            else:
                arrays.append(rows.column(column.name))
        return pa.Table.from_arrays(arrays, schema=self.schema)


def _live_slice(rows: Rows, start: int, count: int) -> pa.Table:
    if rows.live is None:
        return rows.table.slice(start, count)
    places = np.flatnonzero(rows.live)[start : start + count]
    first, last = int(places[0]), int(places[-1])
    found = rows.table.slice(first, last - first + 1)
    if len(found) == len(places):  # none of them is dead: nothing is copied
        return found
    return found.filter(pa.array(rows.live[first : last + 1]))


def view(
    store: Store,
    table: Table,
    partitions: Sequence[Partition],
    columns: Sequence[Column],
    *,
    version: int | None = None,
) -> View:
    """The partitions as they are now, or at a version."""
    parts = tuple((partition.values, store.rows(table, partition, version)) for partition in partitions)
    return View(tuple(columns), parts)


@dataclass(frozen=True)
class Reader:
    """A read session: a view, and how it is cut."""

    session_id: str
    view: View
    splits: tuple[tuple[int, int], ...] = ()
    described: dict[str, object] = field(default_factory=dict)
    created: float = field(default_factory=time.time)


class Readers:
    """Read sessions, the latest of them; they end with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Reader] = OrderedDict()

    def add(self, view: View, *, splits: Sequence[tuple[int, int]] = (), described: dict[str, object]) -> Reader:
        """A new read session."""
        reader = Reader(uuid.uuid4().hex, view, tuple(splits), described)
        with self._lock:
            self._known[reader.session_id] = reader
            size = sum(known.view.size for known in self._known.values())
            while len(self._known) > _KEPT or (size > _KEPT_BYTES and len(self._known) > _ALWAYS_KEPT):
                size -= self._known.popitem(last=False)[1].view.size
        return reader

    def find(self, session_id: str) -> Reader | None:
        with self._lock:
            return self._known.get(session_id)
