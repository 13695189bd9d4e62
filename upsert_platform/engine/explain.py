"""A plan in words: operators as a tree, what each remembers, by which key, and what grows with what."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import rows
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.plan import (
    ALL_ROWS,
    COLLECTS,
    Aggregate,
    Arrivals,
    ArrivedTopN,
    Expand,
    Filter,
    Finals,
    GroupJoin,
    Join,
    Lookup,
    LookupRows,
    Materialize,
    Merge,
    Node,
    Over,
    Project,
    Query,
    Scan,
    Session,
    Temporal,
    TopN,
    Union,
    Unnest,
    Watermark,
    Window,
)

if TYPE_CHECKING:
    from upsert_platform.engine.store import QueryStore


_PLACE: Final = re.compile(r"_p\d+_")
"""How columns begin that no statement has given: places of records."""


def explain_query(query: Query) -> Iterator[str]:
    """Lines of a query: how long its state stays that nothing changes, if it does not stay for ever, and its plan."""
    if query.state_ttl:
        yield f"lets go of state that nothing changes for {_span(query.state_ttl * 1000)}"
    yield from explain_plan(query.plan)


def explain_plan(node: Node, depth: int = 0) -> Iterator[str]:
    """Lines of a plan, the result first, each operator above what it reads."""
    yield f"{'  ' * depth}{_told(node)}"
    spark = list(_left_to_spark(node))
    if spark:
        yield f"{'  ' * depth}  {through_spark(spark)}"
    state = _state(node)
    if state:
        yield f"{'  ' * depth}  state: {state}{_hinted(node)}"
    for item in node.inputs:
        yield from explain_plan(item, depth + 1)


def through_spark(names: Sequence[str]) -> str:
    """Return the line about expressions that Arrow does not compute: columns by their names, WHERE."""
    return f"through Spark SQL, which is slower, for: {', '.join(names)}"


def _left_to_spark(node: Node) -> Iterator[str]:
    if isinstance(node, Project):
        yield from (name for name, item in node.columns if item.arrow is None)
    elif isinstance(node, Filter) and node.condition.arrow is None:
        yield "the filter"


def _hinted(node: Node) -> str:
    """Return what a hint STATE_TTL says of an operator's state; empty without one."""
    if isinstance(node, (Aggregate, Arrivals)) and node.ttl is not None:
        return f"; hint: {_stays(node.ttl)}"
    if isinstance(node, Join) and any(ttl is not None for ttl in node.ttls):
        sides = zip(("left", "right"), node.ttls, strict=True)
        return "; hint: " + ", ".join(f"{side} {_stays(ttl)}" for side, ttl in sides if ttl is not None)
    return ""


def _stays(ttl: int) -> str:
    return f"let go of after {_span(ttl * 1000)} without a change" if ttl else "never let go of"


def _told(node: Node) -> str:
    match node:
        case Scan():
            hidden = {internal("put"), *rows.SYSTEM_COLUMNS}
            columns = ", ".join(field.name for field in node.columns if field.name not in hidden)
            if node.versions:
                return f"read {node.table} ({columns}): every record is a version"
            how = "rows that are only added" if node.appends else "upserts" if node.key else "changes"
            return f"read {node.table} ({columns}): {how}"
        case Project():
            return "project " + ", ".join(
                name if item.column == name else f"{item.sql} AS {name}"
                for name, item in node.columns
                if not _PLACE.match(name)
            )
        case Filter():
            return f"filter {node.condition.sql}"
        case Watermark():
            assert node.closing is not None
            table, after = node.closing.table, _span(node.closing.after)
            return f"the watermark of {table}.{node.time} as a batch begins, {after} behind, AS {node.names[1]}"
        case Window():
            return f"window {node.kind} of {node.time}: size {_span(node.size)}, step {_span(node.step)}"
        case Expand():
            left_out = {name for columns in node.sets for name, item in columns if item.column is None}
            groupings = (
                ", ".join(name for name, item in columns if name in left_out and item.column is not None)
                for columns in node.sets
            )
            return "copy rows per grouping: " + "; ".join(f"({shown})" for shown in groupings)
        case Aggregate():
            by = ", ".join(node.group) or "nothing (one row)"
            calls = ", ".join(_call(node, name) for name in (call.name for call in node.calls)) or "distinct rows"
            return f"group by {by}: {calls}"
        case Finals():
            return f"rows of closed windows, each once: when {_watermarks(node)}"
        case TopN():
            order = [f"{item.column}{' DESC' if item.descending else ''}" for item in node.order]
            if isinstance(node, ArrivedTopN):
                order.insert(node.at, f"arrival{' DESC' if node.latest else ''}")
            of = f" of each {', '.join(node.partition)}" if node.partition else ""
            if node.limit == ALL_ROWS:
                return f"number the copies{of}"
            return f"first {node.limit}{of} by {', '.join(order)}"
        case Arrivals():
            return f"{'first' if node.first else 'last'} row of each {', '.join(node.key) or 'table'} by its records"
        case GroupJoin():
            kinds = {"semi": "rows that have a match", "anti": "rows that have no match"}
            return f"{kinds.get(node.kind, 'beside each other')} by {', '.join(node.left_on)}"
        case Join():
            on = " AND ".join(f"{one} = {other}" for one, other in zip(node.left_on, node.right_on, strict=True))
            return f"{node.kind} join on {on}"
        case Temporal():
            on = " AND ".join(f"{one} = {other}" for one, other in zip(node.on, node.key, strict=True))
            what = "or nulls" if node.padded else "and none without"
            return f"the version with {on} that was valid at {node.time}, {what}"
        case Lookup():
            on = " AND ".join(f"{key} = {name}" for name, key in node.on)
            what = "or nulls" if node.padded else "and none without"
            found = "every row" if isinstance(node, LookupRows) else "the row"
            return f"find {found} of {node.table} with {on} as rows arrive, {what}"
        case Unnest():
            left = ", or nulls" if node.padded else ""
            return f"unnest {node.column}: a row per element{left}"
        case Over():
            return _over(node)
        case Session():
            of = f" of each {', '.join(node.partition)}" if node.partition else ""
            return f"sessions of {node.time}{of}: gap {_span(node.gap)}"
        case Materialize():
            return f"upsert-materialize by {', '.join(node.key) or 'nothing'}: the row that arrived last"
        case Merge():
            return f"merge by {', '.join(node.key)}: the branch changed last"
        case Union():
            return "union all"


def _call(node: Aggregate, name: str) -> str:
    call = next(item for item in node.calls if item.name == name)
    distinct = "DISTINCT " if call.distinct else ""
    condition = f" FILTER (WHERE {call.filter})" if call.filter else ""
    return f"{call.function.upper()}({distinct}{call.argument or '*'}){condition} AS {call.name}"


def _watermarks(node: Finals) -> str:
    """Return what has to be, that rows are given."""
    found = dict.fromkeys(
        (item.closing.table, item.closing.column, item.closing.after)
        for item in _windows(node)
        if item.closing is not None and item.names[1] in node.windows
    )
    return " and ".join(f"{table}.{name} is {_span(after)} after {node.end}" for table, name, after in found)


def _windows(node: Node) -> Iterator[Window | Session]:
    if isinstance(node, (Window, Session)):
        yield node
    for item in node.inputs:
        yield from _windows(item)


def _over(node: Over) -> str:
    order = [f"{item.column}{' DESC' if item.descending else ''}" for item in node.order]
    if node.records:
        order.insert(node.at, f"arrival{' DESC' if node.latest else ''}")
    calls = ", ".join(f"{call.function.upper()}({call.argument or ''}) AS {call.name}" for call in node.calls)
    of = f" of each {', '.join(node.partition)}" if node.partition else ""
    reach = "all rows" if node.preceding is None else f"{node.preceding} rows" if node.rows else _span(node.preceding)
    return f"over the rows before{of} by {', '.join(order)}, back {reach}: {calls}"


def _span(microseconds: int) -> str:
    return f"{microseconds / 1_000_000:g} s"


def _state(node: Node) -> str | None:
    """Return the state of an operator and what it grows with."""
    match node:
        case Scan() if node.key and not node.signed:
            return f"the columns above per ({', '.join(node.key)}); grows with the keys of {node.table}"
        case Aggregate():
            group = ", ".join(node.group) or "nothing"
            multisets = dict.fromkeys(
                call.argument
                for call in node.calls
                if call.argument
                and (
                    call.distinct
                    or call.function in COLLECTS
                    or (call.function in ("min", "max") and not node.input.appends)
                )
            )
            values = "".join(f"; ({group}, {name}) to a count: grows with the different values" for name in multisets)
            return f"({group}) to counts and sums: grows with the groups{values}"
        case TopN():
            cut = node.input.appends and node.limit != ALL_ROWS
            what = f"the first {node.limit} rows" if cut else "all rows"
            return f"{what} of each partition; a batch reads the partitions that it touches"
        case Arrivals():
            what = "keys" if node.first else "rows"
            return f"the {what} per ({', '.join(node.key) or 'nothing'}): grows with the keys"
        case Lookup() if not node.input.appends:
            return f"what was found of {node.table} per row: grows with the rows; a batch asks for the keys of new rows"
        case Finals():
            return (
                "the rows of open windows: grows with these; a batch that closes a window reads them all, others the"
                " rows that change"
            )
        case Session() | Over():
            return "all rows of each partition: grows with the rows; a batch reads the partitions that it touches"
        case Materialize():
            return "all rows of each key: grows with the rows of the query; a batch reads the keys that it touches"
        case Merge():
            return f"the row of each branch per ({', '.join(node.key)}): grows with the keys of all branches"
        case Temporal():
            return "rows and all versions by key: grows with both; a batch reads the keys that it touches"
        case Join():
            return "the rows of both sides by join key: grows with both; a batch reads the keys that it touches"
    return None


def explain_state(store: QueryStore) -> str:
    """Return the present size of a query's state, or that it has not run yet. No JVM."""
    head = store.head()
    if head is None or not head.batch:
        return "not computed yet"
    files = [item for found in store.state_files().values() for item in found]
    sizes = sum(item.size for item in files)
    result = store.result_files()
    return (
        f"batch {head.batch}; state {sizes / 1_000_000:.1f} MB in {len(files)} files; result"
        f" {sum(item.size for item in result) / 1_000_000:.1f} MB in {len(result)} files"
    )
