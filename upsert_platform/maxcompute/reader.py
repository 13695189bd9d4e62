"""Reads a table with Spark: a read session, or the result of a query, whose splits are read by tasks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from upsert_platform.core.types import LogicalType, arrow_type, spark_type
from upsert_platform.maxcompute.client import Client, QueryResult
from upsert_platform.maxcompute.connection import Connection
from upsert_platform.maxcompute.maxstorage import MaxStorage, ReadSession
from upsert_platform.maxcompute.names import TableName, quote
from upsert_platform.maxcompute.partition_spec import Spec
from upsert_platform.maxcompute.types import MaxComputeType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MOST_PREDICATE_KEYS: Final = 5_000
"""Keys that are named in a predicate; more of them are joined with the whole table."""


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column to read.

    Attributes:
        name: in the frame.
        source: in the table, lower case.
        declared: type in the frame.
        kind: type in the table.
        partition: whether it is a partition column.
        fixed: value of a static partition column.
        default: text of a dynamic partition column where rows had no value.
    """

    name: str
    source: str
    declared: LogicalType
    kind: MaxComputeType
    partition: bool = False
    fixed: str | None = None
    default: str | None = None


@dataclass(frozen=True, slots=True)
class ReadJob:
    """The picklable inputs of every task of a read.

    Attributes:
        static: only rows of this (leading part of a) partition.
    """

    connection: Connection
    endpoint: str
    target: TableName
    session: ReadSession | QueryResult
    columns: tuple[ReadColumn, ...]
    static: Spec


def read_frame(spark: SparkSession, job: ReadJob) -> DataFrame:
    """The rows of a session or result, as they were when it was opened."""
    schema = ", ".join(f"{quote(column.name)} {spark_type(column.declared)}" for column in job.columns)
    splits = job.session.splits
    if not splits:
        return spark.createDataFrame([], schema)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return read_task(batches, job)

    return spark.range(0, splits, 1, numPartitions=splits).mapInArrow(read, schema)


def read_task(batches: Iterator[pa.RecordBatch], job: ReadJob) -> Generator[pa.RecordBatch]:
    """The function of `mapInArrow`: reads the splits whose numbers it gets."""
    if isinstance(job.session, QueryResult):
        client = Client(replace(job.connection, tunnel_endpoint=job.endpoint))
        read: Callable[[int], Iterator[pa.RecordBatch]] = partial(client.read_query, job.session)
        close = client.close
    else:
        storage = MaxStorage(job.connection, job.endpoint, job.target)
        read, close = partial(storage.read_split, job.session), storage.close
    try:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                for rows in read(index):
                    yield decode_rows(rows, job)
    finally:
        close()


def decode_rows(rows: pa.RecordBatch, job: ReadJob) -> pa.RecordBatch:
    """Rows as MaxStorage sends them, in the columns and types of the frame."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from upsert_platform.maxcompute.decode import decode, decode_partition, decode_partitions

    names = [name.lower() for name in rows.schema.names]
    for name, value in job.static:
        if name in names:
            rows = rows.filter(pc.equal(rows.column(names.index(name)).cast(pa.string()), value))
    columns = []
    for column in job.columns:
        wanted = arrow_type(column.declared)
        if column.fixed is not None:
            columns.append(pa.array([decode_partition(column.fixed, column.declared)] * rows.num_rows, wanted))
            continue
        values = rows.column(names.index(column.source))
        if column.partition:
            columns.append(decode_partitions(values, column.declared, column.default))
        else:
            columns.append(decode(values, column.declared, column.kind))
    fields = [pa.field(column.name, arrow_type(column.declared)) for column in job.columns]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
