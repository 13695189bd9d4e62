"""The columns of a plan that are ends of windows that close: rows with one of them belong to that window."""

from __future__ import annotations

from collections.abc import Iterable

from upsert_platform.core.plan.lookup import Lookup
from upsert_platform.core.plan.operators import (
    Aggregate,
    Arrivals,
    Expand,
    Filter,
    Join,
    Merge,
    Node,
    Project,
    Union,
    Window,
)
from upsert_platform.core.plan.over import Over
from upsert_platform.core.plan.sessions import Session
from upsert_platform.core.plan.topn import TopN
from upsert_platform.core.plan.unnest import Unnest


def closing_ends(node: Node, name: str) -> tuple[str, ...]:
    """Return the ends of closing windows that a column holds, by their names where they are made; empty for others.

    Rows of the plan that are equal in the column change until all of these windows are closed, and not after that: each
    operator computes them of rows of the same windows alone.
    """
    match node:
        case Window():
            if name in node.edges[1:]:
                return (name,) if node.closing is not None else ()
            return _of_input(node.input, name)
        case Session():
            return (name,) if name == node.names[1] and node.closing is not None else ()
        case Project():
            expression = dict(node.columns)[name]
            return closing_ends(node.input, expression.column) if expression.column is not None else ()
        case Filter() | Lookup() | Unnest():
            return _of_input(node.input, name)
        case Aggregate():
            return _of_input(node.input, name) if name in node.group else ()
        case TopN() | Over():
            return _of_input(node.input, name) if name in node.partition else ()
        case Arrivals():
            return _of_input(node.input, name) if name in node.key else ()
        case Expand():
            shown = [dict(columns)[name].column for columns in node.sets]
            return _of_all(closing_ends(node.input, item) if item is not None else () for item in shown)
        case Union() if not isinstance(node, Merge):
            at = [field.name for field in node.fields].index(name)
            return _of_all(closing_ends(branch, branch.fields[at].name) for branch in node.branches)
        case Join():
            return _of_join(node, name)
    return ()


def _of_input(node: Node, name: str) -> tuple[str, ...]:
    return closing_ends(node, name) if name in {field.name for field in node.fields} else ()


def _of_join(node: Join, name: str) -> tuple[str, ...]:
    """Return the ends by which both sides of a join match, for the column of a side that is never padded."""
    if node.kind not in ("inner", "left", "right", "semi", "anti"):
        return ()
    own = node.right_on if node.kind == "right" else node.left_on
    return next(
        (
            _of_all((closing_ends(node.left, left), closing_ends(node.right, right)))
            for left, right, mine in zip(node.left_on, node.right_on, own, strict=True)
            if mine == name
        ),
        (),
    )


def _of_all(parts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return all names together, or none if one of the parts has none."""
    found = list(parts)
    return tuple(dict.fromkeys(name for part in found for name in part)) if all(found) else ()
