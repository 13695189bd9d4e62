"""Windows that close behind a WATERMARK: ``SET 'table.exec.emit.allow-lateness'``, and targets without a key.

A target without a key takes no row back, so it gets the rows of closed windows, which nothing changes any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sqlglot import exp

from upsert_platform.core.model import ColumnKind, Table
from upsert_platform.core.plan import (
    Closing,
    Filter,
    Finals,
    Join,
    Lookup,
    Merge,
    Node,
    Project,
    Scan,
    Session,
    Temporal,
    Union,
    Unnest,
    Watermark,
    Window,
    closing_ends,
)
from upsert_platform.sql.flink import parse_query
from upsert_platform.sql.lexer import tokenize
from upsert_platform.sql.planning.scope import length_of
from upsert_platform.sql.reader import Fault

_CHANGES: Final = "the rows of the query change, and a table without a PRIMARY KEY cannot take a row back"
_KEY: Final = "declare a PRIMARY KEY for the target"
_BEFORE: Final = "; statements before SET 'table.exec.emit.allow-lateness' keep their windows open"


def final_rows(node: Node, find: Callable[[str], object], lateness: int) -> Node:
    """A plan that only adds rows: what changes in it is given once its window is closed.

    Args:
        lateness: how long after their end windows stay open, in microseconds.

    Raises:
        Fault: rows change that belong to no window that closes.
    """
    if node.appends:
        return node
    match node:
        case Project() | Filter() | Unnest() | Lookup():
            return replace(node, input=final_rows(node.input, find, lateness))
        case Union() if not isinstance(node, Merge):
            return replace(node, branches=tuple(final_rows(item, find, lateness) for item in node.branches))
    windows = _windows(node)
    if any(isinstance(item, Session) and not item.input.appends for item in windows):
        raise Fault(
            f"{_CHANGES}; rows of SESSION windows are written once these are closed where the rows of the table are"
            f" only added, and change here: {_KEY}",
            0,
        )
    if not windows:
        raise Fault(
            f"{_CHANGES}; declare one, or group by window_start and window_end of a window over a table with a"
            " WATERMARK: its rows are written once the window is closed",
            0,
        )
    try:
        closing = _with_closings(node, find, lateness)
    except Fault as fault:
        raise Fault(f"{_CHANGES} before its window is closed: {fault.message}; or {_KEY}", 0) from None
    for item in closing.fields:
        ends = closing_ends(closing, item.name)
        if ends:
            return Finals(closing, item.name, ends)
    raise Fault(
        f"{_CHANGES}; they are not the groups of one window, which are written once it is closed: group by window_start"
        f" and window_end, or {_KEY}",
        0,
    )


def final_windows(node: Node) -> frozenset[str]:
    """Names of the ends of windows whose rows are given once they are closed."""
    own = node.windows if isinstance(node, Finals) else ()
    return frozenset((*own, *(name for item in node.inputs for name in final_windows(item))))


def window_ends(node: Node) -> frozenset[str]:
    """Names of the ends of all windows of a plan."""
    return frozenset(window_closings(node))


def window_closings(node: Node) -> dict[str, Closing | None]:
    """Names of the ends of all windows of a plan to what closes them; None of those that stay open."""
    return {item.names[1]: item.closing for item in _clocked(node)}


def _clocked(node: Node) -> list[Window | Session]:
    """The windows of a plan, and its watermarks."""
    own = [node] if isinstance(node, (Window, Session)) else []
    return [*own, *(found for item in node.inputs for found in _clocked(item))]


def _windows(node: Node) -> list[Window | Session]:
    return [item for item in _clocked(node) if not isinstance(item, Watermark)]


def _with_closings(node: Node, find: Callable[[str], object], lateness: int) -> Node:
    """A plan whose windows close, those that do so already as they are."""
    match node:
        case Scan():
            return node
        case Watermark():
            return replace(node, input=_with_closings(node.input, find, lateness))
        case Window() | Session():
            return node if node.closing is not None else closing_window(node, find, lateness, remedy="")
        case Join():
            left, right = (_with_closings(item, find, lateness) for item in (node.left, node.right))
            return replace(node, left=left, right=right)
        case Union():
            return replace(node, branches=tuple(_with_closings(item, find, lateness) for item in node.branches))
        case Temporal():
            inner = _with_closings(node.input, find, lateness)
            return replace(node, input=inner, versions=_with_closings(node.versions, find, lateness))
    return replace(node, input=_with_closings(node.input, find, lateness))


def closing_window(
    node: Node, find: Callable[[str], object], lateness: int, *, remedy: str = _BEFORE
) -> Window | Session:
    """A window that closes so long after its end.

    Args:
        remedy: what keeps it open, if no table tells when it closes.

    Raises:
        Fault: nothing tells the time of its rows.
    """
    assert isinstance(node, (Window, Session))
    found = _column_of(node.input, node.time)
    table = find(found[0].table) if found is not None else None
    if found is None or not isinstance(table, Table):
        raise Fault(
            "windows close by the event time of one table: its WATERMARK column has to reach the window as it is, and"
            f" not out of a join, a union or a grouping{remedy}",
            0,
        )
    scan, column = found
    delay = _delay(table, column)
    return replace(node, closing=Closing(scan.table, column, delay + lateness))


def with_watermark(node: Node, time: str, name: str, find: Callable[[str], object]) -> Watermark:
    """Rows with the watermark of a column that tells the event time of their table.

    Args:
        name: of the column that is added.

    Raises:
        Fault: rows change, or no table tells the watermark.
    """
    if not node.appends:
        raise Fault(
            "CURRENT_WATERMARK stands in queries whose rows are only added: a row that is taken back would meet another"
            " watermark than it met when it came",
            0,
        )
    below = node
    while isinstance(below, (Window, Unnest)):
        below = below.input
    found = _column_of(below, time) if time in {field.name for field in below.fields} else None
    table = find(found[0].table) if found is not None else None
    if found is None or not isinstance(table, Table):
        raise Fault(
            "CURRENT_WATERMARK takes the WATERMARK column of one table, as it is, and not out of a join, a union or a"
            " grouping: call it in a subquery of that table alone",
            0,
        )
    scan, column = found
    delay = _delay(table, column, what="CURRENT_WATERMARK takes the column of a WATERMARK")
    return Watermark.of(node, time, name, Closing(scan.table, column, delay))


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
        case Watermark() if name != node.names[1]:
            return _column_of(node.input, name)
        case Lookup() if name in {item.name for item in node.input.fields}:
            return _column_of(node.input, name)
    return None


def _delay(table: Table, column: str, *, what: str = "windows close behind a watermark") -> int:
    """Return the delay of a table's WATERMARK in microseconds.

    Args:
        what: needs it, for messages.
    """
    declared = f"WATERMARK FOR {column} AS {column} - INTERVAL '5' SECOND"
    if table.watermark is None or table.column(column).kind is ColumnKind.COMPUTED:
        raise Fault(f"{what}: declare {declared} in table '{table.name}'", 0)
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
            f"{what}: the {table.watermark} of table '{table.name}' does not tell the event time of column '{column}':"
            f" it is written {declared}, in whole units",
            0,
        )
    return delay
