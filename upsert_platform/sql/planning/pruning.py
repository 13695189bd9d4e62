"""Leaves out the columns that a query does not use, down to what is read of its tables and kept as state."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from upsert_platform.core.plan import (
    ARRIVED,
    Aggregate,
    Arrivals,
    ArrivedTopN,
    Expand,
    Filter,
    Finals,
    Join,
    Lookup,
    Materialize,
    Merge,
    Node,
    Order,
    Over,
    Project,
    Scan,
    Session,
    Temporal,
    TopN,
    Union,
    Unnest,
    Window,
    column,
    tells_apart,
)


def prune(node: Node, needed: Collection[str]) -> Node:
    """A plan that gives at least the needed columns, and computes no others than it must."""
    match node:
        case Scan():
            kept = tuple(field for field in node.columns if field.name in needed or field.name in node.key)
            # A row without columns still counts.
            return replace(node, columns=kept or node.columns[:1])
        case Project():
            columns = tuple(item for item in node.columns if item[0] in needed) or node.columns[:1]
            return Project(prune(node.input, _reads(columns)), columns)
        case Filter():
            return Filter(prune(node.input, {*needed, *node.condition.reads}), node.condition)
        case Window():
            inner = prune(node.input, {*needed, node.time} - set(node.names))
            return replace(node, input=inner)
        case Session():
            inner = prune(node.input, {*needed, node.time, *node.partition} - set(node.names))
            return replace(node, input=inner)
        case Aggregate():
            calls = tuple(call for call in node.calls if call.name in needed)
            if not calls and not node.group:
                calls = node.calls[:1]
            used = {name for call in calls for name in (call.argument, call.filter) if name is not None}
            return replace(node, input=prune(node.input, {*node.group, *used}), calls=calls)
        case Expand():
            sets = tuple(tuple(item for item in columns if item[0] in needed) or columns[:1] for columns in node.sets)
            return replace(
                node, input=prune(node.input, {name for columns in sets for name in _reads(columns)}), sets=sets
            )
        case TopN():
            rank = node.rank if node.rank is not None and node.rank.name in needed else None
            used = {*node.partition, *(item.column for item in node.order)}
            if isinstance(node, ArrivedTopN):
                used |= {name for record in node.records for name in record}
            ties = _ties(node)
            inner = prune(node.input, {*needed, *used, *ties})
            return replace(node, input=inner, rank=rank, order=_decided(node, inner, ties))
        case Unnest():
            inner = prune(node.input, {*needed, node.column} - {item.name for item in node.added})
            return replace(node, input=inner)
        case Over():
            calls_used = tuple(call for call in node.calls if call.name in needed)
            used = {*node.partition, *(item.column for item in node.order)}
            used |= {ARRIVED.name, *(name for record in node.records for name in record)}
            used |= {name for call in calls_used for name in (call.argument, call.default) if name is not None}
            # Rows that are equal by the order share a frame of RANGE, and a rank.
            apart = node.rows and all(call.function not in ("rank", "dense_rank") for call in node.calls)
            ties = _ties(node) if apart else ()
            inner = prune(node.input, {*needed, *used, *ties} - {call.name for call in node.calls})
            return replace(node, input=inner, calls=calls_used, order=_decided(node, inner, ties))
        case Arrivals():
            used = {*node.key, *(name for order in node.orders for name in order)}
            return replace(node, input=prune(node.input, {*needed, *used}))
        case Join():
            left = prune(node.left, {*needed, *node.left_on})
            right = prune(node.right, {*needed, *node.right_on})
            if node.kind in ("semi", "anti"):
                right = prune(node.right, node.right_on)
            return replace(node, left=left, right=right)
        case Temporal():
            inner = prune(node.input, {*needed, *node.on, node.time})
            shown = tuple(name for name in node.columns if name in needed)
            versions = prune(node.versions, {*shown, *node.key, node.since, node.put, *node.record})
            return replace(node, input=inner, versions=versions, columns=shown)
        case Lookup():
            # What is found belongs to one row: without a key, rows that became equal would share it.
            keys = () if node.input.appends else node.input.keys
            key = min((sorted(names) for names in keys), key=len, default=[])
            inner = prune(node.input, {*needed, *key, *(name for name, _ in node.on)})
            columns_found = tuple(item for item in node.columns if item[0] in needed)
            return replace(node, input=inner, columns=columns_found)
        case Materialize():
            return Materialize(prune(node.input, {*needed, *node.key}), node.key)
        case Finals():
            return replace(node, input=prune(node.input, {*needed, node.end}))
        case Merge():
            stay = [at for at, field in enumerate(node.fields) if field.name in {*needed, *node.key}]
            branches = (_only(branch, [branch.fields[at].name for at in stay]) for branch in node.branches)
            return Merge(tuple(branches), node.key)
        case Union():
            kept_at = [at for at, field in enumerate(node.fields) if field.name in needed] or [0]
            pruned = tuple(_only(branch, [branch.fields[at].name for at in kept_at]) for branch in node.branches)
            return replace(node, branches=pruned)


def _ties(node: TopN | Over) -> tuple[str, ...]:
    """The shortest key of rows that an order may leave equal.

    It decides between them, whatever other columns are used: a statement that reads a view twice has to see the same
    rows in both.
    """
    given = {*node.partition, *(item.column for item in node.order)}
    if node.input.appends or tells_apart(node.input, given):
        return ()
    places = {item.name: at for at, item in enumerate(node.input.fields)}
    keys = [sorted(places[name] for name in key) for key in node.input.keys if key <= places.keys()]
    key = min(keys, key=lambda own: (len(own), own), default=[])
    names = [node.input.fields[at].name for at in key]
    return tuple(name for name in names if name not in given)


def _decided(node: TopN | Over, inner: Node, ties: tuple[str, ...]) -> tuple[Order, ...]:
    """The order of a node with what decides between equals, unless the columns of its input do so in their order."""
    given = {*node.partition, *(item.column for item in node.order)}
    others = tuple(item.name for item in inner.fields if item.name not in given)
    return node.order if others[: len(ties)] == ties else (*node.order, *map(Order, ties))


def _reads(columns: Collection[tuple[str, object]]) -> set[str]:
    return {name for _, expression in columns for name in expression.reads}  # type: ignore[attr-defined]


def _only(node: Node, names: list[str]) -> Node:
    """Exactly these columns, in this order: branches of a union are matched by position."""
    pruned = prune(node, names)
    if [field.name for field in pruned.fields] == names:
        return pruned
    fields = {field.name: field for field in pruned.fields}
    return Project(pruned, tuple((name, column(fields[name])) for name in names))
