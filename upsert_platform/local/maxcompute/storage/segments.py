"""Segment files: Arrow IPC streams, written once, read by memory map.

A staged body is kept as it came from the client when its types already are those of storage, so committing it costs
no copy. Names inside a file do not matter: the catalogue keeps the column id of each field.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from upsert_platform.local.maxcompute.schema import (
    IGNORED_ID,
    OPERATION,
    OPERATION_ID,
    VALUE_COLUMNS,
    VALUE_COLUMNS_ID,
    Column,
)

_MAPPED_FROM = 1 << 20
_CACHED_BYTES = 256 << 20
_FEW = 0.5
"""Part of the columns of a file that is read without the others."""


@dataclass(frozen=True)
class File:
    """A written segment file: name below the data directory, rows, bytes, and the column ids of its fields."""

    path: str
    rows: int
    bytes: int
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Segment:
    """A committed file of one partition.

    Attributes:
        resets: what the partition held before is gone (overwrite, truncate, compaction).
        compacted: it repeats what earlier segments held, and is no change of its own.
    """

    segment_id: int
    partition_id: int
    version: int
    resets: bool
    compacted: bool
    file: File


class SegmentFiles:
    """Writes and reads the files below ``<data>/segments``."""

    def __init__(self, data: Path) -> None:
        self._root = data / "segments"
        self._root.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, tuple[pa.Table, int]] = OrderedDict()
        self._cached = 0

    def write_bytes(self, body: bytes | memoryview, *, rows: int, columns: Iterable[int]) -> File:
        """Keeps an Arrow IPC stream as it is."""
        name = uuid.uuid4().hex
        with (self._root / name).open("wb") as file:
            file.write(body)
        return File(name, rows, len(body), tuple(columns))

    def write_batches(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, columns: Iterable[int]) -> File:
        """Writes record batches one after the other, so memory stays with one batch."""
        name = uuid.uuid4().hex
        rows = 0
        path = self._root / name
        try:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
                for batch in batches:
                    rows += batch.num_rows
                    writer.write_batch(batch)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return File(name, rows, path.stat().st_size, tuple(columns))

    def write_table(self, table: pa.Table, *, columns: Iterable[int]) -> File:
        return self.write_batches(table.schema, table.to_batches(), columns=columns)

    def join(self, files: list[File]) -> list[File]:
        """Writes files of the same columns as one, in their order; files whose types differ stay as they are."""
        tables = [self.read(file) for file in files]
        if any(table.schema.types != tables[0].schema.types for table in tables):
            return files
        renamed = [table.rename_columns(tables[0].column_names) for table in tables]
        joined = pa.concat_tables(renamed).combine_chunks()
        return [self.write_batches(joined.schema, joined.to_batches(), columns=files[0].columns)]

    def sync(self, files: Iterable[File]) -> None:
        """Returns when the files, and their names in the directory, are on disk."""
        for file in files:
            _fsync(self._root / file.path)
        _fsync(self._root)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            (self._root / path).unlink(missing_ok=True)
            with self._lock:
                gone = self._cache.pop(path, None)
                self._cached -= gone[1] if gone is not None else 0

    def remove_strays(self, known: set[str]) -> int:
        """Removes files that the catalogue does not know: what a killed process had not committed."""
        strays = [path.name for path in self._root.iterdir() if path.name not in known]
        self.remove(strays)
        return len(strays)

    def read(self, file: File) -> pa.Table:
        """The file's rows, under the names that are in it."""
        with self._lock:
            found = self._cache.get(file.path)
            if found is not None:
                self._cache.move_to_end(file.path)
                return found[0]
        table = self._opened(file)
        size = table.nbytes
        with self._lock:
            if file.path not in self._cache:
                self._cache[file.path] = table, size
                self._cached += size
            while self._cached > _CACHED_BYTES and len(self._cache) > 1:
                self._cached -= self._cache.popitem(last=False)[1][1]
        return table

    def _opened(self, file: File, fields: Sequence[int] | None = None) -> pa.Table:
        path = self._root / file.path
        source = pa.memory_map(str(path)) if file.bytes >= _MAPPED_FROM else pa.BufferReader(path.read_bytes())
        with pa.ipc.open_stream(source, options=pa.ipc.IpcReadOptions(included_fields=fields)) as reader:
            return reader.read_all()

    def _read_some(self, file: File, ids: Collection[int]) -> tuple[pa.Table, tuple[int, ...]]:
        """The fields of some columns, and their ids: of a file that is not in memory no others are decompressed."""
        with self._lock:
            found = self._cache.get(file.path)
        fields = [index for index, column_id in enumerate(file.columns) if column_id in ids]
        if found is None and 0 < len(fields) < _FEW * len(file.columns):  # none would stand for all
            return self._opened(file, fields), tuple(file.columns[index] for index in fields)
        return self.read(file), file.columns

    def aligned(self, file: File, columns: Iterable[Column], *, operations: bool) -> pa.Table:
        """The file's rows as the table's columns are now: renamed, widened, null where a column came later.

        Args:
            operations: also ``__operation`` (upsert where the file has none).
        """
        columns = list(columns)
        wanted = {column.column_id for column in columns} | ({OPERATION_ID} if operations else set())
        table, ids = self._read_some(file, wanted)
        place = {column_id: index for index, column_id in enumerate(ids)}
        names, arrays = [], []
        for column in columns:
            names.append(column.name)
            index = place.get(column.column_id)
            if index is None:
                arrays.append(pa.chunked_array([pa.nulls(table.num_rows, column.type.arrow)]))
                continue
            values = table.column(index)
            arrays.append(values if values.type == column.type.arrow else values.cast(column.type.arrow))
        if operations:
            names.append(OPERATION)
            index = place.get(OPERATION_ID)
            upserts = pa.chunked_array([pa.repeat(pa.scalar(85, pa.int8()), table.num_rows)])
            arrays.append(upserts if index is None else table.column(index))
        return pa.Table.from_arrays(arrays, names=names)


def storage_ids(names: Iterable[str], columns: Iterable[Column], *, partial: bool = False) -> tuple[int, ...]:
    """The column ids of fields with these names; system columns have negative ones.

    Args:
        partial: the lists of columns that rows set count; otherwise no reader looks at them.
    """
    ids = {column.name: column.column_id for column in columns}
    ids[OPERATION], ids[VALUE_COLUMNS] = OPERATION_ID, VALUE_COLUMNS_ID if partial else IGNORED_ID
    return tuple(ids[name] for name in names)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
