"""Reads of a destination: all rows, the rows of some keys, or only where some keys are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from upsert_platform.maxcompute.client import TableState
from upsert_platform.maxcompute.connection import ServiceError, explain
from upsert_platform.maxcompute.maxstorage import MaxStorage
from upsert_platform.maxcompute.names import quote
from upsert_platform.maxcompute.partitions import present_name
from upsert_platform.maxcompute.reader import MOST_PREDICATE_KEYS, ReadColumn, ReadJob, key_predicate, read_frame
from upsert_platform.maxcompute.settings import MaxComputeTable
from upsert_platform.types import LogicalType, TypeName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(
    spark: SparkSession,
    *,
    table: MaxComputeTable,
    actual: TableState,
    storage: MaxStorage,
    keys: DataFrame | None = None,
) -> DataFrame:
    """Rows in declared columns and types.

    Raises:
        DestinationError: the service refuses.
        EndpointError: no answer.
    """
    return _read(spark, _declared_columns(table, actual), table=table, storage=storage, keys=keys)


def read_partitions(keys: DataFrame, *, table: MaxComputeTable, actual: TableState, storage: MaxStorage) -> DataFrame:
    """Which partitions hold these keys: the key columns, and a text column per dynamic partition column.

    Raises:
        DestinationError: the service refuses.
        EndpointError: no answer.
    """
    key = set(table.primary_key)
    columns = [column for column in _declared_columns(table, actual) if column.name in key]
    kinds = {column.name: column.type for column in actual.partition_columns}
    for index, name in enumerate(table.partitions.dynamic):
        columns.append(ReadColumn(present_name(index), name, LogicalType(TypeName.STRING), kinds[name], partition=True))
    return _read(keys.sparkSession, columns, table=table, storage=storage, keys=keys)


def _read(
    spark: SparkSession,
    columns: list[ReadColumn],
    *,
    table: MaxComputeTable,
    storage: MaxStorage,
    keys: DataFrame | None,
) -> DataFrame:
    predicate = ""
    if keys is not None:
        keys = keys.select(*map(quote, table.primary_key)).distinct()
        by_name = {column.name: column for column in columns}
        named = [by_name[name] for name in table.primary_key if not by_name[name].partition]
        few = keys.select(*[quote(column.name) for column in named]).limit(MOST_PREDICATE_KEYS + 1).collect()
        if len(few) <= MOST_PREDICATE_KEYS:
            predicate = key_predicate([tuple(row) for row in few], named)
    static = table.partitions.static
    fixed = [name for name, _ in static]
    try:
        session = storage.create_read_session(
            [column.source for column in columns if not column.partition and column.fixed is None],
            partition_columns=[*fixed, *dict.fromkeys(column.source for column in columns if column.partition)],
            partitions=[table.partitions.static_text] if static and not table.partitions.dynamic else [],
            predicate=predicate,
        )
    except ServiceError as error:
        explain(error, storage.connection, f"opening a read session on {table.target}")
    job = ReadJob(storage.connection, storage.endpoint, table.target, session, tuple(columns), static)
    frame = read_frame(spark, job)
    return frame if keys is None else frame.join(keys, list(table.primary_key), "left_semi")


def _declared_columns(table: MaxComputeTable, actual: TableState) -> list[ReadColumn]:
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
            )
        )
    return columns
