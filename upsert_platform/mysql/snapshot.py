"""A part of a table's snapshot: chunks read by Spark tasks, each by one SELECT, into data files of the changelog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import DataFile, files_by_tasks, write_rows
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.errors import EndpointError
from upsert_platform.core.model import Table
from upsert_platform.mysql.chunks import Chunk, condition, table_name
from upsert_platform.mysql.columns import MySqlTable
from upsert_platform.mysql.connection import Connection
from upsert_platform.mysql.options import MySqlCdcSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_BLOCK_ROWS: Final = 1 << 16
_BLOCK_BYTES: Final = 32 << 20
"""Rows that a task holds at once, whichever comes first."""
_PATIENCE: Final = "SET SESSION net_write_timeout = 600"
"""Seconds: an answer waits while what was read before is written to a slow store."""


@dataclass(frozen=True)
class SnapshotPart:
    """The inputs of snapshot tasks. Travels inside of their function, which Spark shows nowhere (it holds the
    password).

    Attributes:
        table: as declared.
        found: as the server has it.
        offset: number of the log's byte that the rows stand at: what the log says behind it is newer.
        batch: of the changelog.
    """

    settings: MySqlCdcSettings
    table: Table
    found: MySqlTable
    offset: int
    batch: int
    location: TableLocation


def read_chunks(spark: SparkSession, part: SnapshotPart, chunks: Sequence[Chunk]) -> list[DataFile]:
    """Reads chunks in as many tasks as the cluster runs at once, and some more.

    Raises:
        ReplicationError: a value cannot be carried.
        EndpointError: the server does not answer, or refuses.
    """
    tasks = min(len(chunks), max(2, 2 * spark.sparkContext.defaultParallelism))
    shares = [list(chunks[number::tasks]) for number in range(tasks)]
    work = [partial(read_chunks_in_task, part, share) for share in shares]
    return files_by_tasks(spark, work, what=f"read {part.settings.full_name}")


def read_chunks_in_task(part: SnapshotPart, chunks: Sequence[Chunk]) -> list[DataFile]:
    """Reads few chunks by this process. Raises what `read_chunks` does."""
    schema = rows.arrow_schema(part.table)
    return write_rows(_blocks(part, chunks), location=part.location, schema=schema, batch=part.batch)


def _blocks(part: SnapshotPart, chunks: Sequence[Chunk]) -> Iterator[pa.RecordBatch]:
    """Rows of chunks as rows of the changelog, chunks joined to blocks."""
    from upsert_platform.mysql.landing import Landing
    from upsert_platform.writing.blocks import blocks

    landing = Landing(part.table, part.settings.full_name)
    first = 0
    for block in blocks(selected_rows(part, chunks), rows=_BLOCK_ROWS, size=_BLOCK_BYTES):
        yield landing.snapshot(block, offset=part.offset, first=first)
        first += block.num_rows


def selected_rows(part: SnapshotPart, chunks: Sequence[Chunk]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of SELECTs of chunks, a few megabytes at a time; the server's answer is never held whole."""
    from upsert_platform.mysql.row_packets import read_rows
    from upsert_platform.mysql.text_values import text_reader

    declared = {column.name for column in part.table.columns}
    wanted = [column for column in part.found.columns if column.name in declared]
    readers = [text_reader(column, part.settings.type_rules, table=part.found.full_name) for column in wanted]
    selected = ", ".join(reader.select for reader in readers)
    head = f"SELECT {selected} FROM {table_name(part.found)}"
    with ExitStack() as opened:
        connections = [opened.enter_context(Connection(part.settings.server))]
        if len(chunks) > 1:  # the server reads a chunk while rows are made of the one before
            with suppress(EndpointError):  # the user may have no more connections; one is enough
                connections.append(opened.enter_context(Connection(part.settings.server)))
        for connection in connections:
            connection.query(_PATIENCE)
        yield from read_rows(connections, (head + condition(part.found, chunk) for chunk in chunks), readers)
