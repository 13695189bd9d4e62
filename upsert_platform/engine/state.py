"""The state of operators: rows of the query's own Delta table, a sequence of sorted files per state and bucket.

A batch appends one file per state and bucket it touches. The newest row of a key counts; a row with `GONE` says that
the key has left. Files are sorted by `PLACE`, so looking up costs a binary search per file and the columns asked for.
When files become many, the newest are merged in the commit that adds to them, like a log-structured merge tree.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
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
TOUCHED: Final = internal("touched")
"""BIGINT: when the row was last in use, in milliseconds since 1970; only in states that are let go of."""
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
        written: when, in milliseconds since 1970: no row in it was in use later.
        rows: how many.
    """

    path: str
    batch: int
    size: int
    written: int = 0
    rows: int = 0


NEVER: Final = 1 << 62
"""An `Idle.ttl` of what stays, in a query that lets go of other state."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Until when rows of a state stay that nothing changes.

    Attributes:
        ttl: how long, in milliseconds.
        now: when the batch is computed, in milliseconds since 1970.
    """

    ttl: int
    now: int

    def is_over(self, touched: int) -> bool:
        """Return whether what was last in use then is let go of."""
        return touched <= self.now - self.ttl


@dataclass(frozen=True, slots=True)
class StateSchema:
    """Columns of a state: what identifies a row, and what is kept of it.

    Attributes:
        name: of the state, unique in a query; prefix of its columns in the Delta table.
        together: columns of the key: rows that are equal in them are let go of together, when all of them are idle;
            None for rows each of which stands for itself.
    """

    name: str
    keys: tuple[tuple[str, pa.DataType], ...]
    values: tuple[tuple[str, pa.DataType], ...]
    together: tuple[str, ...] | None = None

    @property
    def columns(self) -> tuple[tuple[str, str, pa.DataType], ...]:
        """Name in the operator, name in the Delta table, type."""
        keys = [(name, f"{self.name}_k{at}", kind) for at, (name, kind) in enumerate(self.keys)]
        values = [(name, f"{self.name}_v{at}", kind) for at, (name, kind) in enumerate(self.values)]
        return (*keys, *values)

    @property
    def stored(self) -> pa.Schema:
        """The schema of a file of this state."""
        return self.stored_with(touched=False)

    def stored_with(self, *, touched: bool) -> pa.Schema:
        """The schema of a file, with `TOUCHED` if rows are let go of."""
        system = [
            pa.field(rows.BATCH, pa.int64()),
            pa.field(rows.KIND, pa.string()),
            pa.field(PLACE, pa.int64()),
            pa.field(GONE, pa.bool_()),
            *([pa.field(TOUCHED, pa.int64())] if touched else []),
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
        over: of all rows, which of them are closed otherwise; they leave as well.
        idle: when rows are let go of that nothing changes; None for never.

    Attributes:
        let_go: rows that left it since they were idle, or since their window is closed.
        forgotten: rows that were taken back after they had been let go of.
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
        over: Callable[[pa.Table], np.ndarray] | None = None,
        idle: Idle | None = None,
    ) -> None:
        self.schema = schema
        self._system = system
        self._folder = folder
        self._files = sorted(files, key=lambda item: item.batch)
        self._bucket = bucket
        self._batch = batch
        self.added: list[DataFile] = []
        self.removed: list[str] = []
        self.met = self.let_go = self.forgotten = 0
        self._closed = closed
        self._over = over
        self._idle = idle
        self._dead: list[pa.Table] = []

    @property
    def forgets(self) -> bool:
        """Return whether the query lets go of rows, in whatever state: one that is taken back may be away."""
        return self._idle is not None

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

    def all_rows(self) -> pa.Table:
        """Every row that is there."""
        return self._newest([self._read(file) for file in self._files])

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
                    name = f"{file.path}-touched" if self.forgets else file.path
                    part = _hits(unpacked(name, partial(self._decoded, opened, file)), starts, span)
                else:
                    part = _hits(self._decoded(opened, file), starts, span)
            if part is not None:
                found.append(part)
        return self._newest(found)

    def _decoded(self, opened: pq.ParquetFile, file: StateFile) -> pa.Table:
        there = opened.schema_arrow.names
        system = [PLACE, GONE] if PLACE in there else list(_OLDER_NAMES)
        names = self._stored_names()
        touched = [TOUCHED] if self.forgets and TOUCHED in there else []
        wanted = [*system, *touched, *names]
        table = opened.read(wanted, use_threads=False).select(wanted)
        table = table.rename_columns([PLACE, GONE, *touched, *names])
        if self.forgets and not touched:  # written before rows were let go of
            table = table.add_column(2, TOUCHED, pa.repeat(pa.scalar(file.written, pa.int64()), table.num_rows))
        return table

    def _newest(self, parts: Sequence[pa.Table], *, keep_gone: bool = False) -> pa.Table:
        """The last row per key of tables of stored columns, oldest first."""
        if not parts:
            return self.schema.empty
        system = [name for name in (PLACE, GONE, TOUCHED) if name in parts[0].column_names]
        names = [*system, *self._stored_names()]
        together = pa.concat_tables([part.select(names) for part in parts]).combine_chunks()
        if len(parts) > 1 and self.schema.keys:
            (codes,) = code_rows([together], [[f"{self.schema.name}_k{at}" for at in range(len(self.schema.keys))]])
            together = together.take(pa.array(last_positions(codes)))
        elif len(parts) > 1:
            together = together.slice(together.num_rows - 1)
        if keep_gone:
            return together
        gone = together.column(GONE).to_numpy(zero_copy_only=False)
        used = self._in_use(together)
        if self.schema.together is not None and not used.all():
            self._dead.append(together.filter(pa.array(~gone & ~used)))
        there = together.filter(pa.array(~gone & used))
        return there.drop_columns(system).rename_columns([name for name, _, _ in self.schema.columns])

    def _in_use(self, stored: pa.Table) -> np.ndarray:
        """Return a mask of the rows that are not let go of, of all rows of whatever groups are there."""
        if self._idle is None:
            return np.ones(stored.num_rows, dtype=bool)
        touched = stored.column(TOUCHED).to_numpy()
        if self.schema.together is not None and len(touched):
            own = {name: stored_as for name, stored_as, _ in self.schema.columns}
            names = [own[name] for name in self.schema.together]
            (codes,) = code_rows([stored], [names]) if names else [np.zeros(len(touched), dtype=np.int64)]
            last = np.full(int(codes.max()) + 1, np.iinfo(np.int64).min)
            np.maximum.at(last, codes, touched)
            touched = last[codes]
        return touched > self._idle.now - self._idle.ttl

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
        stored = self._beside_dead(self._stored(table, places, gone))
        parts, last = self._to_merge(), False
        if parts:
            last = len(parts) == len(self._files)
            older = [self._read(file) for file in parts]
            stored = self._newest([*older, stored], keep_gone=True)
            if last:
                stored = self._without_closed(self._without_idle(stored))
            self.removed += [file.path for file in parts]
        if stored.num_rows:
            self._write(stored)

    def put_all(self, table: pa.Table, *, places: np.ndarray) -> None:
        """Replaces everything: these are all rows of the state; once per batch at most, and not beside `put`."""
        assert not self.added, "a second file of one batch would bring back what the first one replaced"
        self.removed += [file.path for file in self._files]
        if table.num_rows:
            self._write(self._stored(table, places, np.zeros(table.num_rows, dtype=bool)))

    def _stored(self, table: pa.Table, places: np.ndarray, gone: np.ndarray) -> pa.Table:
        """The operator's columns as files have them."""
        columns = [table.column(name).cast(kind) for name, _, kind in self.schema.columns]
        system = [pa.array(places), pa.array(gone)]
        if self._idle is not None:
            system.append(pa.repeat(pa.scalar(self._idle.now, pa.int64()), table.num_rows))
        names = [PLACE, GONE, TOUCHED][: len(system)]
        return pa.table([*system, *columns], names=[*names, *self._stored_names()])

    def _beside_dead(self, stored: pa.Table) -> pa.Table:
        """Rows that are written, and the end of those that were let go of, which a new row beside them would revive."""
        if self._idle is None or not self._dead:
            return stored
        dead = pa.concat_tables(self._dead).select(stored.column_names)
        for name, value in ((GONE, pa.scalar(True)), (TOUCHED, pa.scalar(self._idle.now, pa.int64()))):
            dead = dead.set_column(dead.schema.get_field_index(name), name, pa.repeat(value, dead.num_rows))
        self.let_go += dead.num_rows
        return self._newest([dead.cast(stored.schema), stored], keep_gone=True)

    def _without_idle(self, stored: pa.Table) -> pa.Table:
        """All rows of the state without those that have left and those that are let go of."""
        used = self._in_use(stored)
        gone = stored.column(GONE).to_numpy(zero_copy_only=False)
        self.let_go += int((~used & ~gone).sum())
        # The row that left a group last says when that was in use.
        kept = used if self.forgets and self.schema.together is not None else used & ~gone
        return stored.filter(pa.array(kept))

    def _without_closed(self, stored: pa.Table) -> pa.Table:
        if self._over is not None:
            stored = stored.filter(pa.array(~stored.column(GONE).to_numpy(zero_copy_only=False)))
            shown = stored.select(self._stored_names()).rename_columns([name for name, _, _ in self.schema.columns])
            over = self._over(shown)
            self.let_go += int(over.sum())
            stored = stored.filter(pa.array(~over))
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
        if self._idle is not None and self._files and self._idle.is_over(min(file.written for file in self._files)):
            return list(self._files)  # it may hold rows that are let go of
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
            return self._decoded(opened, file)

    def _write(self, table: pa.Table) -> None:
        places = table.column(PLACE).to_numpy()
        table = table.take(pa.array(np.argsort(places, kind="stable")))
        path = f"{self.schema.name}-{self._bucket:04}-{uuid.uuid4()}.snappy.parquet"
        system = [
            pa.repeat(pa.scalar(self._batch, pa.int64()), table.num_rows),
            pa.repeat(pa.scalar(KIND_STATE), table.num_rows),
        ]
        schema = self.schema.stored_with(touched=TOUCHED in table.column_names)
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
        written = int(time.time() * 1000) if self._idle is None else self._idle.now
        self.added.append(DataFile(path, size, written, table.num_rows, KIND_STATE, KIND_STATE))


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
