"""Column lineage of queries."""

from __future__ import annotations

from collections.abc import Iterable

from upsert_platform.core.plan import (
    ARRIVED,
    Aggregate,
    Arrivals,
    Expand,
    Lookup,
    Node,
    Over,
    Project,
    Scan,
    Session,
    TopN,
    Union,
    Unnest,
    Window,
)

_Columns = tuple[tuple[str, str], ...]
"""Pairs of table and column."""


def lineage(node: Node) -> dict[str, _Columns]:
    """Return the source columns of each column of a result: name to (table, column)."""
    match node:
        case Scan():
            return {field.name: ((node.table, field.name),) for field in node.columns}
        case Project():
            found = lineage(node.input)
            return {name: _together(found[read] for read in item.reads) for name, item in node.columns}
        case Expand():
            found = lineage(node.input)
            names = [field.name for field in node.fields]
            return {
                name: _together(found[read] for columns in node.sets for read in columns[at][1].reads)
                for at, name in enumerate(names)
            }
        case Window() | Session():
            found = lineage(node.input)
            return found | dict.fromkeys(node.names, found[node.time])
        case Aggregate():
            found = lineage(node.input)
            own = {
                call.name: _together(found[name] for name in (call.argument, call.filter) if name is not None)
                for call in node.calls
            }
            return {name: found[name] for name in node.group} | own
        case TopN():
            found = lineage(node.input)
            if node.rank is not None:
                used = (*node.partition, *(item.column for item in node.order))
                found = found | {node.rank.name: _together(found[name] for name in used)}
            return found
        case Unnest():
            found = lineage(node.input)
            return found | {item.name: found[node.column] for item in node.added}
        case Over():
            found = lineage(node.input)
            own = {
                call.name: _together(
                    found[name]
                    for name in (call.argument, call.default, *node.partition, *(item.column for item in node.order))
                    if name is not None
                )
                for call in node.calls
            }
            return found | own | {ARRIVED.name: ()}
        case Arrivals():
            found = lineage(node.input)
            return {field.name: found[field.name] for field in node.fields}
        case Lookup():
            return lineage(node.input) | {name: ((node.table, item.name),) for name, item in node.columns}
        case Union():
            branches = [list(lineage(branch).values()) for branch in node.branches]
            names = [field.name for field in node.fields]
            return {name: _together(branch[at] for branch in branches) for at, name in enumerate(names)}
    return {name: item for side in node.inputs for name, item in lineage(side).items()}


def _together(parts: Iterable[_Columns]) -> _Columns:
    return tuple(dict.fromkeys(item for part in parts for item in part))
