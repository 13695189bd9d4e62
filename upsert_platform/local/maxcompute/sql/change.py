"""INSERT, UPDATE, DELETE and MERGE: each is a query for the rows that change, and a commit of them.

The table's lock is held from reading to committing, so a condition still holds when its change is made.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from upsert_platform.local.maxcompute.errors import semantic_error
from upsert_platform.local.maxcompute.schema import (
    DELETE,
    OPERATION,
    UPSERT,
    Column,
    Table,
    format_spec,
)
from upsert_platform.local.maxcompute.sql.context import Context, Result
from upsert_platform.local.maxcompute.sql.query import Scope, scope, table_name
from upsert_platform.local.maxcompute.sql.relations import duckdb_type
from upsert_platform.local.maxcompute.storage.compute import quoted
from upsert_platform.local.maxcompute.storage.ingest import group_by_spec, stage
from upsert_platform.local.maxcompute.storage.store import Change

Target = exp.Table


def run_insert(context: Context, tree: exp.Insert) -> Result:
    """``INSERT INTO`` and ``INSERT OVERWRITE``, with static and dynamic partitions."""
    target = tree.this
    named: tuple[str, ...] | None = None
    if isinstance(target, exp.Schema):
        named = tuple(identifier.name.lower() for identifier in target.expressions)
        target = target.this
    table = context.table(table_name(target))
    static, dynamic = _partition_clause(table, tree.args.get("partition") or target.args.get("partition"))
    overwrite = bool(tree.args.get("overwrite"))
    columns = [*table.columns, *dynamic] if named is None else _named_columns(table, named, static)
    if tree.expression is None:
        raise semantic_error("INSERT needs VALUES or a query")
    with context.store.lock(table.table_id), scope(context) as opened:
        rows = _typed(opened, tree.expression, columns)
        routed = stage(context.store.files, table, rows, static=static)
        changes = [Change(spec, files, resets=overwrite) for spec, files in group_by_spec(routed).items()]
        if overwrite and not changes and not dynamic:
            spec = format_spec({key.name: static[key.name] for key in table.partition_keys})
            changes = [Change(spec, (), resets=True)]
        context.store.commit(table.table_id, changes, "OVERWRITE" if overwrite else "INSERT", create_partitions=True)
    return Result(affected=rows.num_rows)


def _named_columns(table: Table, named: tuple[str, ...], static: dict[str, str]) -> list[Column]:
    known = {column.name: column for column in (*table.columns, *table.partition_keys)}
    unknown = [name for name in named if name not in known or name in static]
    if unknown:
        raise semantic_error(f"INSERT names columns that table {table.name} does not take: {', '.join(unknown)}")
    return [known[name] for name in named]


def _partition_clause(table: Table, clause: exp.Expression | None) -> tuple[dict[str, str], list[Column]]:
    """Static partition values, and the keys that come from the query."""
    static: dict[str, str] = {}
    named = []
    for item in clause.expressions if clause is not None else ():
        if isinstance(item, exp.EQ):
            static[item.this.name.lower()] = item.expression.name
            named.append(item.this.name.lower())
        else:
            named.append(item.name.lower())
    names = [key.name for key in table.partition_keys]
    if clause is not None and named != names:
        raise semantic_error(f"table {table.name} is partitioned by ({', '.join(names)}), not ({', '.join(named)})")
    dynamic = [key for key in table.partition_keys if key.name not in static]
    if dynamic and any(key.name in static for key in table.partition_keys[names.index(dynamic[0].name) :]):
        raise semantic_error("static partition columns must come before dynamic ones")
    return static, dynamic


def _typed(opened: Scope, query: exp.Expression, columns: list[Column]) -> pa.Table:
    """The rows of a query, cast to columns by position."""
    names = [f"c{index}" for index in range(len(columns))]
    casts = ", ".join(
        f"CAST({name} AS {duckdb_type(column.type)}) AS {quoted(column.name)}"
        for name, column in zip(names, columns, strict=True)
    )
    sql = opened.bind(query)
    width = len(opened.run(f"SELECT * FROM ({sql}) LIMIT 0").column_names)
    if width != len(columns):
        raise semantic_error(f"the query has {width} columns, the table takes {len(columns)}")
    return opened.run(f"SELECT {casts} FROM ({sql}) AS source({', '.join(names)})")


def run_update(context: Context, tree: exp.Update) -> Result:
    """``UPDATE`` of a transactional table."""
    table, alias = _target(context, tree.this)
    assigned: dict[str, exp.Expression] = {}
    for item in tree.expressions:
        name = item.this.name.lower()
        if name in table.primary_key or name in {key.name for key in table.partition_keys}:
            raise semantic_error(f"UPDATE must not set '{name}': it is a key column of table {table.name}")
        table.column(name)
        assigned[name] = item.expression
    with context.store.lock(table.table_id), scope(context) as opened:
        condition = tree.args.get("where")
        if table.primary_key:
            rows = _select(opened, table, alias, assigned, condition)
            return _commit_operations(context, table, rows, UPSERT, "UPDATE")
        return _rewrite(context, opened, table, alias, condition, assigned)


def run_delete(context: Context, tree: exp.Delete) -> Result:
    """``DELETE`` from a transactional table."""
    table, alias = _target(context, tree.this)
    with context.store.lock(table.table_id), scope(context) as opened:
        condition = tree.args.get("where")
        if table.primary_key:
            rows = _select(opened, table, alias, {}, condition)
            return _commit_operations(context, table, rows, DELETE, "DELETE")
        return _rewrite(context, opened, table, alias, condition, None)


def _target(context: Context, node: exp.Expression) -> tuple[Table, str]:
    if not isinstance(node, exp.Table):
        raise semantic_error("a table is expected")
    table = context.table(table_name(node))
    if not table.transactional:
        raise semantic_error(f"table {table.name} is not transactional: UPDATE, DELETE and MERGE need one that is")
    return table, node.alias or table.name


def _select(
    opened: Scope,
    table: Table,
    alias: str,
    assigned: dict[str, exp.Expression],
    condition: exp.Expression | None,
) -> pa.Table:
    """The rows that a condition matches, with new values in them."""
    view = opened.view(table)
    selected = []
    for column in (*table.columns, *table.partition_keys):
        value = opened.bind(assigned[column.name]) if column.name in assigned else quoted(column.name)
        selected.append(f"CAST({value} AS {duckdb_type(column.type)}) AS {quoted(column.name)}")
    where = f" {opened.bind(condition)}" if condition is not None else ""
    return opened.run(f"SELECT {', '.join(selected)} FROM {view} AS {quoted(alias)}{where}")


def _commit_operations(context: Context, table: Table, rows: pa.Table, operation: int, name: str) -> Result:
    """Commits rows as upserts or deletes of their keys."""
    marked = rows.append_column(OPERATION, pa.array([operation] * rows.num_rows, pa.int8()))
    return _commit_marked(context, table, marked, name)


def _commit_marked(context: Context, table: Table, rows: pa.Table, name: str) -> Result:
    routed = stage(context.store.files, table, rows, static={})
    changes = [Change(spec, files) for spec, files in group_by_spec(routed).items()]
    context.store.commit(table.table_id, changes, name)
    return Result(affected=rows.num_rows)


def _rewrite(
    context: Context,
    opened: Scope,
    table: Table,
    alias: str,
    condition: exp.Expression | None,
    assigned: dict[str, exp.Expression] | None,
) -> Result:
    """Writes the partitions with matching rows anew: a table without primary key has no other way.

    Args:
        assigned: new values of matching rows; None removes the rows.
    """
    matches = f"coalesce(({opened.bind(condition.this)}), false)" if condition is not None else "true"
    view = opened.view(table)
    source = f"{view} AS {quoted(alias)}"
    keys = ", ".join(quoted(key.name) for key in table.partition_keys)
    affected = opened.run(f"SELECT count(*) AS n FROM {source} WHERE {matches}").column(0)[0].as_py()
    if not affected:
        return Result(affected=0)
    touched: list[dict[str, object]] = [{}]
    if keys:
        touched = opened.run(f"SELECT DISTINCT {keys} FROM {source} WHERE {matches}").to_pylist()
    selected = []
    for column in (*table.columns, *table.partition_keys):
        value = quoted(column.name)
        if assigned and column.name in assigned:
            value = f"CASE WHEN {matches} THEN {opened.bind(assigned[column.name])} ELSE {value} END"
        selected.append(f"CAST({value} AS {duckdb_type(column.type)}) AS {quoted(column.name)}")
    conditions = [] if assigned is not None else [f"NOT {matches}"]
    if keys:
        conditions.append(f"({keys}) IN (SELECT ({keys}) FROM {source} WHERE {matches})")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = opened.run(f"SELECT {', '.join(selected)} FROM {source}{where}")
    files = group_by_spec(stage(context.store.files, table, rows, static={}))
    specs = [format_spec({name: str(value) for name, value in values.items()}) for values in touched]
    changes = [Change(spec, files.get(spec, ()), resets=True) for spec in specs]
    context.store.commit(table.table_id, changes, "DELETE" if assigned is None else "UPDATE")
    return Result(affected=affected)


def run_merge(context: Context, tree: exp.Merge) -> Result:
    """``MERGE INTO`` a table with a primary key: DuckDB merges a copy, and what it changed is committed."""
    target = tree.this
    table, alias = _target(context, target)
    if not table.primary_key:
        raise semantic_error(f"table {table.name} has no primary key: MERGE needs one here")
    with context.store.lock(table.table_id), scope(context) as opened:
        view = opened.view(table)
        opened.cursor.execute(f"CREATE TEMP TABLE merge_target AS SELECT * FROM {view}")
        target.replace(exp.to_table("merge_placeholder", alias=alias))
        placeholder = tree.this
        _unqualify(tree)
        tree.set("this", exp.to_table("merge_placeholder"))
        for part in (tree.args.get("using"), tree.args.get("on"), tree.args.get("whens")):
            if part is not None:
                opened.bind(part)
        tree.set("this", placeholder)
        sql = tree.sql(dialect="duckdb").replace("merge_placeholder", "merge_target", 1)
        columns = ", ".join(quoted(column.name) for column in (*table.columns, *table.partition_keys))
        changed = opened.run(f"{sql} RETURNING merge_action, {columns}")
        operations = [DELETE if action == "DELETE" else UPSERT for action in changed.column(0).to_pylist()]
        rows = changed.remove_column(0).append_column(OPERATION, pa.array(operations, pa.int8()))
        return _commit_marked(context, table, rows, "MERGE")


def _unqualify(tree: exp.Merge) -> None:
    """Takes the table's name from columns that are set or inserted: ``SET t.v = s.v`` sets ``v``."""
    for when in tree.find_all(exp.When):
        then = when.args.get("then")
        targets: list[exp.Expression] = []
        if isinstance(then, exp.Update):
            targets = [item.this for item in then.expressions if isinstance(item, exp.EQ)]
        elif isinstance(then, exp.Insert) and isinstance(then.this, exp.Tuple):
            targets = then.this.expressions
        for column in targets:
            for part in ("table", "db", "catalog"):
                column.set(part, None)
