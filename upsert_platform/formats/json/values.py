"""JSON trees to column values, as Flink's two JSON readers convert them.

The streaming reader is the default of format ``json``; the tree reader serves ``json.decode.json-parser.enabled`` =
``false`` and the change data formats. Where the streaming reader would lose its place in the message (an object or
array where a BOOLEAN is declared, or any wrong container while errors are ignored), the field alone is treated as
unreadable here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from upsert_platform.core.types import NESTED, LogicalType, TypeName
from upsert_platform.formats.java.base64 import decode_base64
from upsert_platform.formats.java.double import format_double
from upsert_platform.formats.java.text import (
    BLANKS,
    fit_decimal,
    format_decimal,
    narrow,
    parse_decimal,
    parse_double,
    parse_float,
    parse_integer,
    repair_surrogates,
)
from upsert_platform.formats.java.time import parse_date, parse_time, parse_timestamp
from upsert_platform.formats.json.text import quote
from upsert_platform.formats.json.tree import FloatText, IntText, Tree

Convert = Callable[[Tree], Any]
_BITS: Final = {TypeName.TINYINT: 8, TypeName.SMALLINT: 16, TypeName.INT: 32, TypeName.BIGINT: 64}
_INT64: Final = 1 << 63


class FieldError(ValueError):
    """A value does not fit the declared type; the text begins with the path of the field."""


@dataclass(frozen=True, slots=True)
class JsonManner:
    """The rules by which JSON trees are converted.

    Attributes:
        streaming: as the streaming reader does, else as the tree reader.
        big_decimals: the declared row holds a DECIMAL somewhere, which changes how Flink keeps other numbers.
        exact: keep what Arrow cannot: timestamps in nanoseconds, TIME in milliseconds, rows as lists.
    """

    streaming: bool = True
    ignore_errors: bool = False
    fail_on_missing: bool = False
    standard: str = "SQL"
    big_decimals: bool = False
    exact: bool = False


def has_decimal(logical: LogicalType) -> bool:
    """Return whether a type is or holds a DECIMAL."""
    inner = [part for part in (logical.element, logical.key) if part is not None]
    inner += [item.type for item in logical.fields]
    return logical.name is TypeName.DECIMAL or any(map(has_decimal, inner))


def convert_row(names: Sequence[str], types: Sequence[LogicalType], manner: JsonManner) -> Convert:
    """A function from an object's tree to the list of its declared fields' values."""
    places = {name: place for place, name in enumerate(names)}
    converts = [convert_field(logical, manner) for logical in types]
    arity = len(places)

    def check_object(tree: Tree) -> None:
        if type(tree) is not tuple:
            raise FieldError(f"an object expected, not {describe(tree)}")

    def stream(tree: Tree) -> list[Any]:
        check_object(tree)
        row: list[Any] = [None] * arity
        matched = 0
        for name, value in tree:
            place = places.get(name)
            if place is not None:
                if value is not None:
                    row[place] = _named(converts[place], name, value)
                else:
                    row[place] = None
                matched += 1
                if matched == arity:  # Flink looks no further, so a repeated name hides a later one
                    break
        if matched < arity and manner.fail_on_missing:
            missing = set(names) - {name for name, _ in tree}
            raise FieldError(f"missing field {', '.join(sorted(missing)) or '(a repeated one took its place)'}")
        return row

    def whole(tree: Tree) -> list[Any]:
        check_object(tree)
        members = dict(tree)
        row: list[Any] = []
        for name, convert in zip(names, converts, strict=True):
            value = members.get(name)
            if value is None and manner.fail_on_missing and name not in members:
                raise FieldError(f"missing field {name}")
            row.append(None if value is None else _named(convert, name, value))
        return row

    return stream if manner.streaming else whole


def _named(convert: Convert, name: str, value: Tree) -> Any:
    try:
        return convert(value)
    except ValueError as error:
        raise FieldError(f"field {name}: {error}") from None


def convert_field(logical: LogicalType, manner: JsonManner) -> Convert:
    """A function from a tree that is not null to the value of a type; unreadable is None if errors are ignored."""
    convert = _convert(logical, manner)
    if not manner.ignore_errors:
        return _telling(convert, logical)

    def lenient(tree: Tree) -> Any:
        try:
            return convert(tree)
        except ValueError:
            return None

    return lenient


def _telling(convert: Convert, logical: LogicalType) -> Convert:
    """Names the kind of what stands in the place of a scalar, whose text Jackson takes for empty."""
    if logical.name in NESTED:
        return convert
    shown = str(replace(logical, nullable=True))

    def told(tree: Tree) -> Any:
        try:
            return convert(tree)
        except ValueError:
            if type(tree) in (list, tuple):
                raise ValueError(f"{shown} expected, not {describe(tree)}") from None
            raise

    return told


def _convert(logical: LogicalType, manner: JsonManner) -> Convert:
    match logical.name:
        case TypeName.ARRAY:
            assert logical.element is not None
            return _array(convert_field(logical.element, manner))
        case TypeName.MAP:
            assert logical.element is not None
            return _map(convert_field(logical.element, manner), manner)
        case TypeName.MULTISET:
            return _map(convert_field(LogicalType(TypeName.INT), manner), manner)
        case TypeName.ROW:
            names = [item.name for item in logical.fields]
            row = convert_row(names, [item.type for item in logical.fields], manner)
            return row if manner.exact else lambda tree: dict(zip(names, row(tree), strict=True))
    text = _text if manner.streaming else _tree_text(manner)
    match logical.name:
        case TypeName.CHAR | TypeName.VARCHAR | TypeName.STRING:
            return lambda tree: repair_surrogates(
                tree if type(tree) is str
                else serialize(tree, manner) if type(tree) in (list, tuple)
                else text(tree)
            )  # fmt: skip
        case TypeName.BOOLEAN:
            return lambda tree: tree if type(tree) is bool else text(tree).strip(BLANKS).lower() == "true"
        case TypeName.TINYINT | TypeName.SMALLINT | TypeName.INT | TypeName.BIGINT:
            return _integer(_BITS[logical.name], manner, text)
        case TypeName.FLOAT:
            return _float(manner, text)
        case TypeName.DOUBLE:
            return lambda tree: parse_double(text(tree))
        case TypeName.DECIMAL:
            return _decimal(logical, manner, text)
        case TypeName.BINARY | TypeName.VARBINARY | TypeName.BYTES:
            return _bytes(manner)
        case TypeName.DATE:
            return lambda tree: _within_32_bits(parse_date(text(tree)))
        case TypeName.TIME:
            factor = 1 if manner.exact else 1000
            return lambda tree: parse_time(text(tree)) * factor
    assert logical.name in (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ), logical
    return _timestamp(manner, text, local_zone=logical.name is TypeName.TIMESTAMP_LTZ)


def _within_32_bits(days: int) -> int:
    if not -(1 << 31) <= days < 1 << 31:
        raise ValueError("a date beyond what 32 bits of days hold")
    return days


def _timestamp(manner: JsonManner, text: Callable[[Tree], str], *, local_zone: bool) -> Convert:
    def convert(tree: Tree) -> int:
        nanos = parse_timestamp(text(tree), standard=manner.standard, local_zone=local_zone)
        return nanos if manner.exact else to_micros(nanos)

    return convert


def to_micros(nanos: int) -> int:
    """Nanoseconds since 1970 to microseconds, rounded down.

    Raises:
        ValueError: beyond 64 bits (about the years -290308 to 294247).
    """
    micros = nanos // 1000
    if not -_INT64 <= micros < _INT64:
        raise ValueError("a timestamp beyond what 64 bits of microseconds hold")
    return micros


def _integer(bits: int, manner: JsonManner, text: Callable[[Tree], str]) -> Convert:
    bound = 1 << (bits - 1)
    number: Callable[[str], Any] = float if manner.streaming or not manner.big_decimals else parse_decimal
    greatest = number(str(bound - 1))  # as a double, 2**63: taken, and cut to the range

    def convert(tree: Tree) -> int:
        kind = type(tree)
        if kind is IntText:
            value = int(tree)
        elif kind is FloatText and bits >= 32:
            wide = number(tree)
            if not -bound <= wide <= greatest:
                raise ValueError(f"{tree} is out of the range of {bits} bits")
            return min(int(wide), bound - 1)
        else:
            return parse_integer(text(tree).strip(BLANKS), bits)
        if not -bound <= value < bound:
            raise ValueError(f"{tree} is out of the range of {bits} bits")
        return value

    return convert


def _float(manner: JsonManner, text: Callable[[Tree], str]) -> Convert:
    if manner.streaming or manner.big_decimals:
        return lambda tree: parse_float(text(tree))
    return lambda tree: narrow(float(tree)) if type(tree) is FloatText else parse_float(text(tree))


def _decimal(logical: LogicalType, manner: JsonManner, text: Callable[[Tree], str]) -> Convert:
    precision, scale = logical.precision or 0, logical.scale or 0

    def convert(tree: Tree) -> Decimal | None:
        kind = type(tree)
        if kind is IntText or kind is FloatText:
            return fit_decimal(parse_decimal(tree), precision, scale)
        if manner.streaming and kind is not str:
            raise ValueError(f"a number expected, not {describe(tree)}")
        return fit_decimal(parse_decimal(text(tree).strip(BLANKS)), precision, scale)

    return convert


def _bytes(manner: JsonManner) -> Convert:
    def convert(tree: Tree) -> bytes | None:
        if type(tree) is str:
            return decode_base64(tree)
        if manner.streaming:
            raise ValueError(f"base64 text expected, not {describe(tree)}")
        return None

    return convert


def _array(element: Convert) -> Convert:
    def convert(tree: Tree) -> list[Any]:
        if type(tree) is not list:
            raise ValueError(f"an array expected, not {describe(tree)}")
        return [None if item is None else element(item) for item in tree]

    return convert


def _map(value_of: Convert, manner: JsonManner) -> Convert:
    def convert(tree: Tree) -> list[tuple[str, Any]]:
        if type(tree) is not tuple:
            if manner.streaming:
                raise ValueError(f"an object expected, not {describe(tree)}")
            return []
        entries = {repair_surrogates(name): None if item is None else value_of(item) for name, item in tree}
        return list(entries.items())

    return convert


def _text(tree: Tree) -> str:
    if isinstance(tree, str):
        return tree
    if type(tree) is bool:
        return "true" if tree else "false"
    raise ValueError(f"a scalar expected, not {describe(tree)}")


def _tree_text(manner: JsonManner) -> Callable[[Tree], str]:
    def text(tree: Tree) -> str:
        kind = type(tree)
        if kind is str:
            return str(tree)
        if kind is FloatText:
            return number_text(tree, manner)
        if kind is IntText:
            return str(int(tree))
        if kind is bool:
            return "true" if tree else "false"
        return ""

    return text


def number_text(source: str, manner: JsonManner) -> str:
    """A number with fraction or exponent as Jackson's tree writes it."""
    if manner.big_decimals:
        return format_decimal(parse_decimal(source), strip=True)
    return format_double(float(source))


def serialize(tree: Tree, manner: JsonManner) -> str:
    """A container written anew, as Jackson's tree prints itself: compact, the last of repeated names."""
    kind = type(tree)
    if kind is tuple:
        members = dict(tree)
        return "{" + ",".join(f"{quote(name)}:{serialize(item, manner)}" for name, item in members.items()) + "}"
    if kind is list:
        return "[" + ",".join(serialize(item, manner) for item in tree) + "]"
    if tree is None:
        return "null"
    if kind is str:
        return quote(tree)
    if kind is FloatText:
        written = number_text(tree, manner)
        return f'"{written}"' if written.endswith("y") else written
    return _tree_text(manner)(tree)


def describe(tree: Tree) -> str:
    """The JSON kind of a tree, for messages."""
    if tree is None:
        return "null"
    kinds = {tuple: "an object", list: "an array", bool: "a boolean", str: "text"}
    return kinds.get(type(tree), "a number")
