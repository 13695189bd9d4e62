"""Hints of a query, ``/*+ BROADCAST(t) */``: those about execution alone are passed over, others are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from upsert_platform.sql.lexer import Token, TokenKind
from upsert_platform.sql.reader import Fault

_EXECUTION: Final = {
    "BROADCAST": "how a join is carried out follows from its data",
    "SHUFFLE_HASH": "how a join is carried out follows from its data",
    "SHUFFLE_MERGE": "how a join is carried out follows from its data",
    "NEST_LOOP": "how a join is carried out follows from its data",
    "LOOKUP": "a batch asks for each of its keys once, and tries again until 'retry.deadline'",
}
"""Hints that change no result, with what takes their place."""
_REFUSED: Final = {
    "STATE_TTL": "state is not let go of by its age; to bound it, group by windows that close (SET"
    " 'table.exec.emit.allow-lateness')",
}
_OTHER: Final = "give options in the WITH clause of the table"
_NAME: Final = re.compile(r"([A-Za-z_]+)\s*\(")
_TEXT: Final = re.compile(r"'[^']*'")


def without_hints(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """The tokens of a query without hints that change no result.

    Raises:
        Fault: a hint that would change one.
    """
    for token in tokens:
        for name in _names(token):
            if name not in _EXECUTION:
                remedy = _REFUSED.get(name, _OTHER)
                which = f"the hint {name} is" if name in _REFUSED else "hints (/*+ ... */) are"
                raise Fault(f"{which} not supported: {remedy}", token.line)
    return tuple(token for token in tokens if token.kind is not TokenKind.HINT)


def hint_warnings(tokens: Sequence[Token]) -> Iterator[tuple[str, int]]:
    """Yield a warning with its line for each hint without effect."""
    for token in tokens:
        for name in _names(token):
            if name in _EXECUTION:
                yield f"the hint {name} has no effect: {_EXECUTION[name]}", token.line


def _names(token: Token) -> list[str]:
    if token.kind is not TokenKind.HINT:
        return []
    text = _TEXT.sub("''", token.text)
    return [name.upper() for name in _NAME.findall(text)] or [""]
