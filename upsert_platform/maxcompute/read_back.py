"""Reads of a destination: all rows, the rows of some keys, or only where some keys are."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from upsert_platform.core.capabilities import MOST_TOLD_KEYS, RowsByShare, Shares
from upsert_platform.core.types import LogicalType, TypeName, arrow_type, spark_type
from upsert_platform.maxcompute.client import Client, QueryResult, TableState
from upsert_platform.maxcompute.connection import ServiceError, explain
from upsert_platform.maxcompute.maxstorage import SPLIT_BYTES, MaxStorage, ReadSession
from upsert_platform.maxcompute.names import quote, sql_text
from upsert_platform.maxcompute.partitions import present_name
from upsert_platform.maxcompute.reader import MOST_PREDICATE_KEYS, ReadColumn, ReadJob, read_frame, read_task
from upsert_platform.maxcompute.stored import is_named, key_predicate, stored_value
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.maxcompute.types import MaxComputeType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_MOST_KEYS_HERE: Final = 4 * MOST_PREDICATE_KEYS
"""Where there is no Spark to read the whole table, the service is rather told more keys."""
_SHARE_BYTES: Final = 16 << 20
"""Of the splits of a table that is read beside other work: few enough that no core waits for the last one."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The inputs of reads.

    Attributes:
        actual: the table as it is.
        storage: MaxStorage of the table; None where reads are queries whose results come through the tunnel.
    """

    table: MaxComputeTable
    actual: TableState
    client: Client
    storage: MaxStorage | None


def read_table(
    spark: SparkSession, reading: Reading, *, keys: DataFrame | None = None, absent: Collection[str] = ()
) -> DataFrame:
    """Rows in declared columns and types.

    Args:
        absent: lower-case names of columns that the table does not have yet; they are null.

    Raises:
        DestinationError: the service refuses.
        EndpointError: no answer.
    """
    columns = declared_columns(reading.table, reading.actual)
    rows = _read(spark, [column for column in columns if column.source not in absent], reading, keys)
    if not absent:
        return rows
    from pyspark.sql import functions as F

    return rows.select(
        *[
            F.lit(None).cast(spark_type(column.declared)).alias(column.name)
            if column.source in absent
            else F.col(quote(column.name))
            for column in columns
        ]
    )


def rows_by_share(reading: Reading, *, rows: int) -> RowsByShare | None:
    """Return how tasks read all rows in declared columns and types, or None if the wanted rows are few and named, or
    very many.
    """
    return every_row_by_share(reading) if MOST_PREDICATE_KEYS < rows <= MOST_TOLD_KEYS else None


def every_row_by_share(reading: Reading) -> RowsByShare:
    """Return how tasks read all rows in declared columns and types. Its `open` raises as `open_job`."""

    def opened() -> Shares:
        job = open_job(declared_columns(reading.table, reading.actual), reading, "", split_bytes=_SHARE_BYTES)
        known = job.session.rows if isinstance(job.session, ReadSession) else None
        return Shares(job.session.splits, partial(read_task, job=job), known)

    return RowsByShare(opened, others=True)


def first_rows(reading: Reading, limit: int) -> pa.Table:
    """The first rows that the table gives, in declared columns and types; read here, without Spark.

    Raises:
        DestinationError: the service refuses.
        EndpointError: no answer.
    """
    columns = declared_columns(reading.table, reading.actual)
    job = open_job(columns, reading, "")
    found: list[pa.RecordBatch] = []
    wanted = limit
    splits = iter([pa.record_batch([pa.array(range(job.session.splits), pa.int64())], names=["split"])])
    try:
        with closing(read_task(splits, job)) as batches:
            for batch in batches:
                found.append(batch.slice(0, wanted))
                wanted -= found[-1].num_rows
                if not wanted:
                    break
    except ServiceError as error:
        explain(error, reading.client.connection, f"reading {reading.table.target}")
    schema = pa.schema([pa.field(column.name, arrow_type(column.declared)) for column in columns])
    return pa.Table.from_batches(found, schema=schema)


def rows_of_keys(reading: Reading, keys: pa.Table, *, most: int) -> pa.Table | None:
    """Rows of keys, and perhaps of others, in declared columns and types; read here, without Spark.

    The table `stores_as_given`.

    Args:
        keys: columns named as the primary key.
        most: None is given where keys cannot be named to the service, or more rows than this would be read.

    Raises:
        DestinationError: the service refuses.
        EndpointError: no answer.
    """
    if keys.num_rows > min(most, _MOST_KEYS_HERE):
        return None
    columns = declared_columns(reading.table, reading.actual)
    by_name = {column.name: column for column in columns}
    key = [name for name in reading.table.primary_key if is_named(by_name[name].declared)]
    kinds = [(by_name[name].source, by_name[name].declared, by_name[name].kind) for name in key]
    predicate = key_predicate(list(zip(*(keys.column(name).to_pylist() for name in key), strict=True)), kinds)
    if not predicate:
        return None
    job = open_job(columns, reading, predicate)
    schema = pa.schema([pa.field(column.name, arrow_type(column.declared)) for column in columns])
    found: list[pa.RecordBatch] = []
    splits = iter([pa.record_batch([pa.array(range(job.session.splits), pa.int64())], names=["split"])])
    try:
        with closing(read_task(splits, job)) as batches:
            for batch in batches:
                found.append(batch)
                if sum(part.num_rows for part in found) > most:  # the service may ignore the predicate
                    return None
    except ServiceError as error:
        explain(error, reading.client.connection, f"reading {reading.table.target}")
    return pa.Table.from_batches(found, schema=schema)


def read_partitions(keys: DataFrame, reading: Reading) -> DataFrame:
    """Return the partitions of keys: the key columns, and a text column per dynamic partition column.

    Raises:
        DestinationError: the service refuses.
        EndpointError: no answer.
    """
    table = reading.table
    key = set(table.primary_key)
    columns = [column for column in declared_columns(table, reading.actual) if column.name in key]
    kinds = {column.name: column.type for column in reading.actual.partition_columns}
    for index, name in enumerate(table.partitions.dynamic):
        columns.append(ReadColumn(present_name(index), name, LogicalType(TypeName.STRING), kinds[name], partition=True))
    return _read(keys.sparkSession, columns, reading, keys)


def _read(spark: SparkSession, columns: list[ReadColumn], reading: Reading, keys: DataFrame | None) -> DataFrame:
    table = reading.table
    predicate = ""
    if keys is not None:
        from pyspark.sql import functions as F

        stored = [
            stored_value(table, reading.actual, name, F.col(quote(name))).alias(name) for name in table.primary_key
        ]
        keys = keys.select(*stored)
        by_name = {column.name: column for column in columns}
        named = [column for name in table.primary_key if not (column := by_name[name]).partition and not column.fixed]
        named = [column for column in named if is_named(column.declared)]
        if named:
            few = keys.select(*[quote(column.name) for column in named]).limit(MOST_PREDICATE_KEYS + 1).collect()
            if len(few) <= MOST_PREDICATE_KEYS:
                kinds = [(column.source, column.declared, column.kind) for column in named]
                predicate = key_predicate([tuple(row) for row in few], kinds)
    job = open_job(columns, reading, predicate)
    frame = read_frame(spark, job)
    return frame if keys is None else frame.join(keys, list(table.primary_key), "left_semi")


def open_job(columns: list[ReadColumn], reading: Reading, predicate: str, *, split_bytes: int = SPLIT_BYTES) -> ReadJob:
    """Opens a session, or a query, of the rows for which a predicate may hold; all with an empty text.

    Raises:
        DestinationError: the service refuses.
        EndpointError: no answer.
    """
    table, client, storage = reading.table, reading.client, reading.storage
    static = table.partitions.static
    data = [column.source for column in columns if not column.partition and column.fixed is None]
    partition = [*(name for name, _ in static), *(column.source for column in columns if column.partition)]
    partition = list(dict.fromkeys(partition))
    try:
        if storage is not None:
            session: ReadSession | QueryResult = storage.create_read_session(
                data,
                partition_columns=partition,
                partitions=[table.partitions.static_text] if static and not table.partitions.dynamic else [],
                predicate=predicate,
                split_bytes=split_bytes,
            )
        else:
            conditions = [f"{quote(name)} = {sql_text(value)}" for name, value in static]
            conditions += [f"({predicate})"] if predicate else []
            where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
            kinds = {column.source: column.kind for column in columns}
            names = ", ".join(_selected(name, kinds.get(name)) for name in [*data, *partition])
            session = client.open_query(f"SELECT {names} FROM {table.target.sql}{where}")
    except ServiceError as error:
        explain(error, client.connection, f"reading {table.target}")
    return ReadJob(client.connection, client.tunnel_endpoint(), table.target, session, tuple(columns), static)


def _selected(name: str, kind: MaxComputeType | None) -> str:
    """A column of a query; PyODPS would read the bytes of a DECIMAL without scale as one of scale 18."""
    if kind is not None and kind.root == "DECIMAL" and not kind.scale:
        return f"CAST({quote(name)} AS STRING) AS {quote(name)}"
    return quote(name)


def declared_columns(table: MaxComputeTable, actual: TableState) -> list[ReadColumn]:
    """The declared columns as they are in the table."""
    fixed = dict(table.partitions.static)
    columns = []
    for column in table.columns:
        name = column.name.lower()
        assert column.type is not None
        present = actual.column(name)
        assert present is not None
        columns.append(
            ReadColumn(
                name=column.name,
                source=name,
                declared=column.type,
                kind=present.type,
                partition=name in table.partitions.dynamic,
                fixed=fixed.get(name),
                default=table.partitions.default if name in table.partitions.dynamic else None,
            )
        )
    return columns
