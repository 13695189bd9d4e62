"""Rows of a change frame made ready for a table: cast column by column, and sorted out where the table refuses them.

Runs in Spark's workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.destination import OPERATION, OPERATION_DELETE, RefusedRow
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.types import LogicalType
from upsert_platform.maxcompute.connection import ServiceError
from upsert_platform.maxcompute.encode import encode, neutral_value
from upsert_platform.maxcompute.partition_spec import refuse_value
from upsert_platform.maxcompute.types import MaxComputeType, wire_type
from upsert_platform.writing.not_null import null_refusals
from upsert_platform.writing.row_text import refused_row

OPERATION_COLUMN: Final = "__operation"
VALUE_COLUMNS: Final = "__value_cols"
"""Column of a body: ids of the columns that a row sets; without any it sets all."""
OPERATION_CODES: Final = {"U": 85, "D": 68}
PARTITION_PREFIX: Final = internal("partition_")
"""Text columns of a change frame, one per dynamic partition column in order: `_partition_0` and so on."""
FITS: Final = f"{PARTITION_PREFIX}fits"
"""BOOLEAN column of a change frame whose rows may move: whether the table takes the row."""


@dataclass(frozen=True, slots=True)
class WireColumn:
    """A column of the table.

    Attributes:
        name: in the table.
        source: the declared column that fills it; None for columns that only the table has: they are null in rows that
            are appended, and stay as they are when a key is put (`WirePlan.partial`).
        declared: type of that column.
        required: no null may stand in it.
        key: whether it is in the table's primary key.
    """

    name: str
    source: str | None
    declared: LogicalType | None
    kind: MaxComputeType
    required: bool = False
    key: bool = False


@dataclass(frozen=True, slots=True)
class WirePlan:
    """The conversion of change rows to the table's rows.

    Attributes:
        columns: all data columns of the table, in its order.
        partitions: names of the dynamic partition columns, in order.
        upsert: whether rows carry an operation and are put by their key; otherwise they are appended.
        deletes: whether rows may delete.
        key: declared primary key, for messages.
        partial: whether a row that is put sets the declared columns alone, and the others keep their value.
    """

    columns: tuple[WireColumn, ...]
    partitions: tuple[str, ...]
    upsert: bool
    key: tuple[str, ...]
    partial: bool = False
    deletes: bool = True

    @property
    def set_columns(self) -> tuple[str, ...]:
        """Names of the columns that rows set, where they do not set all: the declared ones beside the key.

        Of a declared key alone it is the key, for no names would be all columns.
        """
        if not self.partial:
            return ()
        beside = tuple(column.name for column in self.columns if column.source is not None and not column.key)
        return beside or tuple(column.name for column in self.columns if column.key)

    def schema(self) -> pa.Schema:
        """The schema of bodies: data columns, dynamic partition columns as text, the operation."""
        fields = [pa.field(column.name, wire_type(column.kind)) for column in self.columns]
        fields += [pa.field(name, pa.string()) for name in self.partitions]
        if self.upsert:
            fields.append(pa.field(OPERATION_COLUMN, pa.int8()))
        return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class WireRows:
    """Rows ready to be sent, and those that will not be.

    Attributes:
        rows: of the plan's schema.
        deletes: how many of `rows` delete.
    """

    rows: pa.RecordBatch
    deletes: int
    refused: tuple[RefusedRow, ...] = ()


@dataclass(slots=True)
class _Refusals:
    size: int
    reasons: dict[int, list[str]] = field(default_factory=dict)

    def add(self, bad: np.ndarray, reason: str) -> None:
        for index in np.flatnonzero(bad):
            self.reasons.setdefault(int(index), []).append(reason)


def encode_rows(changes: pa.RecordBatch, plan: WirePlan) -> WireRows:
    """Makes a batch of a change frame ready.

    A delete keeps its key; other columns become null, or a neutral value where the table wants one. Rows are refused
    for a null where the table has none, for values over a limit (`upsert_platform.maxcompute.encode`), for partition
    values that no partition can have, and, in `insert` mode, for being deletes.

    Args:
        changes: declared columns, `_op`, and one `PARTITION_PREFIX` ``<n>`` text column per dynamic partition column.
    """
    columns, deletes, refusals = _judge(changes, plan)
    if plan.upsert:
        columns.append(pa.array(np.where(deletes, OPERATION_CODES["D"], OPERATION_CODES["U"]).astype(np.int8)))
    rows = pa.RecordBatch.from_arrays(columns, schema=plan.schema())
    if not refusals.reasons:
        return WireRows(rows, int(deletes.sum()))
    keep = np.ones(changes.num_rows, dtype=bool)
    keep[list(refusals.reasons)] = False
    names = [name for name in changes.schema.names if not name.startswith(PARTITION_PREFIX)]
    refused = tuple(
        refused_row(changes, index, columns=names, key=plan.key, reason="; ".join(reasons))
        for index, reasons in sorted(refusals.reasons.items())
    )
    return WireRows(rows.filter(pa.array(keep)), int((deletes & keep).sum()), refused)


def fitting(changes: pa.RecordBatch, plan: WirePlan, not_null: Sequence[tuple[str, LogicalType]] = ()) -> pa.Array:
    """Return a mask of the rows of a batch that the table receives.

    A delete's partition is not looked at, for it is where the row is found.

    Args:
        not_null: columns in which a null is refused before the table sees the row.
    """
    *_, refusals = _judge(changes, plan, partitions_of_deletes=False)
    fits = np.ones(changes.num_rows, dtype=bool)
    fits[[*refusals.reasons, *null_refusals(changes, not_null)]] = False
    return pa.array(fits)


def _judge(
    changes: pa.RecordBatch, plan: WirePlan, *, partitions_of_deletes: bool = True
) -> tuple[list[pa.Array], np.ndarray, _Refusals]:
    """The columns of a batch in their wire types, which rows delete, and what is refused."""
    deletes = np.asarray(pc.equal(changes.column(OPERATION), OPERATION_DELETE))
    refusals = _Refusals(changes.num_rows)
    if not plan.deletes:
        refusals.add(deletes, "a delete cannot be appended: 'sink.operation' is 'insert'")
    columns = [_column(changes, column, deletes, refusals) for column in plan.columns]
    looked_at = ~deletes | partitions_of_deletes
    for index, name in enumerate(plan.partitions):
        values = changes.column(f"{PARTITION_PREFIX}{index}").cast(pa.string())
        _check_partition(values, name, refusals, looked_at)
        columns.append(values)
    return columns, deletes, refusals


def _column(changes: pa.RecordBatch, column: WireColumn, deletes: np.ndarray, refusals: _Refusals) -> pa.Array:
    if column.source is None or column.declared is None:
        return pa.nulls(changes.num_rows, wire_type(column.kind))
    values = changes.column(column.source)
    encoded = encode(values, column.declared, column.kind)
    counts = np.ones(changes.num_rows, dtype=bool) if column.key else ~deletes
    for bad, reason in encoded.refused:
        refusals.add(bad & counts, f"column '{column.source}' {reason}")
    if column.required or column.key:
        missing = np.asarray(pc.is_null(values)) & counts
        refusals.add(missing, f"column '{column.source}' is null, the table has it NOT NULL")
    if column.key or not deletes.any():
        return encoded.values
    absent = neutral_value(column.kind) if column.required else pa.scalar(None, encoded.values.type)
    return pc.if_else(pa.array(deletes), absent, encoded.values)


def _check_partition(values: pa.Array, name: str, refusals: _Refusals, looked_at: np.ndarray) -> None:
    missing = "has no value, and 'sink.partition.default-value' is none of its type"
    refusals.add(np.asarray(pc.is_null(values)) & looked_at, f"partition column '{name}' {missing}")
    coded = pc.dictionary_encode(values)
    for index, value in enumerate(coded.dictionary.to_pylist()):
        reason = refuse_value(value)
        if reason:
            bad = np.asarray(pc.fill_null(pc.equal(coded.indices, index), False)) & looked_at
            refusals.add(bad, f"partition column '{name}' {reason}")


def value_column_ids(plan: WirePlan, ids: Mapping[str, int]) -> tuple[int, ...]:
    """The ids of the columns that rows of a partial plan set.

    Args:
        ids: of the table's columns, as the service tells them for a session.

    Raises:
        ServiceError: it tells none for one of them; without it the row would set all columns.
    """
    lacking = [name for name in plan.set_columns if name not in ids]
    if lacking:
        text = f"the service tells no id of column '{lacking[0]}', without which other columns would be set to null"
        raise ServiceError(text, status=409, code="NoColumnIds", sure=True)
    return tuple(ids[name] for name in plan.set_columns)


def with_value_columns(rows: pa.RecordBatch, ids: Sequence[int]) -> pa.RecordBatch:
    """Rows of `encode_rows` that set the columns of these ids alone; a delete is of the whole row."""
    puts = np.asarray(pc.equal(rows.column(OPERATION_COLUMN), OPERATION_CODES["U"]))
    counts = np.where(puts, len(ids), 0)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    values = pa.ListArray.from_arrays(offsets, pa.array(np.tile(np.asarray(ids, np.int64), int(puts.sum()))))
    return rows.append_column(VALUE_COLUMNS, values)


def slices(rows: pa.RecordBatch, most_bytes: int) -> Sequence[pa.RecordBatch]:
    """Parts of about at most so many bytes each; a single row may be larger."""
    if rows.num_rows == 0:
        return []
    parts = min(rows.num_rows, -(-rows.nbytes // most_bytes))
    step = -(-rows.num_rows // max(parts, 1))
    return [rows.slice(start, step) for start in range(0, rows.num_rows, step)]
