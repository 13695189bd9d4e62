"""Runs a SQL text: settings first, then one statement after the other; the last one answers."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase

from sqlglot import exp

from upsert_platform.local.maxcompute.errors import parse_error, semantic_error
from upsert_platform.local.maxcompute.schema import Column, parse_spec
from upsert_platform.local.maxcompute.sql.alteration import alter_table
from upsert_platform.local.maxcompute.sql.change import run_delete, run_insert, run_merge, run_update
from upsert_platform.local.maxcompute.sql.context import Context, Result
from upsert_platform.local.maxcompute.sql.ddl import (
    AlterTable,
    CreateTable,
    CreateView,
    DropTable,
    SchemaStatement,
    Show,
    Truncate,
    parse_ddl,
)
from upsert_platform.local.maxcompute.sql.definition import (
    create_table,
    creation,
    describe,
    drop_table,
    run_schema_statement,
    show_history,
    truncate,
)
from upsert_platform.local.maxcompute.sql.query import parse, run_query
from upsert_platform.local.maxcompute.sql.tokens import split_statements
from upsert_platform.local.maxcompute.sql.views import create_view
from upsert_platform.local.maxcompute.storage.store import Change

_SETTING = re.compile(r"\s*SET\s+([\w.]+)\s*=\s*(.*)", re.IGNORECASE | re.DOTALL)


def run_sql(context: Context, sql: str) -> Result:
    """Runs a script.

    Raises:
        ServiceError: what the service would refuse; statements before the refused one stay done.
    """
    statements = split_statements(sql)
    result: Result | None = None
    for statement in statements:
        setting = _SETTING.fullmatch(statement)
        if setting:
            context = apply_setting(context, setting[1], setting[2].strip())
            continue
        result = _run_statement(context, statement)
    if result is None:
        if not statements:
            raise parse_error("the query is empty")
        return Result()
    return result


def apply_setting(context: Context, name: str, value: str) -> Context:
    """The context with a hint applied; hints that mean nothing here are taken and ignored, as the service does."""
    match name.lower():
        case "odps.namespace.schema":
            return replace(context, namespace=value.lower() == "true")
        case "odps.default.schema":
            return replace(context, schema=value.lower())
    return context


def _run_statement(context: Context, sql: str) -> Result:
    statement = parse_ddl(sql)
    match statement:
        case CreateTable(query=query) if query:
            return _create_as(context, statement)
        case CreateTable():
            return create_table(context, statement)
        case CreateView():
            return create_view(context, statement)
        case DropTable():
            return drop_table(context, statement)
        case AlterTable():
            return alter_table(context, statement)
        case Truncate():
            return truncate(context, statement)
        case SchemaStatement():
            return run_schema_statement(context, statement)
        case Show():
            return _show(context, statement)
    tree = parse(sql)
    match tree:
        case exp.Insert():
            return run_insert(context, tree)
        case exp.Update():
            return run_update(context, tree)
        case exp.Delete():
            return run_delete(context, tree)
        case exp.Merge():
            return run_merge(context, tree)
        case exp.Select() | exp.SetOperation() | exp.Subquery() | exp.Values():
            return run_query(context, tree)
    raise semantic_error(f"unsupported statement: {sql[:200]}")


def _create_as(context: Context, statement: CreateTable) -> Result:
    """``CREATE TABLE AS SELECT``: the table exists only when the query has run."""
    found = run_query(context, parse(statement.query))
    columns = tuple(Column(name, data_type) for name, data_type in found.columns)
    created = create_table(context, replace(statement, columns=columns, query=""))
    table = context.table(statement.name)
    assert found.rows is not None
    context.store.commit(table.table_id, [Change("", (context.store.write(table, found.rows),))], "INSERT")
    return created


def _show(context: Context, statement: Show) -> Result:
    match statement.what:
        case "tables" | "views":
            schema = statement.name[-1] if statement.name else context.schema
            found = context.store.catalogue.tables(schema)
            chosen = [table for table in found if table.query or statement.what == "tables"]
            names = [table.name for table in chosen if fnmatchcase(table.name, statement.pattern.lower())]
            return Result(text="\n".join(f"{context.owner}:{name}" for name in names))
        case "schemas":
            return Result(text="\n".join(context.store.catalogue.schema_names()))
        case "partitions":
            table = context.table(statement.name)
            wanted = statement.spec or {}
            specs = [
                partition.spec.replace(",", "/")
                for partition in context.store.catalogue.partitions(table.table_id)
                if all(parse_spec(partition.spec).get(name) == value for name, value in wanted.items())
            ]
            return Result(text="\n".join(specs))
        case "create":
            return Result(text=creation(context.relation(statement.name)))
        case "history":
            return Result(text=show_history(context, context.table(statement.name)))
    return Result(text=describe(context.relation(statement.name)))
