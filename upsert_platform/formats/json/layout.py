"""Layouts of JSON objects: which bytes of a message are the same in all that a producer writes alike.

Producers write the fields of a kind of record in one order, with the same spaces. Between two quotation marks of such
messages stands the same text, or a value: the marks alone tell where. Messages with a backslash or an array have no
layout here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import orjson

Path = tuple[str, ...]
"""Names of fields, from the outermost object on."""
MOST_MARKS: Final = 400
MOST_FIXED: Final = 4_096
"""Bytes between two values."""
_LONGEST: Final = 1 << 16
_WORD: Final = 8
_TOKEN: Final = re.compile(rb'[\t\n\r ]+|"[^"\\]*"|[{}:,]|[-+.0-9A-Za-z]+')


@dataclass(frozen=True, slots=True)
class Fixed:
    """Bytes that stay the same, from the end of a value, or the begin of the message, on.

    Attributes:
        words: as words of eight bytes: the distance of each, the word, and a mask where it has fewer bytes.
        length: how many.
        marks: quotation marks among them.
    """

    words: tuple[tuple[int, np.uint64, np.uint64 | None], ...]
    length: int
    marks: int

    @classmethod
    def of(cls, text: bytes) -> Self:
        """Some bytes."""
        whole = range(0, len(text) - _WORD + 1, _WORD)
        words = [(place, _word(text[place : place + _WORD]), None) for place in whole]
        if 0 < len(text) < _WORD:
            return cls(((0, _word(text), np.uint64((1 << 8 * len(text)) - 1)),), len(text), text.count(b'"'))
        if len(text) % _WORD:
            words.append((len(text) - _WORD, _word(text[-_WORD:]), None))
        return cls(tuple(words), len(text), text.count(b'"'))


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a message.

    Attributes:
        before: what stands between the value before and this one, its opening mark left out.
        quoted: it stood between marks; else it was a number, ``true``, ``false`` or ``null``.
        null: it was ``null``.
        trail: bytes from its end to the next mark, or to the end of the message if there is none.
        is_last: there is none.
    """

    path: Path
    before: Fixed
    quoted: bool
    null: bool
    trail: int
    is_last: bool


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A layout of messages.

    Attributes:
        values: in their order.
        behind: what follows the last one.
        objects: paths of the fields that are objects.
    """

    values: tuple[Value, ...]
    behind: Fixed
    objects: frozenset[Path]


def layout_of(message: bytes) -> Layout | None:
    """The layout of a message; None if it has none, or is no JSON object."""
    if len(message) > _LONGEST or message.count(b'"') > MOST_MARKS or b"\\" in message:
        return None
    try:
        if type(orjson.loads(message)) is not dict:
            return None
    except orjson.JSONDecodeError:
        return None
    walked = _walk(message)
    if walked is None:
        return None
    spans, objects = walked
    values: list[Value] = []
    end = 0
    for path, start, stop in spans:
        quoted = message[start : start + 1] == b'"'
        mark = message.find(b'"', stop)
        trail = (mark if mark >= 0 else len(message)) - stop
        null = message[start:stop] == b"null"
        values.append(Value(path, Fixed.of(message[end:start]), quoted, null, trail, mark < 0))
        end = stop
    behind = Fixed.of(message[end:])
    if any(value.before.length + value.trail > MOST_FIXED for value in values) or behind.length > MOST_FIXED:
        return None
    return Layout(tuple(values), behind, frozenset(objects))


def _walk(message: bytes) -> tuple[list[tuple[Path, int, int]], set[Path]] | None:
    """Paths and places of the values of a message that is a JSON object, and the paths of its objects."""
    values: list[tuple[Path, int, int]] = []
    objects: set[Path] = set()
    path: list[str] = []
    seen: set[Path] = set()
    named, end = False, 0
    for token in _TOKEN.finditer(message):
        if token.start() != end:
            return None  # an array, or a backslash
        end, text = token.end(), token[0]
        quoted = text[:1] == b'"'
        if quoted and not named:
            path.append(text[1:-1].decode())
            if tuple(path) in seen:
                return None  # of a name that is there twice the last value counts, or none
            seen.add(tuple(path))
        elif text == b":":
            named = True
        elif text == b"{":
            if path:
                objects.add(tuple(path))
            named = False
        elif text == b"}":
            if path:
                path.pop()
        elif not text.isspace() and text != b",":
            values.append((tuple(path), token.start(), end))
            path.pop()
            named = False
    return (values, objects) if end == len(message) else None


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))
