"""The columns of states by which rows leave them: the ends of windows that close."""

from __future__ import annotations

from collections.abc import Sequence

from upsert_platform.core.plan import Field, Join, Node, Project, Session, Union, Window, closing_ends

End = tuple[int, tuple[str, ...]]
"""The place of a column among the keys of a state, and the names of the ends of windows that it holds."""


def end_of_state(node: Node, by: Sequence[str], keys: Sequence[str]) -> End | None:
    """Return the column by which the rows of an operator's state leave it; None where they stay.

    Args:
        node: input of the operator.
        by: columns whose values the operator computes each by itself.
        keys: of the state, in their order.
    """
    for name in by:
        windows = closing_ends(node, name)
        if windows:
            return keys.index(name), windows
    return None


def ends_of_join(node: Join) -> tuple[End | None, End | None]:
    """Return the columns by which the rows of both sides leave the state of a join, when they meet none any more."""
    for left, right in zip(node.left_on, node.right_on, strict=True):
        one, other = closing_ends(node.left, left), closing_ends(node.right, right)
        if one and other:
            windows = tuple(dict.fromkeys((*one, *other)))
            return (_place(node.left.fields, left), windows), (_place(node.right.fields, right), windows)
    return None, None


def _place(fields: Sequence[Field], name: str) -> int:
    return [field.name for field in fields].index(name)


def is_of_window(node: Node, names: Sequence[str]) -> bool:
    """Return whether one of these columns is an end of windows: then rows belong to a window, which has a time."""
    return any(_is_end(node, name) for name in names)


def _is_end(node: Node, name: str) -> bool:
    if isinstance(node, (Window, Session)) and name in node.edges:
        return True
    if isinstance(node, Project):
        expression = dict(node.columns).get(name)
        return expression is not None and expression.column is not None and _is_end(node.input, expression.column)
    if isinstance(node, Union):
        places = [at for at, field in enumerate(node.fields) if field.name == name]
        return bool(places) and any(_is_end(item, item.fields[places[0]].name) for item in node.branches)
    return any(_is_end(item, name) for item in node.inputs if name in {field.name for field in item.fields})
