"""The column of a GROUP BY by which groups leave the state: the end of a window that closes."""

from __future__ import annotations

from upsert_platform.core.plan import Aggregate, Filter, Lookup, Node, Project, Window


def end_of_group(node: Aggregate) -> tuple[int, str] | None:
    """Return the column of a GROUP BY that is the end of a closing window: its place, and its name where it is made."""
    for at, name in enumerate(node.group):
        made = _end(node.input, name)
        if made is not None:
            return at, made
    return None


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
