"""Windows that close: ``SET 'table.exec.emit.allow-lateness'`` over a table with a WATERMARK."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from upsert_platform.core.model import ColumnKind, Table
from upsert_platform.core.plan import Closing, Filter, Lookup, Node, Project, Scan, Window
from upsert_platform.sql.flink import parse_query
from upsert_platform.sql.lexer import tokenize
from upsert_platform.sql.planning.scope import length_of
from upsert_platform.sql.reader import Fault


def closing_window(node: Node, find: Callable[[str], object], lateness: int) -> Window:
    """A window that closes so long after its end.

    Raises:
        Fault: nothing tells the time of its rows.
    """
    assert isinstance(node, Window)
    found = _column_of(node.input, node.time)
    table = find(found[0].table) if found is not None else None
    if found is None or not isinstance(table, Table):
        raise Fault(
            "windows close by the event time of one table: its WATERMARK column has to reach the window as it is, and"
            " not out of a join, a union or a grouping; statements before SET 'table.exec.emit.allow-lateness' keep"
            " their windows open",
            0,
        )
    scan, column = found
    delay = _delay(table, column)
    return replace(node, closing=Closing(scan.table, column, delay + lateness))


def _column_of(node: Node, name: str) -> tuple[Scan, str] | None:
    """The table that a column comes from, as it is there; None where it is computed, or rows are put together."""
    match node:
        case Scan():
            return node, name
        case Project():
            expression = dict(node.columns)[name]
            return _column_of(node.input, expression.column) if expression.column is not None else None
        case Filter():
            return _column_of(node.input, name)
        case Lookup() if name in {item.name for item in node.input.fields}:
            return _column_of(node.input, name)
    return None


def _delay(table: Table, column: str) -> int:
    """Return the delay of a table's WATERMARK in microseconds."""
    declared = f"WATERMARK FOR {column} AS {column} - INTERVAL '5' SECOND"
    if table.watermark is None or table.column(column).kind is ColumnKind.COMPUTED:
        raise Fault(f"windows close behind a watermark: declare {declared} in table '{table.name}'", 0)
    name, _, text = table.watermark.removeprefix("WATERMARK FOR ").partition(" AS ")
    tokens, problems = tokenize(text, table.name)
    expression = parse_query(tuple(tokens), "expression") if tokens and not problems else None
    delay: int | None = None
    if isinstance(expression, exp.Sub):
        expression, delay = expression.this, length_of(expression.expression)
    elif isinstance(expression, exp.Column):
        delay = 0
    if name != column or not isinstance(expression, exp.Column) or expression.name != column or delay is None:
        raise Fault(
            f"the {table.watermark} of table '{table.name}' does not tell when windows of column '{column}' close: it"
            f" is written {declared}, in whole units",
            0,
        )
    return delay
