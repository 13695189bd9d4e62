"""Execution of data definition statements (spec 2.2)."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import replace

from upsert_platform.local.maxcompute.errors import (
    already_exists,
    invalid_argument,
    no_such_partition,
    semantic_error,
)
from upsert_platform.local.maxcompute.schema import Column, Partition, Table, format_spec, full_spec, parse_spec
from upsert_platform.local.maxcompute.sql.context import Context, Result
from upsert_platform.local.maxcompute.sql.ddl import CreateTable, DropTable, SchemaStatement, Spec, Truncate
from upsert_platform.local.maxcompute.storage.compute import literal
from upsert_platform.local.maxcompute.storage.store import Change

MAXIMUM_BUCKETS, MAXIMUM_RETAIN_HOURS, MAXIMUM_PARTITION_LEVELS, MAXIMUM_NAME_BYTES = 4096, 168, 6, 128


def create_table(context: Context, statement: CreateTable) -> Result:
    """``CREATE TABLE``; with LIKE it copies columns, keys and properties."""
    schema, name = context.resolve(statement.name)
    if len(name.encode()) > MAXIMUM_NAME_BYTES:
        raise semantic_error(f"table name '{name}' is longer than {MAXIMUM_NAME_BYTES} bytes")
    catalogue = context.store.catalogue
    now = time.time()
    with catalogue.durable():
        if catalogue.find_table(schema, name) is not None:
            if statement.if_not_exists:
                return Result()
            raise already_exists(f"Table or view with name {name} already exists")
        if statement.like is not None:
            model = context.table(statement.like)
            table = replace(model, table_id=uuid.uuid4().hex, schema=schema, name=name, version=1, schema_version=0)
        else:
            table = _declared(statement, schema, name)
        table = replace(table, owner=context.owner, created=now, last_ddl=now, last_modified=now)
        catalogue.put_table(table)
        catalogue.execute("INSERT INTO versions VALUES (?, 1, ?, 'CREATE')", table.table_id, now)
        if not table.partition_keys:
            catalogue.add_partition(table.table_id, "")
    return Result()


def _declared(statement: CreateTable, schema: str, name: str) -> Table:
    keys = set(statement.primary_key)
    columns = tuple(replace(column, column_id=index) for index, column in enumerate(statement.columns))
    partition_keys = tuple(
        replace(column, column_id=len(columns) + index) for index, column in enumerate(statement.partition_keys)
    )
    names = [column.name for column in (*columns, *partition_keys)]
    if len(set(names)) != len(names):
        raise semantic_error(f"table {name} declares a column twice")
    if len(partition_keys) > MAXIMUM_PARTITION_LEVELS:
        raise semantic_error(f"table {name} has more than {MAXIMUM_PARTITION_LEVELS} partition columns")
    table = Table(
        table_id=uuid.uuid4().hex,
        schema=schema,
        name=name,
        columns=columns,
        partition_keys=partition_keys,
        primary_key=statement.primary_key,
        properties=statement.properties,
        lifecycle=statement.lifecycle,
        comment=statement.comment,
    )
    for key in keys:
        column = table.column(key)
        if column.nullable:
            raise semantic_error(f"primary key column '{key}' of table {name} must be declared NOT NULL")
        if column.type.children or column.type.name == "json":
            raise semantic_error(f"primary key column '{key}' of table {name} must not be of type {column.type}")
    if keys and statement.properties.get("transactional", "").lower() != "true":
        raise semantic_error(f"table {name} has a primary key: it needs TBLPROPERTIES ('transactional'='true')")
    check_properties(name, statement.properties)
    return table


def check_properties(name: str, properties: dict[str, str]) -> None:
    """Refuses values outside of what the service takes."""
    for key, low, high in (
        ("write.bucket.num", 1, MAXIMUM_BUCKETS),
        ("acid.data.retain.hours", 0, MAXIMUM_RETAIN_HOURS),
    ):
        value = properties.get(key)
        if value is not None and not (value.isdigit() and low <= int(value) <= high):
            raise semantic_error(f"table {name}: '{key}' takes {low} to {high}, not '{value}'")


def drop_table(context: Context, statement: DropTable) -> Result:
    schema, name = context.resolve(statement.name)
    table = context.store.catalogue.find_table(schema, name)
    if table is None and statement.if_exists:
        return Result()
    table = table or context.relation(statement.name)
    if bool(table.query) != statement.view:
        raise semantic_error(f"{name} is a {'view: DROP VIEW' if table.query else 'table: DROP TABLE'} removes it")
    context.store.drop(table)
    return Result()


def run_schema_statement(context: Context, statement: SchemaStatement) -> Result:
    """``CREATE SCHEMA`` and ``DROP SCHEMA``."""
    name = statement.name[-1]
    catalogue = context.store.catalogue
    exists = name in catalogue.schema_names()
    if statement.action == "create":
        if exists and not statement.guarded:
            raise already_exists(f"Schema {name} already exists")
        catalogue.execute("INSERT OR IGNORE INTO schemas VALUES (?, ?)", name, time.time())
        return Result()
    if not exists and not statement.guarded:
        raise semantic_error(f"schema {name} does not exist")
    for table in catalogue.tables(name):
        context.store.drop(table)
    catalogue.execute("DELETE FROM schemas WHERE name = ?", name)
    return Result()


def add_partitions(context: Context, table: Table, specs: tuple[Spec, ...], *, guarded: bool) -> None:
    catalogue = context.store.catalogue
    if not specs or not table.partition_keys:
        raise semantic_error(f"table {table.name}: ADD PARTITION needs a partitioned table and a partition spec")
    with context.store.lock(table.table_id), catalogue.durable():
        for values in specs:
            spec = full_spec(table, format_spec(values))
            if not guarded and catalogue.find_partition(table.table_id, spec) is not None:
                raise already_exists(f"Partition already exists: {spec}")
            catalogue.add_partition(table.table_id, spec)


def drop_partitions(context: Context, table: Table, specs: tuple[Spec, ...], *, guarded: bool) -> None:
    with context.store.lock(table.table_id):
        for values in specs:
            spec = full_spec(table, format_spec(values))
            found = context.store.catalogue.find_partition(table.table_id, spec)
            if found is not None:
                context.store.forget(found)
            elif not guarded:
                raise no_such_partition(table.name, spec)


def rename_partition(context: Context, table: Table, specs: tuple[Spec, ...]) -> None:
    if len(specs) != 2:
        raise semantic_error("PARTITION (...) RENAME TO PARTITION (...) takes two specs")
    before, after = (full_spec(table, format_spec(values)) for values in specs)
    with context.store.lock(table.table_id), context.store.catalogue.durable():
        partition = context.store.partition(table, before)
        if context.store.catalogue.find_partition(table.table_id, after) is not None:
            raise already_exists(f"Partition already exists: {after}")
        context.store.catalogue.execute(
            "UPDATE partitions SET spec = ? WHERE partition_id = ?", after, partition.partition_id
        )


def truncate(context: Context, statement: Truncate) -> Result:
    """``TRUNCATE TABLE``, of some partitions or of everything."""
    table = context.table(statement.name)
    chosen = matching_partitions(context, table, statement.specs)
    changes = [Change(partition.spec, (), resets=True) for partition in chosen]
    context.store.commit(table.table_id, changes, "TRUNCATE")
    return Result()


def matching_partitions(context: Context, table: Table, specs: tuple[Spec, ...]) -> list[Partition]:
    """Partitions that fit one of the specs (which may be partial); all of them without a spec."""
    partitions = context.store.catalogue.partitions(table.table_id)
    if not specs:
        return partitions
    chosen = [
        partition
        for partition in partitions
        if any(all(partition.values.get(name) == value for name, value in spec.items()) for spec in specs)
    ]
    if not chosen:
        raise no_such_partition(table.name, format_spec(specs[0]))
    return chosen


def show_history(context: Context, table: Table) -> str:
    """Version, time and operation of each commit, as text."""
    lines = ["ObjectType\tObjectId\tVERSION(LSN)\tTime\tOperation"]
    for version, committed, operation in context.store.catalogue.versions(table.table_id):
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(committed))
        lines.append(f"TABLE\t{table.table_id}\t{version:016d}\t{moment}\t{operation}")
    return "\n".join(lines)


def describe(table: Table) -> str:
    """The text of ``DESC``."""
    lines = [f"| Table: {table.name} | Owner: {table.owner} |", f"| TableComment: {table.comment} |"]
    if table.primary_key:
        lines.append(f"| Primarykey: {json.dumps(table.primary_key)} |")
    lines += [f"| {column.name} | {column.type} | {column.comment} |" for column in table.columns]
    if table.partition_keys:
        lines.append("| Partition Columns: |")
        lines += [f"| {column.name} | {column.type} | {column.comment} |" for column in table.partition_keys]
    return "\n".join(lines)


def creation(table: Table) -> str:
    """The statement that creates such a table or view."""

    def column(item: Column) -> str:
        comment = f" COMMENT {_text(item.comment)}" if item.comment else ""
        return f"`{item.name}` {str(item.type).upper()}{'' if item.nullable else ' NOT NULL'}{comment}"

    if table.query:
        names = ", ".join(f"`{item.name}`" for item in table.columns)
        return f"CREATE VIEW `{table.name}` ({names}) AS {table.query}"
    lines = [column(item) for item in table.columns]
    if table.primary_key:
        lines.append(f"PRIMARY KEY ({', '.join(f'`{name}`' for name in table.primary_key)})")
    parts = [f"CREATE TABLE `{table.name}` ({', '.join(lines)})"]
    if table.comment:
        parts.append(f"COMMENT {_text(table.comment)}")
    if table.partition_keys:
        parts.append(f"PARTITIONED BY ({', '.join(map(column, table.partition_keys))})")
    told = {name: value for name, value in table.properties.items() if not name.startswith("local.")}
    if told:
        listed = ", ".join(f"{_text(name)}={_text(value)}" for name, value in told.items())
        parts.append(f"TBLPROPERTIES ({listed})")
    if table.lifecycle > 0:
        parts.append(f"LIFECYCLE {table.lifecycle}")
    return " ".join(parts)


def _text(value: str) -> str:
    return literal(value.replace("\\", "\\\\"))


def next_column_id(table: Table) -> int:
    """An id that no column of the table has had."""
    used = [column.column_id for column in (*table.columns, *table.partition_keys)]
    return max([*used, int(table.properties.get("local.last.column.id", 0))]) + 1


def check_new_column(table: Table, column: Column) -> None:
    names = {existing.name for existing in (*table.columns, *table.partition_keys)}
    if column.name in names:
        raise already_exists(f"column {column.name} already exists in table {table.name}")
    if not column.nullable:
        raise invalid_argument(f"column {column.name}: a column that is added must be nullable")


def spec_of(text: str) -> Spec:
    return parse_spec(text)
