"""The column of a GROUP BY by which groups leave the state: the end of a window that closes."""

from __future__ import annotations

from collections.abc import Sequence

from upsert_platform.core.plan import Aggregate, Filter, Lookup, Node, Project, Session, Union, Window


def end_of_group(node: Aggregate) -> tuple[int, str] | None:
    """Return the column of a GROUP BY that is the end of a closing window: its place, and its name where it is made."""
    for at, name in enumerate(node.group):
        made = _end(node.input, name)
        if made is not None:
            return at, made
    return None


def is_of_window(node: Node, names: Sequence[str]) -> bool:
    """Return whether one of these columns is an end of windows: then rows belong to a window, which has a time."""
    return any(_is_end(node, name) for name in names)


def _is_end(node: Node, name: str) -> bool:
    if isinstance(node, (Window, Session)) and name in node.names[:2]:
        return True
    if isinstance(node, Project):
        expression = dict(node.columns).get(name)
        return expression is not None and expression.column is not None and _is_end(node.input, expression.column)
    if isinstance(node, Union):
        places = [at for at, field in enumerate(node.fields) if field.name == name]
        return bool(places) and any(_is_end(item, item.fields[places[0]].name) for item in node.branches)
    return any(_is_end(item, name) for item in node.inputs if name in {field.name for field in item.fields})


def _end(node: Node, name: str) -> str | None:
    match node:
        case Project():
            expression = dict(node.columns)[name]
            return _end(node.input, expression.column) if expression.column is not None else None
        case Filter():
            return _end(node.input, name)
        case Lookup() if name in {item.name for item in node.input.fields}:
            return _end(node.input, name)
        case Window() if node.closing is not None and name == node.names[1]:
            return name
    return None
