"""How a producer lays JSON objects out: which bytes of a message are the same in all that are written alike.

Producers write the fields of a kind of record in one order, with the same spaces. Between two quotation marks of such
messages stands the same text, or a value: the marks alone tell where. Messages with a backslash or an array have no
layout here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import orjson

Path = tuple[str, ...]
"""Names of fields, from the outermost object on."""
Run = tuple[tuple[int, np.uint64, np.uint64 | None], ...]
"""Bytes that stay the same, in words of eight: the distance of each from a place, the word, and a mask where there are
fewer bytes."""
MOST_MARKS: Final = 400
MOST_FIXED: Final = 4_096
"""Bytes between two values."""
_WORD: Final = 8
_TOKEN: Final = re.compile(rb'[\t\n\r ]+|"[^"\\]*"|[{}:,]|[-+.0-9A-Za-z]+')


@dataclass(frozen=True, slots=True)
class Value:
    """Where a value stands.

    Attributes:
        quoted: it is what stands between two marks; else a number, ``true``, ``false`` or ``null``.
        mark: number of the first mark behind it; that of all marks if there is none.
        lead: bytes between the place behind the value before, or the begin of the message, and this one. The place
            behind a value is its next mark, or the end of the message.
        trail: bytes between it and the place behind it.
        run: the bytes that stand before it, back to those of `Value.trail` of the value before, as words.
    """

    path: Path
    quoted: bool
    mark: int
    lead: int
    trail: int
    run: Run


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A layout of messages.

    Attributes:
        marks: how many quotation marks a message has.
        values: in their order.
        tail: bytes from the place behind the last value to the end of the message.
        run: these bytes, with those of the last value's `Value.trail` before.
        objects: paths of the fields that are objects.
    """

    marks: int
    values: tuple[Value, ...]
    tail: int
    run: Run
    objects: frozenset[Path]


def layout_of(message: bytes) -> Layout | None:
    """The layout of a message; None if it has none, or is no JSON object."""
    try:
        if type(orjson.loads(message)) is not dict:
            return None
    except orjson.JSONDecodeError:
        return None
    walked = _walk(message)
    count = message.count(b'"')
    if walked is None or count > MOST_MARKS:
        return None
    spans, objects = walked
    values: list[Value] = []
    behind = trail = 0
    for path, start, end in spans:
        quoted = message[start - 1 : start] == b'"'
        following = end if quoted else message.find(b'"', end)
        following = following if following >= 0 else len(message)
        run = _run(message[behind - trail : start], -trail)
        mark = message.count(b'"', 0, following)
        values.append(Value(path, quoted, mark, start - behind, following - end, run))
        behind, trail = following, following - end
    run = _run(message[behind - trail :], -trail)
    if any(value.lead + value.trail > MOST_FIXED for value in values) or len(message) - behind > MOST_FIXED:
        return None
    return Layout(count, tuple(values), len(message) - behind, run, frozenset(objects))


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
            values.append((tuple(path), token.start() + quoted, end - quoted))
            path.pop()
            named = False
    return (values, objects) if end == len(message) else None


def _run(text: bytes, distance: int) -> Run:
    places = [*range(0, len(text) - _WORD + 1, _WORD)]
    if len(text) % _WORD and len(text) > _WORD:
        places.append(len(text) - _WORD)
    if 0 < len(text) < _WORD:
        return ((distance, _word(text), np.uint64((1 << 8 * len(text)) - 1)),)
    return tuple((distance + place, _word(text[place : place + _WORD]), None) for place in places)


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))
