"""The paths of JSON_VALUE, JSON_QUERY and JSON_EXISTS: ``lax $.name``, ``$['name']``, ``$.list[0]``, ``$.l[*].x``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_MODE: Final = re.compile(r"\s*(lax|strict)\s+(?=\S)", re.IGNORECASE)
_STEP: Final = re.compile(
    r"\.(?P<name>[^.\[\]\s*()]+)|\.(?P<every>\*)|\[\s*'(?P<quoted>(?:[^'\\]|\\.)*)'\s*\]"
    r'|\[\s*"(?P<double>(?:[^"\\]|\\.)*)"\s*\]|\[\s*(?P<index>-?\d+)\s*\]|\[\s*(?P<all>\*)\s*\]'
)


class PathFault(ValueError):  # noqa: N818 - the renderer makes it a problem
    """The text is not a path that is supported."""


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path.

    Attributes:
        lax: what is missing is nothing, rather than an error. Without a word a path is strict, as in Flink.
        steps: names, indexes (negative ones from the end), and None for every member or element.
    """

    lax: bool
    steps: tuple[str | int | None, ...]


def read_path(text: str) -> JsonPath:
    """Reads a path.

    Raises:
        PathFault: it is none, or uses a filter, a slice or a descent (``..``).
    """
    mode = _MODE.match(text)
    position = mode.end() if mode is not None else len(text) - len(text.lstrip())
    if not text.startswith("$", position):
        raise PathFault("a path begins with '$'")
    position += 1
    steps: list[str | int | None] = []
    end = len(text.rstrip())
    while position < end:
        found = _STEP.match(text, position)
        if found is None:
            raise PathFault(
                "a path is made of .name, ['name'], [0], .* and [*]; filters, slices and '..' are not supported"
            )
        position = found.end()
        name = next((found[group] for group in ("name", "quoted", "double") if found[group] is not None), None)
        if name is not None:
            steps.append(name if found["name"] else re.sub(r"\\(.)", r"\1", name))
        else:
            steps.append(int(found["index"]) if found["index"] is not None else None)
    return JsonPath(mode is not None and mode[1].lower() == "lax", tuple(steps))
