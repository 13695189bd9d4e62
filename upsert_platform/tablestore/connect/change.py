"""One Kafka record to one row change, by the connector's modes (specification section 2, rules of 2.6)."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from upsert_platform.tablestore import limits
from upsert_platform.tablestore.connect.converted import read_record
from upsert_platform.tablestore.connect.options import ConnectTable, KeyMode
from upsert_platform.tablestore.connect.record import ConnectRecord, Fields, Side, Text
from upsert_platform.tablestore.connect.values import (
    AUTO_INCREMENT,
    DirtyRecordError,
    KeyValue,
    Value,
    automatic,
    converted,
    fate_of_record,
    key_value,
    structured,
    structured_as,
    text_of,
)
from upsert_platform.tablestore.encoder import RowOperation
from upsert_platform.tablestore.options import InsertMode

VALUE_COLUMN, KEY_COLUMN = "value", "key"
"""Columns that hold a side read as a string."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """The operation on a row.

    Attributes:
        key: primary key columns in order.
        cells: columns that are put.
        removed: columns of which all versions are deleted (UPDATE only); sent before the cells.
    """

    operation: RowOperation
    key: tuple[tuple[str, KeyValue], ...]
    cells: Mapping[str, Value] = field(default_factory=dict)
    removed: tuple[str, ...] = ()


@fate_of_record
def row_change(record: ConnectRecord, table: ConnectTable) -> RowChange | None:
    """Turns a record into a row change; None when a transform drops it. Keeps no state from record to record.

    Raises:
        DirtyRecordError: the record cannot become one; the message is the reason.
    """
    found = read_record(record, table.key_side, table.value_side, table.transforms)
    if found is None:
        return None
    record, key_side, value_side = found.record, found.key, found.value
    key = _primary_key(record, table, key_side, value_side)
    fields = _fields(table, key_side, value_side)
    columns = _columns(table, fields)
    if table.key_mode is KeyMode.RECORD_KEY and value_side is None:
        return _tombstone(table, key, columns)
    if table.key_mode is KeyMode.SEARCH:
        return _written(table, key, {**columns, "timestamp": _search_time(record, table)})
    if not fields and not (table.key_mode is KeyMode.RECORD_KEY and isinstance(value_side, Fields)):
        raise DirtyRecordError("the record has no column to write beside its primary key")
    return _written(table, key, columns)


def row_key(record: ConnectRecord, tables: Mapping[str, ConnectTable]) -> bytes | None:
    """The same bytes for records that change one row; None where every record has a row of its own, or is dropped.

    Args:
        tables: topic to table.

    Raises:
        DirtyRecordError: the record cannot become a row change.
    """
    table = tables[record.topic]
    change = row_change(record, table)
    if change is None or table.key_mode.is_place or any(value is AUTO_INCREMENT for _, value in change.key):
        return None
    parts = [value.hex() if isinstance(value, bytes) else value for _, value in change.key]
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()


def _tombstone(table: ConnectTable, key: tuple[tuple[str, KeyValue], ...], extra: dict[str, Value | None]) -> RowChange:
    """A null value: 2.6 rules 1 to 4. Fields of the key do not make the value less null (rule 10)."""
    if table.delete_mode.deletes_rows:
        return RowChange(RowOperation.DELETE, key)
    if table.insert_mode is InsertMode.PUT:
        return RowChange(RowOperation.PUT, key, {name: value for name, value in extra.items() if value is not None})
    if table.delete_mode.deletes_columns:
        raise DirtyRecordError("the value is null, and 'delete.mode' = 'column' deletes columns that a value names")
    raise DirtyRecordError("the value is null, and 'delete.mode' = 'none' deletes nothing")


def _written(table: ConnectTable, key: tuple[tuple[str, KeyValue], ...], columns: dict[str, Value | None]) -> RowChange:
    cells = {name: value for name, value in columns.items() if value is not None}
    if table.insert_mode is InsertMode.PUT:
        return RowChange(RowOperation.PUT, key, cells)
    nulls = tuple(name for name, value in columns.items() if value is None)
    removed = nulls if table.delete_mode.deletes_columns else ()
    if not cells and not removed:
        raise DirtyRecordError(
            "every column is null or absent, and 'insert.mode' = 'update' has nothing to write with"
            f" 'delete.mode' = '{table.delete_mode}'"
        )
    return RowChange(RowOperation.UPDATE, key, cells, removed)


def _primary_key(
    record: ConnectRecord, table: ConnectTable, key_side: Side, value_side: Side
) -> tuple[tuple[str, KeyValue], ...]:
    match table.key_mode:
        case KeyMode.KAFKA:
            return (("topic_partition", f"{record.topic}_{record.partition}"), ("offset", record.offset))
        case KeyMode.SEARCH:
            place = f"{record.topic}_{record.partition}_{record.offset}"
            digest = hashlib.md5(place.encode(), usedforsecurity=False).hexdigest()[:5]
            return (
                ("md5", digest), ("topic", record.topic), ("partition", record.partition), ("offset", record.offset),
            )  # fmt: skip
        case KeyMode.RECORD_KEY:
            return _key_from(key_side, table, "key")
    return _key_from(value_side, table, "value")


def _key_from(side: Side, table: ConnectTable, name: str) -> tuple[tuple[str, KeyValue], ...]:
    if side is None:
        raise DirtyRecordError(f"the {name} is null, and the primary key is taken from it")
    if isinstance(side, Text):
        if len(table.primary_key) != 1:
            raise DirtyRecordError(f"the {name} is a string, and the primary key has {len(table.primary_key)} columns")
        column, wanted = table.primary_key[0]
        return ((column, _key_column(side.text, column, wanted, name, has_schema=False)),)
    found: list[tuple[str, KeyValue]] = []
    for column, wanted in table.primary_key:
        value = side.values.get(column)
        if value is None and wanted == "auto_increment":
            found.append((column, AUTO_INCREMENT))
            continue
        if value is None:
            state = "null" if column in side.values else "absent"
            raise DirtyRecordError(f"primary key column '{column}' is {state} in the {name}")
        found.append((column, _key_column(value, column, wanted, name, has_schema=side.schema is not None)))
    return tuple(found)


def _key_column(value: Any, column: str, wanted: str, side: str, *, has_schema: bool) -> KeyValue:
    try:
        return key_value(value, wanted, has_schema=has_schema)
    except DirtyRecordError as error:
        raise DirtyRecordError(f"primary key column '{column}' in the {side}: {error}") from None


def _fields(table: ConnectTable, key_side: Side, value_side: Side) -> dict[str, tuple[Any, bool]]:
    """Fields of value and key (the key wins) without the primary key, each with whether it comes with a type."""
    fields: dict[str, tuple[Any, bool]] = {}
    if isinstance(value_side, Fields):
        fields.update((name, (value, value_side.schema is not None)) for name, value in value_side.values.items())
    elif isinstance(value_side, Text) and table.key_mode is not KeyMode.RECORD_VALUE:
        fields[VALUE_COLUMN] = (value_side.text, False)
    if isinstance(key_side, Fields):
        fields.update((name, (value, key_side.schema is not None)) for name, value in key_side.values.items())
    elif isinstance(key_side, Text) and table.key_mode is not KeyMode.RECORD_KEY:
        fields[KEY_COLUMN] = (key_side.text, False)
    for name in table.key_names:
        fields.pop(name, None)
    return fields


def _columns(table: ConnectTable, fields: dict[str, tuple[Any, bool]]) -> dict[str, Value | None]:
    """Fields whitelisted and converted; None is null."""
    if table.whitelist:
        fields = {name: fields[name] for name, _ in table.whitelist if name in fields}
    wanted = dict(table.whitelist)
    columns = {
        name: _column(name, value, wanted.get(name), table, has_schema=typed) for name, (value, typed) in fields.items()
    }
    if len(columns) > limits.MAX_COLUMNS_PER_ROW:
        raise DirtyRecordError(f"the row has {len(columns)} columns; Tablestore writes {limits.MAX_COLUMNS_PER_ROW}")
    return columns


def _column(name: str, value: Any, wanted: str | None, table: ConnectTable, *, has_schema: bool) -> Value | None:
    if not _is_column_name(name):
        raise DirtyRecordError(f"field '{name[:80]}': Tablestore takes a letter or '_', then letters, digits and '_'")
    if value is None:
        return None
    try:
        if has_schema:
            cell = structured(value) if wanted is None else structured_as(value, wanted)
        elif wanted is not None:
            cell = converted(value, wanted)
        else:
            cell = automatic(value) if table.identify_types else text_of(value)
    except DirtyRecordError as error:
        raise DirtyRecordError(f"field '{name}': {error}") from None
    size = len(cell.encode() if isinstance(cell, str) else cell) if isinstance(cell, str | bytes) else 0
    if size > limits.MAX_VALUE_BYTES:
        raise DirtyRecordError(f"field '{name}' has {size} bytes; Tablestore takes 2 MB")
    return cell


_is_column_name = lru_cache(maxsize=4096)(limits.is_valid_name)


def _search_time(record: ConnectRecord, table: ConnectTable) -> int:
    if table.search_timestamp == "local":
        return time.time_ns() // 1_000_000
    if record.timestamp is None:
        raise DirtyRecordError("the record has no timestamp")
    return record.timestamp
