"""Data files of a changelog: Parquet, written by Spark's Python workers straight from Arrow.

Rows never pass through the JVM, which costs more than everything else that is done to them. A task answers with the
names of its files, the driver commits them (`ChangelogStore.append`). A file that no commit names is never read, and
`upkeep.remove_unused` deletes it.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.damage import naming
from upsert_platform.changelog.parquet_files import CHECKSUMS, columns_to_read, open_parquet
from upsert_platform.changelog.tables import TableLocation, file_system
from upsert_platform.core.spark_failures import raised_by_tasks
from upsert_platform.core.task_runner import answers_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem
    from pyspark.sql import DataFrame, SparkSession

FILE_BYTES: Final = 128 << 20
"""A file that has reached this size is followed by another."""
MANIFEST: Final = (
    "path STRING, size BIGINT, modified BIGINT, rows BIGINT, least_kind STRING, greatest_kind STRING,"
    " first_batch BIGINT, last_batch BIGINT"
)
"""What a task answers, as Spark DDL: the fields of DataFile."""

_REPEATED: Final = (rows.BATCH, rows.KIND, rows.TOPIC, rows.PARTITION, rows.ROW)
"""System columns of few different values, which a dictionary makes small at no cost."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that was written and waits for its commit.

    Attributes:
        path: relative to the table.
        size: in bytes.
        modified: milliseconds since 1970.
        rows: how many it holds, at least one.
        least_kind: the smallest row kind in it; with `greatest_kind`, readers pass over files by them.
        first_batch: the smallest batch in it, and `last_batch` the greatest, where rows keep their own; None where the
            commit tells the batch of them all.
    """

    path: str
    size: int
    modified: int
    rows: int
    least_kind: str
    greatest_kind: str
    first_batch: int | None = None
    last_batch: int | None = None

    def statistics(self, batch: int) -> str:
        """The statistics of a Delta Lake commit, for the columns that the table declares to have them.

        Args:
            batch: of all rows, where the file does not tell.
        """
        first = batch if self.first_batch is None else self.first_batch
        last = batch if self.last_batch is None else self.last_batch
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {rows.BATCH: first, rows.KIND: self.least_kind},
                "maxValues": {rows.BATCH: last, rows.KIND: self.greatest_kind},
                "nullCount": {rows.BATCH: 0, rows.KIND: 0},
            }
        )


class _OpenFile:
    """A file while it is written."""

    def __init__(self, system: FileSystem, folder: str, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self.name = f"part-{uuid.uuid4()}.snappy.parquet"
        self._system = system
        self._path = f"{folder}{self.name}"
        with naming(self._path, writes=True):
            self._sink = system.open_output_stream(self._path)
            self._writer = pq.ParquetWriter(  # which writes its first bytes
                self._sink,
                schema,
                compression="snappy",
                use_dictionary=_dictionaries(schema),
                write_statistics=[rows.BATCH, rows.KIND],
                store_decimal_as_integer=True,
                **CHECKSUMS,
            )
        self._rows = 0
        self._kinds: set[str] = set()
        self._batches: set[int] = set()

    def write(self, table: pa.Table) -> None:
        """Writes rows as a row group of their own."""
        import pyarrow.compute as pc

        with naming(self._path, writes=True):
            self._writer.write_table(table)
        self._rows += table.num_rows
        self._kinds.update(pc.unique(table.column(rows.KIND)).to_pylist())
        self._batches.update(pc.min_max(table.column(rows.BATCH)).as_py().values())

    def is_full(self) -> bool:
        return int(self._sink.tell()) >= FILE_BYTES

    def close(self) -> DataFile:
        with naming(self._path, writes=True):
            self._writer.close()
            size = int(self._sink.tell())
            self._sink.close()
        modified = int(time.time() * 1000)
        kinds, batches = self._kinds, self._batches
        return DataFile(self.name, size, modified, self._rows, min(kinds), max(kinds), min(batches), max(batches))

    def discard(self) -> None:
        """Gives up: whatever of it stays in the folder is garbage."""
        with suppress(Exception):
            self._writer.close()
            self._sink.close()
        with suppress(Exception):
            self._system.delete_file(self._path)


def write_files(
    batches: Iterable[pa.RecordBatch], *, location: TableLocation, schema: pa.Schema, batch: int | None
) -> Iterator[pa.RecordBatch]:
    """Writes rows into new files of a changelog. Runs in Spark workers, and holds one batch at a time.

    Args:
        batches: columns of `schema`; `_batch` may be missing where `batch` is given.
        batch: of all rows; None where each keeps its own.
        location: of the Delta table.
        schema: `rows.arrow_schema` of the table.

    Returns:
        One batch of MANIFEST with a row per file; none when there were no rows.
    """
    system, folder = file_system(location)
    done: list[DataFile] = []
    current: _OpenFile | None = None
    try:
        for item in batches:
            if not item.num_rows:
                continue
            if current is None:
                current = _OpenFile(system, folder, schema)
            current.write(_complete(item, schema, batch))
            if current.is_full():
                done.append(current.close())
                current = None
        if current is not None:
            done.append(current.close())
    except BaseException:
        if current is not None:
            current.discard()
        raise
    if done:
        yield _manifest(done)


def write_rows(
    batches: Iterable[pa.RecordBatch], *, location: TableLocation, schema: pa.Schema, batch: int | None = None
) -> list[DataFile]:
    """Write the files of `write_files` in this process."""
    manifests = write_files(batches, location=location, schema=schema, batch=batch)
    return [DataFile(**row) for manifest in manifests for row in manifest.to_pylist()]


def write_frame(frame: DataFrame, *, location: TableLocation, schema: pa.Schema, batch: int | None) -> list[DataFile]:
    """Writes the rows of a frame into new files of a changelog; see `write_files`."""
    written = frame.mapInArrow(partial(write_files, location=location, schema=schema, batch=batch), MANIFEST)
    return [DataFile(*row) for row in written.collect()]


def files_by_tasks(spark: SparkSession, tasks: Sequence[Callable[[], list[DataFile]]], *, what: str) -> list[DataFile]:
    """Return the files that tasks write, each as one of a job of Spark. Nothing was committed.

    Args:
        tasks: can be pickled.
        what: they do, for Spark's page.

    Raises:
        UpsertPlatformError: what a task raised.
        Exception: of Spark, where one ended otherwise.
    """
    with raised_by_tasks():
        return list(chain.from_iterable(answers_of(spark, tasks, what=what)))


def _manifest(files: Iterable[DataFile]) -> pa.RecordBatch:
    import pyarrow as pa

    names = [item.name for item in fields(DataFile)]
    return pa.RecordBatch.from_pylist([dict(zip(names, astuple(item), strict=True)) for item in files])


def _dictionaries(schema: pa.Schema) -> list[str]:
    """Columns to be written by dictionary: declared texts too, which often repeat and else fall back by themselves."""
    import pyarrow as pa

    declared = [item.name for item in schema if item.name not in rows.SYSTEM_COLUMNS and pa.types.is_string(item.type)]
    return [*_REPEATED, *declared]


def _complete(item: pa.RecordBatch, schema: pa.Schema, batch: int | None) -> pa.Table:
    import pyarrow as pa

    number = None if batch is None else pa.repeat(pa.scalar(batch, pa.int64()), item.num_rows)
    columns: list[Any] = [
        number if column.name == rows.BATCH and number is not None else _as(item.column(column.name), column.type)
        for column in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)


_PATTERN: Final = re.compile(r"([\[\]{}*?\\])")
"""What Spark takes for a pattern in a path. Its option `__globPaths__` has rows of such paths read twice (4.2)."""
_AS_THEY_ARE: Final = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
"""Options of reads, whatever the site's Spark settings are: a file that is passed over would be missed by nobody."""


def read_files(spark: SparkSession, location: TableLocation, paths: Sequence[str], *, schema: str) -> DataFrame:
    """Rows of data files of a table, read by Spark from the list that delta-rs gives; nothing replays a log in the JVM.

    Spark opens files of this machine by itself; behind a URI its Python tasks do, with delta-rs' own store, so that a
    lake needs no file system of Hadoop.

    Args:
        location: of the Delta table.
        paths: relative to it.
        schema: Spark DDL of the rows; columns that a file lacks are null.
    """
    local = location.path
    if not paths:
        return spark.createDataFrame([], schema)
    if local is not None:
        # Hadoop takes such a text apart without decoding it; a path alone would be one of its default file system.
        folder = _PATTERN.sub(r"\\\1", str(Path(local).absolute()))
        found = [f"file://{folder}/{path}" for path in paths]
        return spark.read.schema(schema).options(**_AS_THEY_ARE).parquet(*found)
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    wanted = to_arrow_schema(StructType.fromDDL(schema), timezone="UTC")
    listed = spark.createDataFrame([(path,) for path in paths], "path STRING").repartition(len(paths), "path")
    return listed.mapInArrow(partial(_read_listed, location=location, wanted=wanted), schema)


def read_rows(location: TableLocation, paths: Sequence[str], *, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of data files of a table, read by this process, a row group at a time and file after file.

    Args:
        location: of the Delta table.
        paths: relative to it.
        schema: of the rows; columns that a file lacks are null. Of a dictionary type they are read as their codes, and
            of a ROW with fewer fields than it has these alone.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    system, folder = file_system(location)
    coded = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    for path in paths:
        with naming(f"{location.uri}/{path}"), system.open_input_file(f"{folder}{path}") as stream:
            footer = pq.read_metadata(stream)
            there = set(footer.schema.names) if coded else set()
            found_coded = [name for name in coded if name in there]
            file = open_parquet(stream, metadata=footer, read_dictionary=found_coded)
            known = file.schema_arrow.names
            for found in file.iter_batches(columns=columns_to_read(schema, file.schema_arrow)):
                columns = [
                    _as(found.column(field.name), field.type)
                    if field.name in known
                    else pa.nulls(found.num_rows, field.type)
                    for field in schema
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _read_listed(
    batches: Iterable[pa.RecordBatch], *, location: TableLocation, wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for item in batches:
        yield from read_rows(location, item.column("path").to_pylist(), schema=wanted)
