"""Views: queries with a name. What a view gives is worked out when it is asked."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

from upsert_platform.local.maxcompute.errors import already_exists, semantic_error
from upsert_platform.local.maxcompute.schema import Column, Table
from upsert_platform.local.maxcompute.sql.context import Context, Result
from upsert_platform.local.maxcompute.sql.ddl import CreateView
from upsert_platform.local.maxcompute.sql.query import parse, run_query


def create_view(context: Context, statement: CreateView) -> Result:
    """``CREATE VIEW``: the query must run, and its columns become those of the view.

    Raises:
        ServiceError: a table or view has the name, or the query is refused.
    """
    schema, name = context.resolve(statement.name)
    catalogue = context.store.catalogue
    present = catalogue.find_table(schema, name)
    if present is not None and statement.if_not_exists:
        return Result()
    if present is not None and not (statement.replaces and present.query):
        raise already_exists(f"Table or view with name {name} already exists")
    found = run_query(context, parse(statement.query))
    names = statement.columns or tuple((column, "") for column, _ in found.columns)
    if len(names) != len(found.columns):
        raise semantic_error(f"view {name} names {len(names)} columns, its query has {len(found.columns)}")
    if len({column for column, _ in names}) != len(names):
        raise semantic_error(f"view {name} has a column twice")
    now = time.time()
    view = Table(
        table_id=uuid.uuid4().hex,
        schema=schema,
        name=name,
        columns=tuple(
            Column(column, kind, comment=comment, column_id=index)
            for index, ((column, comment), (_, kind)) in enumerate(zip(names, found.columns, strict=True))
        ),
        comment=statement.comment,
        owner=context.owner,
        created=now,
        last_ddl=now,
        last_modified=now,
        query=statement.query,
    )
    if present is not None:
        view = replace(view, table_id=present.table_id, created=present.created)
    with catalogue.durable():
        catalogue.put_table(view)
    return Result()
