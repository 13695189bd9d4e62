"""Partitions of a change frame: which partition every row belongs to, how many there are, and rows that move.

Uses Spark; the specs themselves are in `upsert_platform.maxcompute.partition_spec`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from upsert_platform.core.destination import OPERATION, OPERATION_DELETE, OPERATION_UPSERT, SEQUENCE
from upsert_platform.core.errors import DestinationError
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.model import Column
from upsert_platform.core.task_runner import RowsOfTask
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.maxcompute.assigners import format_time
from upsert_platform.maxcompute.client import TableState
from upsert_platform.maxcompute.names import quote
from upsert_platform.maxcompute.partition_spec import MAX_VALUE_BYTES, PartitionPlan, Spec
from upsert_platform.maxcompute.rows import FITS, PARTITION_PREFIX, WirePlan, fitting
from upsert_platform.maxcompute.stored import default_text, is_absent, stored_value
from upsert_platform.maxcompute.table import MaxComputeTable

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

_PRESENT = internal("present_")
_KEY = internal("key_")
_PUT = internal("put_")
_PUT_KEY = internal("put_key_")
_TEXT = LogicalType(TypeName.STRING)
_REFUSED_VALUE = r"""[\x00-\x1f\x7f/\\'",=]|(?U:^\s|\s$)"""


def partition_columns(plan: PartitionPlan) -> tuple[str, ...]:
    """Names of the text columns that `with_partitions` adds."""
    return tuple(f"{PARTITION_PREFIX}{index}" for index in range(len(plan.dynamic)))


def with_partitions(changes: DataFrame, table: MaxComputeTable) -> DataFrame:
    """Adds to every row the text of its dynamic partition columns; null and blank become the default value.

    Raises:
        DestinationError: the assigner cannot be imported.
    """
    from pyspark.sql import functions as F

    plan = table.partitions
    declared = {column.name.lower(): column for column in table.columns}
    if plan.assigner:
        changes = _assign(changes, plan)
        texts: list[SparkColumn] = [F.col(name) for name in partition_columns(plan)]
    elif plan.time_format:
        texts = [F.lit(format_time(plan.time_format, datetime.now(UTC), plan.time_zone))]
    else:
        texts = [_as_text(declared[name]) for name in plan.dynamic]
    filled = {}
    for name, column, text in zip(plan.dynamic, partition_columns(plan), texts, strict=True):
        kind = declared[name].type if name in declared else None
        default = plan.default if kind is None else default_text(plan, kind)
        filled[column] = F.when(is_absent(text, _TEXT), F.lit(default)).otherwise(text)
    return changes.withColumns(filled) if filled else changes


def with_spec(changes: DataFrame, table: MaxComputeTable, name: str) -> DataFrame:
    """Adds to every row the spec of its partition, ``k=v,k2=v2``, in a column of that name."""
    from pyspark.sql import functions as F

    plan = table.partitions
    static = [F.lit(f"{key}={value}") for key, value in plan.static]
    texts = zip(plan.dynamic, partition_columns(plan), strict=True)
    dynamic = [F.concat(F.lit(f"{key}="), F.col(column)) for key, column in texts]
    placed = with_partitions(changes, table).withColumn(name, F.concat_ws(",", *static, *dynamic))
    return placed.drop(*partition_columns(plan))


def _as_text(column: Column) -> SparkColumn:
    """A declared column as the text of a partition; blanks at the end of a CHAR are not significant."""
    from pyspark.sql import functions as F

    assert column.type is not None
    text = F.col(quote(column.name)).cast("string")
    return F.rtrim(text) if column.type.name is TypeName.CHAR else text


def with_verdicts(frame: DataFrame, plan: WirePlan, not_null: Sequence[tuple[str, LogicalType]] = ()) -> DataFrame:
    """Adds whether the table takes a row: what does not fit is refused later, and must not move or delete a row first.

    Args:
        frame: of `with_partitions`.
        not_null: columns in which a null is refused too.
    """
    from pyspark.sql.types import BooleanType, StructField, StructType

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.append_column(FITS, fitting(batch, plan, not_null))

    return frame.mapInArrow(judge, StructType([*frame.schema.fields, StructField(FITS, BooleanType())]))


def _assign(changes: DataFrame, plan: PartitionPlan) -> DataFrame:
    assert plan.assigner is not None
    load_assigner(plan.assigner)
    assigner, dynamic = plan.assigner, plan.dynamic
    columns = partition_columns(plan)

    def assign(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        function = load_assigner(assigner)
        for batch in batches:
            yield _append(batch, function(batch), dynamic, columns, assigner)

    from pyspark.sql.types import StringType, StructField, StructType

    fields = [*changes.schema.fields, *(StructField(name, StringType()) for name in columns)]
    return changes.mapInArrow(assign, StructType(fields))


def _append(
    batch: pa.RecordBatch, values: Any, dynamic: tuple[str, ...], columns: tuple[str, ...], assigner: str
) -> pa.RecordBatch:
    for name, column in zip(dynamic, columns, strict=True):
        if name not in values or len(values[name]) != batch.num_rows:
            raise ValueError(f"assigner '{assigner}' must give one value per row for partition column '{name}'")
        texts = values[name] if isinstance(values[name], pa.Array) else pa.array(values[name])
        batch = batch.append_column(column, texts.cast(pa.string()))
    return batch


def load_assigner(name: str) -> Callable[[Any], Any]:
    """The function behind ``package.module:function``: record batch to mapping of partition column to values.

    Raises:
        DestinationError: it cannot be imported.
    """
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise DestinationError(
            f"option 'sink.partition.assigner.class' = '{name}' cannot be imported: {error}"
        ) from None
    if not callable(function):
        raise DestinationError(f"option 'sink.partition.assigner.class' = '{name}' is not a function")
    return function


def distinct_specs(frame: DataFrame | RowsOfTask, table: MaxComputeTable) -> list[Spec]:
    """The partitions that a frame writes; values that no partition can have are left out (their rows are refused).

    Args:
        frame: of `with_partitions`.

    Raises:
        DestinationError: more than ``sink.dynamic-partition.limit``.
    """
    plan = table.partitions
    if not plan.columns:
        return []
    if not plan.dynamic:
        return [plan.static]
    from pyspark.sql import functions as F

    assert not isinstance(frame, RowsOfTask)
    names = partition_columns(plan)
    for name in names:
        frame = frame.where(~F.col(name).rlike(_REFUSED_VALUE) & (F.octet_length(F.col(name)) <= MAX_VALUE_BYTES))
    found = frame.select(*names).distinct().limit(plan.limit + 1).collect()
    if len(found) > plan.limit:
        raise DestinationError(
            f"table '{table.name}': the batch writes more than {plan.limit} partitions of {table.target} by"
            f" ({', '.join(plan.dynamic)}). Nothing was written. Raise 'sink.dynamic-partition.limit', or choose a"
            " coarser partition column"
        )
    return sorted((*plan.static, *zip(plan.dynamic, row, strict=True)) for row in found)


def may_leave(frame: DataFrame, table: MaxComputeTable) -> DataFrame | None:
    """The rows whose keys must be looked for in the table, or None where there is none: all that may move, or, where
    rows stay (``sink.partition.move-rows``), the deletes, which know their key alone.

    Args:
        frame: of `with_partitions`; rows that stay are counted, so it should be persisted.
    """
    from pyspark.sql import functions as F

    if not table.places:
        return frame
    deletes = frame.where(F.col(OPERATION) == OPERATION_DELETE)
    return None if deletes.isEmpty() else deletes


def with_moves(frame: DataFrame, present: DataFrame, table: MaxComputeTable, actual: TableState) -> DataFrame:
    """Deletes rows where they are, when the partition does not follow from the primary key.

    A delete knows its key alone, and an update may move its row to another partition; a key is unique only within a
    partition, so the old row must be deleted in every partition that holds it.

    Args:
        frame: of `with_verdicts`, at most one row per key. Rows that do not fit move and delete nothing.
        actual: the table as it is.
        present: where the keys of `may_leave` are now.

    Returns:
        The frame with deletes sent to the partitions that hold the rows (none where there is no row), and a delete
        added for every row that moves.
    """
    from pyspark.sql import functions as F

    names = partition_columns(table.partitions)
    places = [f"{_PRESENT}{index}" for index in range(len(names))]
    keys = list(table.primary_key)
    for index, name in enumerate(keys):
        present = present.withColumnRenamed(name, f"{_KEY}{index}")
    same = [
        stored_value(table, actual, name, F.col(quote(name))) == F.col(f"{_KEY}{index}")
        for index, name in enumerate(keys)
    ]
    joined = frame.join(present, same, "left")
    order = [F.col(quote(name)) for name in frame.columns]
    upserts = frame.where(F.col(OPERATION) == OPERATION_UPSERT).select(*order)
    moved = reduce(lambda a, b: a | b, [~F.col(n).eqNullSafe(F.col(p)) for n, p in zip(names, places, strict=True)])
    here = F.col(places[0]).isNotNull()
    deletes = F.col(OPERATION) == OPERATION_DELETE
    leaving = joined.where(here & F.col(FITS) & (deletes if table.places else deletes | moved))
    if table.places:
        leaving = _without_put_again(leaving, frame, table, actual, places)
    dynamic = {name.lower() for name in table.partitions.dynamic}
    kept = {*keys, *names, SEQUENCE}
    columns = []
    for name in frame.columns:
        if name in names:
            columns.append(F.col(places[names.index(name)]).alias(name))
        elif name == OPERATION:
            columns.append(F.lit(OPERATION_DELETE).alias(name))
        elif name in kept and name.lower() not in dynamic:
            columns.append(F.col(quote(name)))
        else:
            columns.append(F.lit(None).cast(frame.schema[name].dataType).alias(name))
    return upserts.unionByName(leaving.select(*columns))


def _without_put_again(
    leaving: DataFrame, frame: DataFrame, table: MaxComputeTable, actual: TableState, places: Sequence[str]
) -> DataFrame:
    """Leaves out deletes of rows that the same frame puts: a delete comes before the puts of its key."""
    from pyspark.sql import functions as F

    put = frame.where((F.col(OPERATION) == OPERATION_UPSERT) & F.col(FITS)).select(
        *[
            stored_value(table, actual, name, F.col(quote(name))).alias(f"{_PUT_KEY}{index}")
            for index, name in enumerate(table.primary_key)
        ],
        *[F.col(name).alias(f"{_PUT}{index}") for index, name in enumerate(partition_columns(table.partitions))],
    )
    same = [F.col(f"{_KEY}{index}").eqNullSafe(F.col(f"{_PUT_KEY}{index}")) for index in range(len(table.primary_key))]
    same += [F.col(place).eqNullSafe(F.col(f"{_PUT}{index}")) for index, place in enumerate(places)]
    return leaving.join(put, reduce(lambda a, b: a & b, same), "left_anti")


def present_name(index: int) -> str:
    """Column of a frame of present partitions: the text of the dynamic partition column of that index."""
    return f"{_PRESENT}{index}"
