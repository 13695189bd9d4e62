"""Queries: parsed by sqlglot, run by DuckDB over views of the tables that they name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from upsert_platform.local.maxcompute.errors import parse_error, semantic_error
from upsert_platform.local.maxcompute.schema import Table
from upsert_platform.local.maxcompute.sql.context import Context, Result
from upsert_platform.local.maxcompute.sql.functions import MaxComputeSql, rewrite_functions
from upsert_platform.local.maxcompute.sql.relations import create_view
from upsert_platform.local.maxcompute.sql.travel import Travel, mark_ranges, travel_of
from upsert_platform.local.maxcompute.storage.compute import quoted
from upsert_platform.local.maxcompute.types import DataType, type_of_arrow

# MaxCompute's DATETIME counts milliseconds and its TIMESTAMP nanoseconds.
_TIMES = {
    exp.DataType.Type.DATETIME: exp.DataType.Type.TIMESTAMP_MS,
    exp.DataType.Type.TIMESTAMP: exp.DataType.Type.TIMESTAMP_NS,
    exp.DataType.Type.TIMESTAMPTZ: exp.DataType.Type.TIMESTAMP_NS,
    exp.DataType.Type.TIMESTAMPLTZ: exp.DataType.Type.TIMESTAMP_NS,
    exp.DataType.Type.TIMESTAMPNTZ: exp.DataType.Type.TIMESTAMP_NS,
}


def parse(sql: str) -> exp.Expression:
    """The syntax tree of one statement.

    Raises:
        ServiceError: ODPS-0130161.
    """
    try:
        tree = sqlglot.parse_one(mark_ranges(sql), read=MaxComputeSql)
    except SqlglotError as error:
        raise parse_error(str(error).split("\n", 1)[0]) from error
    if not isinstance(tree, exp.Expression):
        raise parse_error("the text is not a statement")
    return tree


def table_name(node: exp.Table) -> tuple[str, ...]:
    """The dotted name of a table in a statement."""
    return tuple(part.name for part in node.parts)


@dataclass
class Scope:
    """A DuckDB cursor with the views that a statement has needed so far."""

    context: Context
    cursor: duckdb.DuckDBPyConnection
    count: int = 0
    inside: list[str] = field(default_factory=list)

    def view(self, table: Table, *, travel: Travel | None = None) -> str:
        """A new view of the table, as it is or as it was."""
        if table.query:
            return self._view_of_view(table, travel)
        self.count += 1
        name = f"t{self.count}"
        create_view(self.context.store, self.cursor, table, name, travel=travel)
        return name

    def _view_of_view(self, table: Table, travel: Travel | None) -> str:
        """Return a view's query with names resolved in the view's own schema."""
        if travel is not None:
            raise semantic_error(f"{table.name} is a view and has no history")
        if table.table_id in self.inside:
            raise semantic_error(f"view {table.name} is made of itself")
        outer, self.context = self.context, replace(self.context, schema=table.schema)
        self.inside.append(table.table_id)
        try:
            sql = self.bind(parse(table.query))
        finally:
            self.inside.pop()
            self.context = outer
        self.count += 1
        name = f"t{self.count}"
        columns = ", ".join(quoted(column.name) for column in table.columns)
        try:
            self.cursor.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(name)} ({columns}) AS {sql}")
        except duckdb.Error as error:
            raise semantic_error(f"view {table.name} cannot be read: {error}") from error
        return name

    def bind(self, tree: exp.Expression) -> str:
        """Replaces the tables of a query by views, and returns it as DuckDB's SQL."""
        tree = rewrite_functions(tree, max_partition=self._max_partition)
        names = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
        for node in list(tree.find_all(exp.Table)):
            if len(node.parts) == 1 and node.name.lower() in names:
                continue
            if isinstance(node.this, exp.Func):
                continue
            table = self.context.relation(table_name(node))
            view = self.view(table, travel=travel_of(self.context, self.cursor, table, node))
            alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(node.name))
            replacement = exp.Table(this=exp.to_identifier(view, quoted=True), alias=alias)
            for key in ("joins", "laterals", "pivots", "sample"):
                if node.args.get(key):
                    replacement.set(key, node.args[key])
            node.replace(replacement)
        for column in tree.find_all(exp.Column):
            # project.table.column and schema.table.column: the alias alone is left.
            column.set("db", None)
            column.set("catalog", None)
        for data_type in tree.find_all(exp.DataType):
            if data_type.this in _TIMES:
                data_type.set("this", _TIMES[data_type.this])
        return tree.sql(dialect="duckdb")

    def run(self, sql: str) -> pa.Table:
        """The rows of a query in DuckDB's SQL.

        Raises:
            ServiceError: what DuckDB refused.
        """
        try:
            found = self.cursor.sql(sql)
            rows = found.to_arrow_table()
            for index, kind in enumerate(found.types):
                if str(kind) == "HUGEINT":
                    # Of sums of integers, which are a BIGINT in MaxCompute.
                    rows = rows.set_column(index, rows.column_names[index], rows.column(index).cast(pa.int64()))
        except (duckdb.Error, pa.ArrowInvalid) as error:
            raise semantic_error(str(error)) from error
        return rows

    def _max_partition(self, name: str) -> str:
        """The greatest value of a table's first partition column under which there are rows."""
        table = self.context.table(tuple(part.strip().lower() for part in name.split(".")))
        if not table.partition_keys:
            raise semantic_error(f"max_pt: table {table.name} has no partitions")
        key, store = table.partition_keys[0].name, self.context.store
        found = [p.values[key] for p in store.catalogue.partitions(table.table_id) if store.segments(p)]
        if not found:
            raise semantic_error(f"max_pt: no partition of table {table.name} has rows")
        return max(found)


@contextmanager
def scope(context: Context) -> Iterator[Scope]:
    """A cursor for one statement."""
    with context.store.compute.cursor() as cursor:
        yield Scope(context, cursor)


def run_query(context: Context, tree: exp.Expression) -> Result:
    """Runs a SELECT."""
    _name_columns(tree)
    with scope(context) as opened:
        rows = opened.run(opened.bind(tree))
    return result_of(rows)


def result_of(rows: pa.Table) -> Result:
    """Rows with the types that MaxCompute would give them."""
    columns: list[tuple[str, DataType]] = []
    arrays = []
    for name, values in zip(rows.column_names, rows.columns, strict=True):
        data_type = type_of_arrow(values.type)
        columns.append((name.lower(), data_type))
        arrays.append(values if values.type == data_type.arrow else values.cast(data_type.arrow))
    renamed = [name for name, _ in columns]
    return Result(tuple(columns), pa.Table.from_arrays(arrays, names=renamed), affected=rows.num_rows)


def _name_columns(tree: exp.Expression) -> None:
    """Columns without a name are called ``_c0``, ``_c1`` by their place."""
    if not isinstance(tree, exp.Select):
        return
    for index, expression in enumerate(tree.expressions):
        if isinstance(expression, exp.Star | exp.Column) or expression.alias:
            continue
        expression.replace(exp.alias_(expression.copy(), f"_c{index}"))
