"""Functional dependencies between columns, and the unique keys of a plan.

A column follows from others if two rows that are equal in those are equal in it: the columns of a table from its
primary key, the end of a window from its start, results of a GROUP BY from its columns, a computed value from values
that it reads. Nothing follows from columns that a join may have padded with nulls.
"""

from __future__ import annotations

from collections.abc import Iterable

from upsert_platform.core.plan.columns import Expression
from upsert_platform.core.plan.lookup import Lookup, LookupRows
from upsert_platform.core.plan.materialize import Materialize
from upsert_platform.core.plan.operators import (
    Aggregate,
    Arrivals,
    Filter,
    Join,
    Merge,
    Node,
    Project,
    Scan,
    Window,
)
from upsert_platform.core.plan.over import Over
from upsert_platform.core.plan.sessions import Session
from upsert_platform.core.plan.temporal import Temporal
from upsert_platform.core.plan.topn import TopN
from upsert_platform.core.plan.unnest import Unnest
from upsert_platform.core.types import quote_name

Names = frozenset[str]


def tells_apart(node: Node, given: Iterable[str]) -> bool:
    """Return whether no two rows of a result are equal in these columns."""
    known = _following(node, frozenset(given))
    return any(key <= known for key in node.keys) or _is_unique(node, known)


def lacking(node: Node, given: Iterable[str]) -> tuple[str, ...]:
    """The fewest columns that have to be added to these, so that they tell the rows of a result apart."""
    known = _following(node, frozenset(given))
    if isinstance(node, Project) and not node.keys:  # what would tell rows apart is not shown
        return lacking(node.input, _inside(node, known))
    choices = sorted((sorted(key - known) for key in node.keys), key=lambda names: (len(names), names))
    return tuple(choices[0]) if choices else ()


def _is_unique(node: Node, known: Names) -> bool:
    """Return whether there is at most one row for what is known, which is all that follows."""
    if any(key <= known for key in node.keys):
        return True
    match node:
        case Project():
            return _met_in_full_join(node, known) or _is_unique(node.input, _inside(node, known))
        case Filter():
            return _is_unique(node.input, _following(node.input, known))
        case LookupRows():
            return False
        case Lookup() | TopN() | Session() | Over() | Temporal():
            return _is_unique(node.input, _following(node.input, known & _names(node.input)))
        case Window():
            edge = not node.copies or _edges(node, known) >= set(node.names)
            return edge and _is_unique(node.input, _following(node.input, known & _names(node.input)))
        case Join(kind="semi" | "anti"):
            return _is_unique(node.left, known)
        case Join(kind="inner" | "left" | "right"):
            sides = ((side, known & _names(side)) for side in (node.left, node.right))
            return all(_is_unique(side, of_side) for side, of_side in sides)
    return False


def _following(node: Node, known: Names) -> Names:
    """All columns of a result that follow from some of them."""
    known &= _names(node)
    match node:
        case Scan():
            return _names(node) if node.key and set(node.key) <= known else known
        case Project():
            inner = _inside(node, known)
            computed = (name for name, item in node.columns if item.varies is None and set(item.reads) <= inner)
            return known | frozenset(computed)
        case Filter():
            return _following(node.input, known | _constants(node.condition))
        case Lookup() | Over() | Unnest() | Temporal():
            return known | _following(node.input, known & _names(node.input))
        case TopN():
            found = known | _following(node.input, known & _names(node.input))
            one = node.limit == 1 or (node.rank is not None and node.rank.name in known)
            return _names(node) if one and set(node.partition) <= found else found
        case Window():
            found = known | _following(node.input, known & _names(node.input))
            if node.kind == "tumble" and node.time in found:
                found |= set(node.names)
            return found | _edges(node, found)
        case Session():
            found = known | _following(node.input, known & _names(node.input))
            told = {node.time, *node.names} & found and set(node.partition) <= found
            return found | set(node.names) if told else found
        case Aggregate():
            found = known | (_following(node.input, known & set(node.group)) & set(node.group))
            key = node.group if node.unique is None else node.unique
            return _names(node) if set(key) <= found else found
        case Arrivals() | Merge() | Materialize() if set(node.key) <= known:
            return _names(node)
        case Join():
            return _joined(node, known)
    return known


def _inside(node: Project, known: Names) -> Names:
    """The columns of a projection's input that follow from those of its result."""
    columns = dict(node.columns)
    shown = [columns[name] for name in known if name in columns]
    found = frozenset(item.column for item in shown if item.column is not None)
    found |= {item.keeps[0] for item in shown if item.keeps is not None and _is_kept(node.input, *item.keeps)}
    return _following(node.input, found)


def _is_kept(node: Node, name: str, unit: int) -> bool:
    """Return whether a column that is shown up to a unit of time has nothing below that unit."""
    return unit == 0 or _is_whole(node, name, unit)


def _is_whole(node: Node, name: str, unit: int) -> bool:
    """Return whether a column is the edge of windows whose lengths are whole numbers of a unit, in microseconds."""
    match node:
        case Window() if name in node.edges:
            return not any(length % unit for length in (node.size, node.step, node.offset))
        case Project():
            inner = dict(node.columns)[name].column
            return inner is not None and _is_whole(node.input, inner, unit)
        case Filter() | Window() | Aggregate() | Lookup() | TopN() if name in _names(node.input):
            return _is_whole(node.input, name, unit)
    return False


def _edges(node: Window, known: Names) -> Names:
    """The columns of a window that follow from one of them: of CUMULATE the start tells no end."""
    start, *ends = node.names
    telling = set(ends) if node.kind == "cumulate" else set(node.names)
    return frozenset(node.names) if telling & known else known & {start}


def _joined(node: Join, known: Names) -> Names:
    """Return the dependencies of a join: a side that is never padded determines the columns that the other side is
    matched by.
    """
    left, right = _names(node.left), _names(node.right)
    if node.kind in ("semi", "anti"):
        return _following(node.left, known)
    if node.kind == "full":
        return known
    before: Names = frozenset()
    while before != known:
        before = known
        for side, own, on, others in (
            (node.left, left, node.left_on, node.right_on),
            (node.right, right, node.right_on, node.left_on),
        ):
            padded = node.kind == ("right" if side is node.left else "left")
            matched = not padded or set(others) <= known
            if matched:
                known |= _following(side, known & own)
                if _is_unique(side, known & own):
                    known |= own
            if not padded and set(on) <= known:
                known |= set(others)
    return known


def _met_in_full_join(node: Project, known: Names) -> bool:
    """Return whether ``COALESCE(a.k, b.k)`` of a FULL JOIN by both keys is known, for all columns of the keys."""
    join = node.input
    if not isinstance(join, Join) or join.kind != "full":
        return False
    nullable = {item.name for side in (join.left, join.right) for item in side.fields if item.type.nullable}
    shown = {item.sql for name, item in node.columns if name in known}
    both = all(
        any(f"COALESCE({quote_name(a)}, {quote_name(b)})" in shown for a, b in ((one, other), (other, one)))
        for one, other in zip(join.left_on, join.right_on, strict=True)
    )
    sides = ((join.left, join.left_on), (join.right, join.right_on))
    whole = all(tells_apart(side, on) for side, on in sides)
    return both and whole and not nullable & {*join.left_on, *join.right_on}


def _constants(condition: Expression) -> Names:
    """The columns that a condition sets equal to a constant."""
    native = condition.native
    if native is None or native[0] != "=":
        return frozenset()
    kinds = {side[0]: side[1] for side in native[1:]}
    return frozenset({kinds["column"]}) if set(kinds) == {"column", "literal"} else frozenset()


def _names(node: Node) -> Names:
    return frozenset(item.name for item in node.fields)
