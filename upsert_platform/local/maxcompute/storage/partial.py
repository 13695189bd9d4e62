"""Partial updates: rows that set some columns only, made whole when they are committed.

They are resolved one by one in the order in which they came, since each builds on what stands before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from upsert_platform.local.maxcompute.schema import (
    DELETE,
    OPERATION,
    UPSERT,
    VALUE_COLUMNS,
    VALUE_COLUMNS_ID,
    Table,
)
from upsert_platform.local.maxcompute.storage.compute import Compute, quoted
from upsert_platform.local.maxcompute.storage.segments import File, SegmentFiles, storage_ids
from upsert_platform.local.maxcompute.storage.snapshot import Rows

Row = dict[str, Any]


def is_partial(files: Iterable[File]) -> bool:
    """Return whether one of the files has rows that set some columns only."""
    return any(VALUE_COLUMNS_ID in file.columns for file in files)


def resolve(segments: SegmentFiles, compute: Compute, table: Table, files: Iterable[File], current: Rows) -> File:
    """Writes the changes of these files as whole rows, one per key.

    Args:
        current: what the partition holds before the changes.
    """
    parts = [_with_columns_set(segments, table, file) for file in files]
    changes = pa.concat_tables(parts)
    names = [column.name for column in table.columns]
    states: dict[tuple[Any, ...], Row | None] = {
        _key(table, row): row for row in _current_rows(compute, table, changes, current)
    }
    touched: dict[tuple[Any, ...], None] = {}
    by_id = {column.column_id: column.name for column in table.columns}
    for change in changes.to_pylist():
        key = _key(table, change)
        touched[key] = None
        if change[OPERATION] == DELETE:
            states[key] = None
            continue
        named = change[VALUE_COLUMNS]
        if not named:
            states[key] = {name: change[name] for name in names}
            continue
        base = states.get(key) or dict.fromkeys(names)
        chosen = {by_id[number] for number in named if number in by_id} | set(table.primary_key)
        states[key] = {name: change[name] if name in chosen else base[name] for name in names}
    rows = []
    for key in touched:
        state = states[key]
        if state is None:
            rows.append({**dict(zip(table.primary_key, key, strict=True)), OPERATION: DELETE})
        else:
            rows.append({**state, OPERATION: UPSERT})
    schema = table.arrow_schema.append(pa.field(OPERATION, pa.int8()))
    whole = pa.Table.from_pylist(rows, schema=schema)
    return segments.write_table(whole, columns=storage_ids(whole.column_names, table.columns))


def _key(table: Table, row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in table.primary_key)


def _with_columns_set(segments: SegmentFiles, table: Table, file: File) -> pa.Table:
    rows = segments.aligned(file, table.columns, operations=True)
    if VALUE_COLUMNS_ID in file.columns:
        named = segments.read(file).column(file.columns.index(VALUE_COLUMNS_ID)).cast(pa.list_(pa.int64()))
    else:
        named = pa.chunked_array([pa.nulls(rows.num_rows, pa.list_(pa.int64()))])
    return rows.append_column(VALUE_COLUMNS, named)


def _current_rows(compute: Compute, table: Table, changes: pa.Table, current: Rows) -> list[Row]:
    """The rows that the changed keys have now."""
    keys = ", ".join(quoted(name) for name in table.primary_key)
    with compute.cursor() as cursor:
        cursor.register("changes", changes.select(list(table.primary_key)))
        cursor.register("present", current.live_table())
        found = cursor.sql(f"SELECT * FROM present SEMI JOIN changes USING ({keys})").to_arrow_table()
    return found.to_pylist()
