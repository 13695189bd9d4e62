"""Files of refused rows: Parquet, written by tasks beside the Delta table that keeps them, and named to the driver.

A file that no commit names is never read.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog.damage import naming
from upsert_platform.changelog.parquet_files import CHECKSUMS, open_parquet
from upsert_platform.changelog.tables import TableLocation, file_system
from upsert_platform.core.destination import RefusedRow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

GROUP_BYTES: Final = 4 << 20
"""Texts of a row group: what a task holds, and what is read at a time."""
_READ_ROWS: Final = 1000


def schema() -> pa.Schema:
    """Columns of the table: batch, key, row, reason, at."""
    import pyarrow as pa

    texts = [(name, pa.string()) for name in ("key", "row", "reason")]
    return pa.schema([("batch", pa.int64()), *texts, ("at", pa.timestamp("us", tz="UTC"))])


def record_batch(refused: Sequence[RefusedRow], batch: int) -> pa.RecordBatch:
    """Refused rows in the table's columns."""
    import pyarrow as pa

    columns: list[Any] = [
        [batch] * len(refused),
        [row.key for row in refused],
        [row.row for row in refused],
        [row.reason for row in refused],
        [datetime.now(UTC)] * len(refused),
    ]
    arrays = [pa.array(values, item.type) for values, item in zip(columns, schema(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema())


class _RefusedFile:
    """Implements `upsert_platform.core.destination.RefusedFile`; makes its file with the first row group."""

    def __init__(self, location: TableLocation, batch: int) -> None:
        self._location = location
        self._batch = batch
        self._name = f"part-{uuid.uuid4()}.snappy.parquet"
        self._waiting: list[RefusedRow] = []
        self._bytes = self._rows = 0
        self._sink: Any = None
        self._writer: Any = None

    def write(self, rows: Sequence[RefusedRow]) -> None:
        for row in rows:
            self._waiting.append(row)
            self._bytes += len(row.key) + len(row.row) + len(row.reason)
            if self._bytes >= GROUP_BYTES:
                self._flush()

    def close(self) -> str | None:
        self._flush()
        if self._writer is None:
            return None
        with self._naming():
            self._writer.close()
            size = int(self._sink.tell())
            self._sink.close()
        self._writer = None
        return _told(self._name, size=size, rows=self._rows, batches=(self._batch, self._batch))

    def discard(self) -> None:
        if self._writer is None:
            return
        with suppress(Exception):
            self._writer.close()
            self._sink.close()
        self._writer = None
        delete(self._location, self._name)

    def _naming(self) -> AbstractContextManager[None]:
        return naming(f"{self._location.uri}/{self._name}", writes=True)

    def _flush(self) -> None:
        if not self._waiting:
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._writer is None:
            system, folder = file_system(self._location)
            if self._location.path is not None:
                system.create_dir(folder, recursive=True)
            with self._naming():
                self._sink = system.open_output_stream(f"{folder}{self._name}")
                self._writer = pq.ParquetWriter(self._sink, schema(), compression="snappy", **CHECKSUMS)
        with self._naming():
            self._writer.write_table(pa.Table.from_batches([record_batch(self._waiting, self._batch)]))
        self._rows += len(self._waiting)
        self._waiting, self._bytes = [], 0


def open_file(location: TableLocation, batch: int) -> _RefusedFile:
    """Opens a file of rows that were refused up to a batch. Runs in tasks.

    Args:
        location: of the Delta table.
    """
    return _RefusedFile(location, batch)


def rows_of(location: TableLocation, files: Sequence[str]) -> Iterator[list[RefusedRow]]:
    """The rows of files, a row group at a time."""
    system, folder = file_system(location)
    for told in files:
        path = json.loads(told)["path"]
        with naming(f"{location.uri}/{path}"), system.open_input_file(f"{folder}{path}") as source:
            file = open_parquet(source)
            for group in range(file.num_row_groups):
                found = file.read_row_group(group, columns=["key", "row", "reason"]).to_pylist()
                yield [RefusedRow(item["key"], item["row"], item["reason"]) for item in found]


def discard(location: TableLocation, files: Sequence[str]) -> None:
    """Removes files that are not to be committed."""
    for told in files:
        delete(location, json.loads(told)["path"])


@dataclass(frozen=True, slots=True)
class Leaves:
    """The selection of rows that are removed.

    Attributes:
        column: that tells.
        judge: its values to booleans.
        after: no row of this batch or an earlier one is taken out.
    """

    column: str
    judge: Callable[[pa.Array], pa.Array]
    after: int = -1


def without(location: TableLocation, path: str, leaves: Leaves) -> str | None:
    """Writes the rows of a file that stay to another one, a row group at a time.

    Returns:
        The new file as `_RefusedFile.close` names it; empty where no row stays, None where all do.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    system, folder = file_system(location)
    with naming(f"{location.uri}/{path}"), system.open_input_file(f"{folder}{path}") as source:
        file = open_parquet(source)
        gone = 0
        for part in _batches(file, [leaves.column]):
            gone += int(pc.sum(leaves.judge(part[leaves.column])).as_py() or 0)
        if gone in (0, file.metadata.num_rows):
            return "" if gone else None
        name = f"part-{uuid.uuid4()}.snappy.parquet"
        batches: list[int] = []
        with naming(f"{location.uri}/{name}", writes=True), system.open_output_stream(f"{folder}{name}") as sink:
            with pq.ParquetWriter(sink, schema(), compression="snappy", **CHECKSUMS) as writer:
                for part in _batches(file):
                    stays = part.filter(pc.invert(leaves.judge(part[leaves.column])))
                    if stays.num_rows:
                        writer.write_table(stays)
                        found = pc.min_max(stays.column("batch")).as_py()
                        batches += [found["min"], found["max"]]
            size = int(sink.tell())
    return _told(name, size=size, rows=file.metadata.num_rows - gone, batches=(min(batches), max(batches)))


def batches_of(location: TableLocation, path: str, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
    """The rows of a file of the table, some hundreds at a time.

    Args:
        columns: all of them if left out.
    """
    system, folder = file_system(location)
    with naming(f"{location.uri}/{path}"), system.open_input_file(f"{folder}{path}") as source:
        yield from _batches(open_parquet(source), columns)


def count_of(location: TableLocation, path: str) -> int:
    """Return the number of rows of a file of the table, by the metadata that it ends with."""
    system, folder = file_system(location)
    with naming(f"{location.uri}/{path}"), system.open_input_file(f"{folder}{path}") as source:
        return int(open_parquet(source).metadata.num_rows)


def _batches(file: ParquetFile, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
    import pyarrow as pa

    wanted = schema() if not columns else pa.schema([schema().field(name) for name in columns])
    for group in range(file.num_row_groups):  # one after the other, or Arrow reads ahead
        for part in file.iter_batches(_READ_ROWS, row_groups=[group], columns=wanted.names):
            yield pa.Table.from_batches([part]).cast(wanted)


def _told(path: str, *, size: int, rows: int, batches: tuple[int, int]) -> str:
    modified = int(time.time() * 1000)
    return json.dumps({"path": path, "size": size, "modified": modified, "rows": rows, "batches": batches})


def add_arguments(told: str) -> tuple[Any, ...]:
    """Return the arguments of Delta Lake's AddAction for a file that `_RefusedFile.close` reported."""
    found = json.loads(told)
    nulls = dict.fromkeys(("batch", "key", "row", "reason"), 0)
    least, greatest = found["batches"]
    bounds = {"minValues": {"batch": least}, "maxValues": {"batch": greatest}}
    statistics = {"numRecords": found["rows"], **bounds, "nullCount": nulls}
    return found["path"], found["size"], {}, found["modified"], True, json.dumps(statistics)


def older_than(location: TableLocation, moment: float) -> list[str]:
    """Files of the table's folder, whether the table has them or not, that were written before a moment.

    Args:
        moment: seconds since 1970.
    """
    from pyarrow import fs

    system, folder = file_system(location)
    found = system.get_file_info(fs.FileSelector(folder or "/", allow_not_found=True))
    return [
        item.base_name
        for item in found
        if item.base_name.startswith("part-") and item.mtime is not None and item.mtime.timestamp() < moment
    ]


def delete(location: TableLocation, path: str) -> None:
    """Deletes a file of the table's folder, if it can be deleted."""
    system, folder = file_system(location)
    with suppress(Exception):
        system.delete_file(f"{folder}{path}")
