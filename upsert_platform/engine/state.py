"""The state of operators: rows of the query's own Delta table, a sequence of sorted files per state and bucket.

A batch appends one file per state and bucket it touches. The newest row of a key counts; a row with `GONE` says that
the key has left. Files are sorted by `PLACE`, so looking up costs a binary search per file and the columns asked for.
When files become many, the newest are merged in the commit that adds to them, like a log-structured merge tree.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from upsert_platform.changelog import rows
from upsert_platform.changelog.damage import naming
from upsert_platform.changelog.data_files import DataFile
from upsert_platform.changelog.parquet_files import CHECKSUMS, open_parquet
from upsert_platform.changelog.row_codes import code_rows, last_positions
from upsert_platform.core.internal_columns import internal
from upsert_platform.engine.cache import WORTHWHILE_ROWS, unpacked

PLACE: Final = internal("place")
"""BIGINT: `keys.place_rows` of the row's key."""
GONE: Final = internal("gone")
"""BOOLEAN: the key is no longer there."""
_OLDER_NAMES: Final = ("_place", "_gone")
"""Of the same columns, in files of earlier versions."""
KIND_STATE: Final = "~"
"""Row kind of state. It sorts after every kind of a change, so readers of changes pass over its files."""
MOST_FILES: Final = 8
"""So many files of one state and bucket are merged by the next batch that adds one."""
_ROW_GROUP: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class StateFile:
    """A committed file of state.

    Attributes:
        path: relative to the query's table.
        batch: that wrote it; the greater one of two files is the newer.
        size: in bytes.
    """

    path: str
    batch: int
    size: int


@dataclass(frozen=True, slots=True)
class StateSchema:
    """Columns of a state: what identifies a row, and what is kept of it.

    Attributes:
        name: of the state, unique in a query; prefix of its columns in the Delta table.
    """

    name: str
    keys: tuple[tuple[str, pa.DataType], ...]
    values: tuple[tuple[str, pa.DataType], ...]

    @property
    def columns(self) -> tuple[tuple[str, str, pa.DataType], ...]:
        """Name in the operator, name in the Delta table, type."""
        keys = [(name, f"{self.name}_k{at}", kind) for at, (name, kind) in enumerate(self.keys)]
        values = [(name, f"{self.name}_v{at}", kind) for at, (name, kind) in enumerate(self.values)]
        return (*keys, *values)

    @property
    def stored(self) -> pa.Schema:
        """The schema of a file of this state."""
        system = [
            pa.field(rows.BATCH, pa.int64()),
            pa.field(rows.KIND, pa.string()),
            pa.field(PLACE, pa.int64()),
            pa.field(GONE, pa.bool_()),
        ]
        return pa.schema([*system, *(pa.field(name, kind) for _, name, kind in self.columns)])

    @property
    def empty(self) -> pa.Table:
        """No rows, with the operator's names."""
        return pa.schema([pa.field(name, kind) for name, _, kind in self.columns]).empty_table()


class State:
    """One state of one bucket, during one batch.

    Args:
        folder: of the query's table in `system`, with the separator at its end.
        files: committed files, in any order.
        bucket: its number, for the names of files.
        batch: the batch being computed.
        closed: place of a key column with the ends of windows, and the moment (microseconds since 1970) up to which
            they are closed: rows of those leave when all files are merged.
    """

    def __init__(
        self,
        schema: StateSchema,
        *,
        system: Any,
        folder: str,
        files: Sequence[StateFile],
        bucket: int,
        batch: int,
        closed: tuple[int, int] | None = None,
    ) -> None:
        self.schema = schema
        self._system = system
        self._folder = folder
        self._files = sorted(files, key=lambda item: item.batch)
        self._bucket = bucket
        self._batch = batch
        self.added: list[DataFile] = []
        self.removed: list[str] = []
        self.met = self.let_go = 0
        self._closed = closed

    @property
    def batch(self) -> int:
        """The batch being computed."""
        return self._batch

    def rows_at(self, places: np.ndarray) -> pa.Table:
        """The rows at these places (and perhaps others whose place collides)."""
        return self._find(places, np.int64(0))

    def rows_of_groups(self, places: np.ndarray) -> pa.Table:
        """All rows whose place has the same upper half as one of these."""
        return self._find(places & np.int64(-1 << 32), np.int64((1 << 32) - 1))

    def _find(self, starts: np.ndarray, span: np.int64) -> pa.Table:
        if not len(starts) or not self._files:
            return self.schema.empty
        starts = np.sort(starts)
        starts = starts[np.append(True, starts[1:] != starts[:-1])]
        found: list[pa.Table] = []
        for file in self._files:
            path = f"{self._folder}{file.path}"
            with naming(path), open_parquet(self._system.open_input_file(path)) as opened:
                if opened.metadata.num_rows >= WORTHWHILE_ROWS:
                    part = _hits(unpacked(file.path, partial(self._decoded, opened)), starts, span)
                else:
                    part = _hits(self._decoded(opened), starts, span)
            if part is not None:
                found.append(part)
        return self._newest(found)

    def _decoded(self, opened: pq.ParquetFile) -> pa.Table:
        system = [PLACE, GONE] if PLACE in opened.schema_arrow.names else list(_OLDER_NAMES)
        names = self._stored_names()
        table = opened.read([*system, *names], use_threads=False).select([*system, *names])
        return table if system[0] == PLACE else table.rename_columns([PLACE, GONE, *names])

    def _newest(self, parts: Sequence[pa.Table], *, keep_gone: bool = False) -> pa.Table:
        """The last row per key of tables of stored columns, oldest first."""
        if not parts:
            return self.schema.empty
        names = [*([PLACE] if PLACE in parts[0].column_names else []), GONE, *(n for _, n, _ in self.schema.columns)]
        together = pa.concat_tables([part.select(names) for part in parts]).combine_chunks()
        if len(parts) > 1 and self.schema.keys:
            (codes,) = code_rows([together], [[f"{self.schema.name}_k{at}" for at in range(len(self.schema.keys))]])
            together = together.take(pa.array(last_positions(codes)))
        elif len(parts) > 1:
            together = together.slice(together.num_rows - 1)
        if keep_gone:
            return together
        there = together.filter(pa.array(~together.column(GONE).to_numpy(zero_copy_only=False)))
        return there.drop_columns([name for name in (PLACE, GONE) if name in names]).rename_columns(
            [name for name, _, _ in self.schema.columns]
        )

    def put(self, table: pa.Table, *, places: np.ndarray, gone: np.ndarray) -> None:
        """Replaces rows by their keys; once per batch at most, for it may merge files of earlier ones.

        Args:
            table: the operator's columns.
            places: of each row.
            gone: whether the key leaves.
        """
        if not table.num_rows:
            return
        assert not self.added, "a second file of one batch would bring back what the first one replaced"
        columns = [table.column(name).cast(kind) for name, _, kind in self.schema.columns]
        stored = pa.table([pa.array(places), pa.array(gone), *columns], names=[PLACE, GONE, *self._stored_names()])
        parts, last = self._to_merge(), False
        if parts:
            last = len(parts) == len(self._files)
            older = [self._read(file) for file in parts]
            stored = self._newest([*older, stored], keep_gone=True)
            if last:
                stored = self._without_closed(
                    stored.filter(pa.array(~stored.column(GONE).to_numpy(zero_copy_only=False)))
                )
            self.removed += [file.path for file in parts]
        if stored.num_rows:
            self._write(stored)

    def _without_closed(self, stored: pa.Table) -> pa.Table:
        if self._closed is None:
            return stored
        place, moment = self._closed
        ends = stored.column(f"{self.schema.name}_k{place}").cast(pa.int64()).to_numpy()
        self.let_go += int((ends <= moment).sum())
        return stored.filter(pa.array(ends > moment))

    def written_anew(self, *, folder: str, batch: int) -> list[DataFile]:
        """Writes all rows that are there into one file of another table; none when there are no rows."""
        parts = [self._read(file) for file in self._files]
        if not parts:
            return []
        stored = self._newest(parts, keep_gone=True)
        stored = stored.filter(pa.array(~stored.column(GONE).to_numpy(zero_copy_only=False)))
        self._folder, self._batch = folder, batch
        if stored.num_rows:
            self._write(stored)
        return self.added

    def _stored_names(self) -> list[str]:
        return [name for _, name, _ in self.schema.columns]

    def _to_merge(self) -> list[StateFile]:
        """The newest files, up to one that is much larger than those after it together; none while there are few."""
        if len(self._files) < MOST_FILES:
            return []
        chosen: list[StateFile] = []
        total = 0
        for file in reversed(self._files):
            if len(chosen) >= MOST_FILES // 2 and file.size > 2 * total:
                break
            chosen.insert(0, file)
            total += file.size
        return chosen

    def _read(self, file: StateFile) -> pa.Table:
        path = f"{self._folder}{file.path}"
        with naming(path), open_parquet(self._system.open_input_file(path)) as opened:
            return self._decoded(opened)

    def _write(self, table: pa.Table) -> None:
        places = table.column(PLACE).to_numpy()
        table = table.take(pa.array(np.argsort(places, kind="stable")))
        path = f"{self.schema.name}-{self._bucket:04}-{uuid.uuid4()}.snappy.parquet"
        system = [
            pa.repeat(pa.scalar(self._batch, pa.int64()), table.num_rows),
            pa.repeat(pa.scalar(KIND_STATE), table.num_rows),
        ]
        schema = self.schema.stored
        complete = pa.Table.from_arrays([*system, *table.columns], schema=schema)
        texts = [item.name for item in schema if pa.types.is_string(item.type)]
        place = f"{self._folder}{path}"
        with naming(place, writes=True), self._system.open_output_stream(place) as sink:
            pq.write_table(
                complete,
                sink,
                row_group_size=_ROW_GROUP,
                compression="snappy",
                use_dictionary=[rows.BATCH, *texts],
                write_statistics=[rows.BATCH, rows.KIND, PLACE],
                store_decimal_as_integer=True,
                **CHECKSUMS,
            )
            size = sink.tell()
        self.added.append(DataFile(path, size, int(time.time() * 1000), table.num_rows, KIND_STATE, KIND_STATE))


def _hits(table: pa.Table, starts: np.ndarray, span: np.int64) -> pa.Table | None:
    """The rows of a sorted file whose place is one of these, or up to `span` above it."""
    places = table.column(PLACE).to_numpy()
    first = np.searchsorted(places, starts, "left")
    counts = np.searchsorted(places, starts + span, "right") - first
    total = int(counts.sum())
    if not total:
        return None
    positions = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(total)
    return table.take(pa.array(positions))
