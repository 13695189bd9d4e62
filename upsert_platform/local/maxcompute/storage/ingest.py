"""Rows that come in: checked, cast to the types of storage, routed to partitions, written to files not yet committed.

Every way of writing ends here, so tunnel, storage API and SQL refuse the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.local.maxcompute.errors import ServiceError, invalid_argument
from upsert_platform.local.maxcompute.schema import (
    DELETE,
    OPERATION,
    UPSERT,
    VALUE_COLUMNS,
    Column,
    Table,
    format_spec,
    parse_spec,
)
from upsert_platform.local.maxcompute.storage.segments import File, SegmentFiles, storage_ids


@dataclass(frozen=True)
class Routed:
    """A file of one partition; ``spec`` is empty for a table without partitions."""

    spec: str
    file: File


def stage(
    files: SegmentFiles, table: Table, rows: pa.Table, *, static: Mapping[str, str], body: bytes | None = None
) -> list[Routed]:
    """Writes rows to files, one per partition that they go to.

    Args:
        rows: data columns by name, in any order; ``__operation`` and ``__value_cols`` for a table with a primary key;
            as trailing columns the partition keys that ``static`` does not give.
        static: the leading partition keys and their values.
        body: the Arrow IPC stream that the rows were read from, kept as it is where nothing has to be changed.

    Raises:
        ServiceError: a column is unknown or of a type that cannot be cast, a value is null that must not be, an
            operation is neither 85 nor 68.
    """
    if not rows.num_rows:
        return []
    dynamic = [key for key in table.partition_keys if key.name not in static]
    rows = rows.rename_columns([name if name.startswith("__") else name.lower() for name in rows.column_names])
    data, changed = _data_columns(table, rows, {key.name for key in dynamic})
    _check_operations(table, data)
    _check_nulls(table, data)
    partial = _is_partial(table, data)
    if not dynamic:
        spec = format_spec({key.name: static[key.name] for key in table.partition_keys})
        columns = storage_ids(data.column_names, table.columns, partial=partial)
        if body is not None and not changed:
            return [Routed(spec, files.write_bytes(body, rows=rows.num_rows, columns=columns))]
        return [Routed(spec, files.write_table(data, columns=columns))]
    return _routed(files, table, data, rows, dynamic, static, partial=partial)


def _data_columns(table: Table, rows: pa.Table, partition_names: set[str]) -> tuple[pa.Table, bool]:
    """The rows' data and system columns, of storage types, and whether that changed or left out a column."""
    known: dict[str, Column] = {column.name: column for column in table.columns}
    names: list[str] = []
    arrays: list[pa.ChunkedArray] = []
    changed = False
    for name, values in zip(rows.column_names, rows.columns, strict=True):
        if name in partition_names:
            changed = True
            continue
        if name == OPERATION and table.primary_key:
            wanted: pa.DataType = pa.int8()
        elif name == VALUE_COLUMNS and table.primary_key:
            wanted = values.type
        elif name in known:
            wanted = known[name].type.arrow
        else:
            raise invalid_argument(f"column '{name}' does not exist in table {table.name}")
        names.append(name)
        cast = values
        if values.type != wanted:
            cast, changed = _cast(values, wanted, name), True
        column_type = known[name].type if name in known else None
        if column_type is not None and column_type.name == "char":
            cast, changed = pc.utf8_rpad(cast, width=column_type.arguments[0], padding=" "), True
        arrays.append(cast)
    if not names:
        raise invalid_argument(f"the rows for table {table.name} have no column of it")
    return pa.Table.from_arrays(arrays, names=names), changed


def _cast(values: pa.ChunkedArray, wanted: pa.DataType, name: str) -> pa.ChunkedArray:
    if pa.types.is_timestamp(wanted) and pa.types.is_struct(values.type):
        seconds, nanos = (pc.struct_field(values, index) for index in (0, 1))
        ticks = pc.add(pc.multiply(seconds.cast(pa.int64()), 1_000_000_000), nanos.cast(pa.int64()))
        return ticks.cast(wanted)
    if pa.types.is_timestamp(values.type) and values.type.tz is not None:
        values = (
            values.cast(pa.timestamp(values.type.unit, "UTC")).cast(pa.int64()).cast(pa.timestamp(values.type.unit))
        )
    try:
        return values.cast(wanted, safe=not pa.types.is_timestamp(wanted))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ServiceError(
            400, "DataStoreError", f"column '{name}': {values.type} cannot be stored as {wanted}: {error}"
        ) from error


def _is_partial(table: Table, data: pa.Table) -> bool:
    """Return whether a row sets some columns only.

    Raises:
        ServiceError: one does, and the table does not allow it.
    """
    if VALUE_COLUMNS not in data.column_names:
        return False
    partial = pc.any(pc.greater(pc.list_value_length(data.column(VALUE_COLUMNS)), 0)).as_py()
    if partial and not table.partial_update:
        raise invalid_argument(
            f"partial updates of table {table.name} need the property 'acid.partial.fields.update.enable'='true'"
        )
    return bool(partial)


def _check_operations(table: Table, data: pa.Table) -> None:
    if not table.primary_key or OPERATION not in data.column_names:
        return
    operations = data.column(OPERATION)
    # The service takes 1 for an upsert as well (spec 3.11).
    allowed = pc.is_in(operations, value_set=pa.array([UPSERT, DELETE, 1], pa.int8()))
    if operations.null_count or not pc.all(allowed).as_py():
        raise ServiceError(400, "DataStoreError", f"{OPERATION} takes {UPSERT} (upsert) and {DELETE} (delete) alone")


def _check_nulls(table: Table, data: pa.Table) -> None:
    deletes = None
    if OPERATION in data.column_names:
        deletes = pc.equal(data.column(OPERATION), DELETE)
    for column in table.columns:
        if column.nullable:
            continue
        is_key = column.name in table.primary_key
        if column.name not in data.column_names:
            if is_key:
                raise ServiceError(400, "InternalError", f"the rows lack primary key column '{column.name}'")
            if deletes is not None and pc.all(deletes).as_py():
                continue
            if table.partial_update and VALUE_COLUMNS in data.column_names:
                continue
            raise ServiceError(400, "DataStoreError", f"the rows lack column '{column.name}', which is NOT NULL")
        values = data.column(column.name)
        if not values.null_count:
            continue
        if is_key:
            raise ServiceError(400, "InternalError", f"null value in primary key column '{column.name}'")
        wrong = pc.is_null(values) if deletes is None else pc.and_not(pc.is_null(values), deletes)
        if table.partial_update and VALUE_COLUMNS in data.column_names:
            partial = pc.greater(pc.fill_null(pc.list_value_length(data.column(VALUE_COLUMNS)), 0), 0)
            wrong = pc.and_not(wrong, partial)
        if pc.any(wrong).as_py():
            raise ServiceError(400, "DataStoreError", f"null value in column '{column.name}', which is NOT NULL")


def _routed(
    files: SegmentFiles,
    table: Table,
    data: pa.Table,
    rows: pa.Table,
    dynamic: list[Column],
    static: Mapping[str, str],
    *,
    partial: bool,
) -> list[Routed]:
    """Splits rows by the values of their partition columns."""
    keys = []
    for key in dynamic:
        if key.name not in rows.column_names:
            raise invalid_argument(f"partition column '{key.name}' of table {table.name} is neither given nor a column")
        values = rows.column(key.name).cast(pa.string())
        if values.null_count or pc.any(pc.equal(values, "")).as_py():
            raise invalid_argument(f"null or empty value in partition column '{key.name}' of table {table.name}")
        keys.append(values)
    columns = storage_ids(data.column_names, table.columns, partial=partial)
    names = [key.name for key in dynamic]
    values_table = pa.Table.from_arrays(keys, names=names)
    found = []
    for values in values_table.group_by(names, use_threads=False).aggregate([]).to_pylist():
        mask = None
        for name in names:
            equal = pc.equal(values_table.column(name), values[name])
            mask = equal if mask is None else pc.and_(mask, equal)
        spec = format_spec({key.name: static.get(key.name, values.get(key.name, "")) for key in table.partition_keys})
        parse_spec(spec)
        found.append(Routed(spec, files.write_table(data.filter(mask), columns=columns)))
    return found


def group_by_spec(routed: Iterable[Routed]) -> dict[str, tuple[File, ...]]:
    """Partition spec to files, in the order in which they were written."""
    grouped: dict[str, tuple[File, ...]] = {}
    for item in routed:
        grouped[item.spec] = (*grouped.get(item.spec, ()), item.file)
    return grouped
