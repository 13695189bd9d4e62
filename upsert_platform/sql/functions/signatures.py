"""Signatures of functions: arguments are checked and written into Spark SQL.

A parameter is a letter: ``s`` a text, ``d`` a number as DOUBLE, ``n`` a number, ``i`` an integer, ``b`` a text or bytes
(as bytes), ``x`` anything, ``a`` an array, ``m`` a map.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.casts import cast
from upsert_platform.sql.rendered import (
    BINARIES,
    BYTES,
    DOUBLE,
    INT,
    INTEGERS,
    NUMBERS,
    STRING,
    STRINGS,
    Rendered,
    made,
)  # fmt: skip

Handler = Callable[[Sequence[Rendered]], Rendered]
Overloads = dict[int, Handler]
"""Number of arguments to handler; ANY for every number."""
ANY: Final = -1


class FunctionFault(Exception):  # noqa: N818 - the renderer adds the line and makes it a problem
    """A function cannot be translated, with the reason."""


_PARAMETERS: Final = {
    "s": ("a text", STRINGS),
    "d": ("a number", NUMBERS),
    "n": ("a number", NUMBERS),
    "i": ("an integer", INTEGERS),
    "b": ("a text or bytes", (*STRINGS, *BINARIES)),
    "a": ("an array", (TypeName.ARRAY,)),
    "m": ("a map", (TypeName.MAP,)),
}
_NULLS: Final = {"s": STRING, "d": DOUBLE, "n": INT, "i": INT, "b": BYTES}


def argument(letter: str, value: Rendered, name: str) -> Rendered:
    """An argument as its parameter wants it.

    Raises:
        FunctionFault: it is of another type.
    """
    if letter == "x":
        return value
    if value.type is None:
        if letter not in _NULLS:
            raise FunctionFault(f"{name} takes {_PARAMETERS[letter][0]}, not NULL")
        return cast(value, _NULLS[letter])
    what, names = _PARAMETERS[letter]
    if value.root not in names:
        remedy = ": write CAST(... AS STRING)" if letter == "s" else ""
        raise FunctionFault(f"{name} takes {what}, not {value.type}{remedy}")
    if letter == "d":
        return cast(value, DOUBLE)
    return cast(value, BYTES) if letter == "b" else value


def template(
    parameters: str, text: str, kind: LogicalType | Callable[[Sequence[Rendered]], LogicalType | None]
) -> Callable[[str], Handler]:
    """A function whose Spark SQL is a text with ``{0}``, ``{1}`` for its arguments.

    Args:
        kind: its type, or how that follows from the arguments.
    """

    def named(name: str) -> Handler:
        def render(arguments: Sequence[Rendered]) -> Rendered:
            given = [argument(letter, item, name) for letter, item in zip(parameters, arguments, strict=True)]
            result = kind(given) if callable(kind) else kind
            return made(text.format(*(item.wrapped for item in given)), result, *given)

        return render

    return named


def overloads(
    table: dict[str, Sequence[tuple[str, str, LogicalType | Callable[[Sequence[Rendered]], LogicalType | None]]]],
) -> dict[str, Overloads]:
    """Functions from rows of parameters, Spark SQL and type."""
    return {
        name: {len(parameters): template(parameters, text, kind)(name) for parameters, text, kind in rows}
        for name, rows in table.items()
    }


def constant(value: Rendered, name: str, what: str) -> str:
    """The text of an argument that has to be a literal.

    Raises:
        FunctionFault: it is none.
    """
    if value.constant is None:
        raise FunctionFault(f"{name} takes {what} as a literal here")
    return value.constant


def integer(value: Rendered) -> int | None:
    """The value of an integer literal; None if the argument is none."""
    if value.constant is None or value.root not in INTEGERS:
        return None
    return int(value.constant)
