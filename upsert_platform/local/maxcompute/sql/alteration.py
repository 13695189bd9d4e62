"""``ALTER TABLE``."""

from __future__ import annotations

import time
from dataclasses import replace

from upsert_platform.local.maxcompute.errors import already_exists, semantic_error
from upsert_platform.local.maxcompute.schema import ROW_POLICY, Column, Table
from upsert_platform.local.maxcompute.sql.context import Context, Result
from upsert_platform.local.maxcompute.sql.ddl import AlterTable
from upsert_platform.local.maxcompute.sql.definition import (
    add_partitions,
    check_new_column,
    check_properties,
    drop_partitions,
    matching_partitions,
    next_column_id,
    rename_partition,
)

_WIDENINGS = {
    "tinyint": {"smallint", "int", "bigint", "float", "double", "string"},
    "smallint": {"int", "bigint", "float", "double", "string"},
    "int": {"bigint", "double", "string"},
    "bigint": {"string"},
    "float": {"double", "string"},
    "double": {"string"},
    "char": {"varchar", "string"},
    "varchar": {"varchar", "string"},
    "decimal": {"decimal", "string"},
    "date": {"string"},
    "datetime": {"timestamp", "string"},
    "timestamp": {"string"},
}


def alter_table(context: Context, statement: AlterTable) -> Result:
    """Runs one ``ALTER TABLE`` statement."""
    table = _target(context, statement)
    match statement.action:
        case "add partitions":
            add_partitions(context, table, statement.specs, guarded=statement.guarded)
        case "drop partitions":
            drop_partitions(context, table, statement.specs, guarded=statement.guarded)
        case "rename partition":
            rename_partition(context, table, statement.specs)
        case "compact major" | "compact minor":
            compact(context, table, statement)
        case "touch":
            _touch(context, table, statement)
        case "rename":
            _rename(context, table, statement.names)
        case _:
            _change_definition(context, table, statement)
    return Result()


def _target(context: Context, statement: AlterTable) -> Table:
    """The table of a statement, or the view."""
    if not statement.view:
        return context.table(statement.name)
    found = context.relation(statement.name)
    if not found.query:
        raise semantic_error(f"{found.name} is a table: ALTER TABLE changes it")
    return found


def compact(context: Context, table: Table, statement: AlterTable) -> None:
    """``COMPACT``: one file per partition, with the newest row of each key."""
    if not table.transactional and statement.action == "compact major":
        raise semantic_error(f"table {table.name} is not transactional: there is nothing to compact")
    for partition in matching_partitions(context, table, statement.specs):
        context.store.compact(table, partition, major=statement.action == "compact major")


def _touch(context: Context, table: Table, statement: AlterTable) -> None:
    """``TOUCH``: the table, or partitions of it, count as modified now."""
    now = time.time()
    catalogue = context.store.catalogue
    with context.store.lock(table.table_id), catalogue.durable():
        if statement.specs:
            for partition in matching_partitions(context, table, statement.specs):
                catalogue.execute(
                    "UPDATE partitions SET modified = ? WHERE partition_id = ?", now, partition.partition_id
                )
        catalogue.execute("UPDATE tables SET last_modified = ? WHERE table_id = ?", now, table.table_id)


def _rename(context: Context, table: Table, name: tuple[str, ...]) -> None:
    schema, renamed = table.schema, name[-1]
    catalogue = context.store.catalogue
    with context.store.lock(table.table_id), catalogue.durable():
        if catalogue.find_table(schema, renamed) is not None:
            raise already_exists(f"Table or view with name {renamed} already exists")
        catalogue.put_table(replace(table, name=renamed, last_ddl=time.time()))


def _change_definition(context: Context, table: Table, statement: AlterTable) -> None:
    catalogue = context.store.catalogue
    with context.store.lock(table.table_id), catalogue.durable():
        table = _target(context, statement)
        now = time.time()
        match statement.action:
            case "add columns":
                table = _with_added(table, statement, now)
            case "drop columns":
                table = _without(table, statement.names, now)
            case "rename column":
                table = _renamed(table, *statement.names, now=now)
            case "change column":
                table = _changed(table, statement.names[0], statement.columns[0], now)
            case "comment column" | "allow nulls":
                table = _described(table, statement, now)
            case "cluster":
                table = replace(table, last_ddl=now)
            case "set properties":
                check_properties(table.name, statement.properties)
                if statement.properties.get("write.bucket.num", str(table.buckets)) != str(table.buckets):
                    raise semantic_error(f"table {table.name}: write.bucket.num cannot be changed")
                table = replace(table, properties={**table.properties, **statement.properties}, last_ddl=now)
            case "set row policy":
                table = replace(table, properties={**table.properties, ROW_POLICY: statement.text}, last_ddl=now)
            case "drop row policy":
                left = {name: value for name, value in table.properties.items() if name != ROW_POLICY}
                table = replace(table, properties=left, last_ddl=now)
            case "unset properties":
                for key in statement.names:
                    if key in ("transactional", "write.bucket.num"):
                        raise semantic_error(f"table {table.name}: '{key}' cannot be unset")
                left = {name: value for name, value in table.properties.items() if name not in statement.names}
                table = replace(table, properties=left, last_ddl=now)
            case "set owner":
                table = replace(table, owner=statement.text, last_ddl=now)
            case "set comment":
                table = replace(table, comment=statement.text, last_ddl=now)
            case "set lifecycle":
                table = replace(table, lifecycle=statement.number, last_ddl=now)
            case _:
                raise semantic_error(f"unsupported ALTER TABLE action: {statement.action}")
        catalogue.put_table(table)


def _with_added(table: Table, statement: AlterTable, now: float) -> Table:
    columns = list(table.columns)
    for column in statement.columns:
        if statement.guarded and any(existing.name == column.name for existing in columns):
            continue
        check_new_column(replace(table, columns=tuple(columns)), column)
        number = next_column_id(replace(table, columns=tuple(columns)))
        columns.append(replace(column, column_id=number))
    return table.with_columns(tuple(columns), now=now)


def _without(table: Table, names: tuple[str, ...], now: float) -> Table:
    for name in names:
        table.column(name)
        if name in table.primary_key:
            raise semantic_error(f"column '{name}' belongs to the primary key of table {table.name}")
    kept = tuple(column for column in table.columns if column.name not in names)
    if not kept:
        raise semantic_error(f"table {table.name} must keep a column")
    # A dropped column's id must not come back: old files still hold its values.
    properties = {**table.properties, "local.last.column.id": str(next_column_id(table))}
    return replace(table.with_columns(kept, now=now), properties=properties)


def _renamed(table: Table, before: str, after: str, *, now: float) -> Table:
    column = table.column(before)
    check_new_column(table, replace(column, name=after, nullable=True))
    columns = tuple(replace(c, name=after) if c.name == before else c for c in table.columns)
    key = tuple(after if name == before else name for name in table.primary_key)
    return replace(table.with_columns(columns, now=now), primary_key=key)


def _described(table: Table, statement: AlterTable, now: float) -> Table:
    """``CHANGE COLUMN`` with another comment, or without NOT NULL."""
    column = table.column(statement.names[0])
    if statement.action == "comment column":
        column = replace(column, comment=statement.text)
    elif column.name in table.primary_key:
        raise semantic_error(f"column '{column.name}' belongs to the primary key of table {table.name}")
    else:
        column = replace(column, nullable=True)
    columns = tuple(column if present.name == column.name else present for present in table.columns)
    return replace(table, columns=columns, last_ddl=now)


def _changed(table: Table, before: str, wanted: Column, now: float) -> Table:
    """Renames a column and widens its type."""
    column = table.column(before)
    narrower = column.type != wanted.type and wanted.type.name not in _WIDENINGS.get(column.type.name, set())
    if narrower or (before in table.primary_key and column.type != wanted.type):
        raise semantic_error(f"column '{before}' cannot be changed from {column.type} to {wanted.type}")
    version = table.schema_version
    if wanted.name != before:
        table = replace(_renamed(table, before, wanted.name, now=now), schema_version=version)
    columns = tuple(
        replace(c, type=wanted.type, comment=wanted.comment or c.comment) if c.name == wanted.name else c
        for c in table.columns
    )
    return table.with_columns(columns, now=now)
