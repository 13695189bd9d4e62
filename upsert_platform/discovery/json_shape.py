"""Types of JSON values, found out of a sample of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final

from upsert_platform.core.types import LogicalType, RowField, TypeName
from upsert_platform.discovery.shape import BOOLEAN, DOUBLE, STRING, Found, FoundColumn, apart
from upsert_platform.discovery.texts import decimal_of, integer_of, standard_of, type_of_texts
from upsert_platform.formats.json.tree import FloatText, IntText, Tree

_MANY_NAMES: Final = 12
"""Names from which on an object that has few of them each time is a map."""
_MILLISECONDS: Final = range(946_684_800_000, 4_102_444_800_000)
"""Of the years 2000 to 2099, since 1970."""


def texts_in(tree: Tree) -> Iterator[str]:
    """Yield every text of a JSON value that is no number."""
    if isinstance(tree, tuple):
        for _, value in tree:
            yield from texts_in(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from texts_in(value)
    elif type(tree) is str:
        yield tree


def columns_of(objects: Sequence[Tree], *, standard: str | None = None) -> tuple[tuple[FoundColumn, ...], list[str]]:
    """Return the columns that read the members of objects, in the order in which they are met first, and doubts.

    Args:
        standard: spelling of timestamps; that of most texts if left out.
    """
    spelled = standard or standard_of(text for tree in objects for text in texts_in(tree))
    found = []
    for name, values in _members(objects).items():
        known = type_of(values, standard=spelled)
        found.append(FoundColumn(name, known.type, known.doubt))
    return apart(found)


def type_of(values: Sequence[Tree], *, standard: str) -> Found:
    """Return the type that reads every value.

    Args:
        values: nulls are passed over.
        standard: spelling of timestamps.
    """
    some = [value for value in values if value is not None]
    if not some:
        return Found(STRING, "always null in the sample")
    kinds = Counter(_kind(value) for value in some)
    if set(kinds) <= {"whole number", "fraction"} and len(kinds) == 2:
        kinds = Counter({"fraction": len(some)})
    if len(kinds) > 1:
        return Found(STRING, f"of several kinds in the sample: {', '.join(sorted(kinds))}")
    match next(iter(kinds)):
        case "boolean":
            return Found(BOOLEAN)
        case "whole number":
            return _whole(some)
        case "fraction":
            return _fraction(some)
        case "text":
            return type_of_texts(some, standard=standard)
        case "array":
            inner = type_of([item for value in some for item in value], standard=standard)
            doubt = "always empty in the sample" if not any(some) else inner.doubt
            return Found(LogicalType(TypeName.ARRAY, element=inner.type), doubt)
    return _object(some, standard=standard)


def _kind(value: Tree) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, IntText):
        return "whole number"
    if isinstance(value, FloatText):
        return "fraction"
    if isinstance(value, str):
        return "text"
    return "array" if isinstance(value, list) else "object"


def _members(objects: Sequence[Tree]) -> dict[str, list[Tree]]:
    found: dict[str, list[Tree]] = {}
    for tree in objects:
        for name, value in tree:
            found.setdefault(name, []).append(value)
    return found


def _whole(values: Sequence[str]) -> Found:
    found = integer_of(values)
    if found.type.name is TypeName.BIGINT and all(int(value) in _MILLISECONDS for value in values):
        return Found(found.type, "milliseconds since 1970? TO_TIMESTAMP_LTZ(..., 3) makes them a timestamp")
    return found


def _fraction(values: Sequence[str]) -> Found:
    """Numbers with fractions: a DOUBLE holds what most producers mean; more digits than it has need a DECIMAL."""
    exact = all(Decimal(repr(float(value))) == Decimal(value) for value in values)
    if exact or any(char in "eE" for value in values for char in value):
        return Found(DOUBLE, "fractions; declare DECIMAL(p, s) where they are amounts of money")
    found = decimal_of(values)
    return found if found.type.name is TypeName.DECIMAL else Found(DOUBLE, found.doubt)


def _object(values: Sequence[Tree], *, standard: str) -> Found:
    members = _members(values)
    if not members:
        return Found(LogicalType(TypeName.MAP, key=STRING, element=STRING), "always empty in the sample")
    shown = sum(len(found) for found in members.values())
    sparse = len(members) > _MANY_NAMES and shown < len(members) * len(values) / 2
    if sparse or all(name.isdigit() for name in members):
        inner = type_of([value for found in members.values() for value in found], standard=standard)
        doubt = inner.doubt or f"{len(members)} names in the sample: a map, if they are no fixed fields"
        return Found(LogicalType(TypeName.MAP, key=STRING, element=inner.type), doubt)
    columns, doubts = apart(
        [
            FoundColumn(name, known.type, known.doubt)
            for name, found in members.items()
            for known in [type_of(found, standard=standard)]
        ]
    )
    if not columns:
        return Found(LogicalType(TypeName.MAP, key=STRING, element=STRING), "; ".join(doubts))
    told = [*doubts, *(f"{column.name}: {column.doubt}" for column in columns if column.doubt)]
    fields = tuple(RowField(column.name, column.type) for column in columns)
    return Found(LogicalType(TypeName.ROW, fields=fields), "; ".join(told))
