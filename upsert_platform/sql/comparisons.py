"""Comparisons of Flink: what may be compared, LIKE and SIMILAR TO."""

from __future__ import annotations

from typing import Final

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.casts import cast
from upsert_platform.sql.functions.signatures import FunctionFault, argument
from upsert_platform.sql.numbers import MOST_DIGITS, as_decimal, is_exact
from upsert_platform.sql.rendered import (
    BINARIES,
    BOOLEAN,
    DOUBLE,
    INTEGERS,
    NUMBERS,
    STRINGS,
    TIMESTAMPS,
    Rendered,
    made,
    quote_text,
)

_ORDERS: Final = ("<", "<=", ">", ">=")
_TIMES: Final = (*TIMESTAMPS, TypeName.DATE, TypeName.TIME)


def compare(operator: str, left: Rendered, right: Rendered, *, exact: bool = False) -> Rendered:
    """A comparison by an operator of Spark SQL.

    Args:
        exact: decimals are equal where no digit differs, as in IN and in Flink's order of them. Flink's ``=`` brings
            both to one type of 38 digits, which may round.

    Raises:
        FunctionFault: the two are not compared in Flink.
    """
    one, other = _comparable(left, right, operator, exact=exact or operator in _ORDERS)
    return made(f"{one} {operator} {other}", BOOLEAN, left, right, simple=False)


def _comparable(left: Rendered, right: Rendered, operator: str, *, exact: bool) -> tuple[str, str]:
    if left.type is None or right.type is None:
        return left.wrapped, right.wrapped
    if left.root in NUMBERS and right.root in NUMBERS:
        if is_exact(left.type) and is_exact(right.type):
            scale = max(as_decimal(left.type).scale or 0, as_decimal(right.type).scale or 0)
            if exact and any(_whole_digits(kind) + scale > MOST_DIGITS for kind in (left.type, right.type)):
                return _in_parts(left, scale), _in_parts(right, scale)
            return _beside(left, right).wrapped, _beside(right, left).wrapped
        return cast(left, DOUBLE).wrapped, cast(right, DOUBLE).wrapped
    if left.root in STRINGS and right.root in _TIMES:
        return cast(left, right.type, safe=True).wrapped, right.wrapped
    if right.root in STRINGS and left.root in _TIMES:
        return left.wrapped, cast(right, left.type, safe=True).wrapped
    families = (STRINGS, BINARIES, TIMESTAMPS)
    alike = left.root is right.root or any(left.root in names and right.root in names for names in families)
    if not alike:
        raise FunctionFault(f"{left.type} and {right.type} are not compared: write a CAST")
    if operator not in ("=", "<>", "<=>") and left.root in (TypeName.ARRAY, TypeName.MAP, TypeName.ROW):
        raise FunctionFault(f"{left.type} has no order: '=' and '<>' compare it")
    if TypeName.MAP in (left.root, right.root):
        raise FunctionFault("maps are not compared: compare MAP_KEYS and MAP_VALUES")
    return left.wrapped, right.wrapped


def _whole_digits(kind: LogicalType) -> int:
    kind = as_decimal(kind)
    return (kind.precision or 0) - (kind.scale or 0)


def _in_parts(value: Rendered, scale: int) -> str:
    """A number as what stands before and behind its point: no DECIMAL holds both sides of the comparison.

    Spark would round the side with the longer fraction, so that 1.01 equals 1.
    """
    assert value.type is not None
    number = cast(value, as_decimal(value.type)).wrapped
    whole = f"CAST(CASE WHEN {number} < 0 THEN CEIL({number}) ELSE FLOOR({number}) END AS DECIMAL({MOST_DIGITS}, 0))"
    rest = f"CAST({number} % CAST(1 AS DECIMAL(1, 0)) AS DECIMAL({MOST_DIGITS}, {scale}))"
    return f"(CASE WHEN {number} IS NOT NULL THEN NAMED_STRUCT('whole', {whole}, 'rest', {rest}) END)"


def _beside(value: Rendered, other: Rendered) -> Rendered:
    """An integer beside a DECIMAL constant as a DECIMAL.

    Spark takes a comparison with a constant that no integer reaches for true, or false, of a null as well.
    """
    if other.constant is None or other.root is not TypeName.DECIMAL or value.root not in INTEGERS:
        return value
    return cast(value, LogicalType(TypeName.DECIMAL, precision=19, scale=0))


def like(value: Rendered, pattern: Rendered, escape: str | None) -> Rendered:
    """LIKE: without ESCAPE a backslash is nothing special in Flink; in Spark it is the escape.

    Raises:
        FunctionFault: something other than texts, or an escape before a character that needs none.
    """
    value, pattern = argument("s", value, "LIKE"), argument("s", pattern, "LIKE")
    if escape is not None:
        if len(escape) != 1:
            raise FunctionFault("ESCAPE takes one character")
        if pattern.constant is None:
            raise FunctionFault("LIKE ... ESCAPE takes its pattern as a literal")
        rest = pattern.constant.replace(escape * 2, "")
        following = (rest[index + 1 : index + 2] for index, letter in enumerate(rest) if letter == escape)
        if any(letter not in ("%", "_") for letter in following):
            raise FunctionFault(f"in LIKE, the escape {escape!r} stands before '%', '_' or itself")
        return made(f"{value.wrapped} LIKE {pattern.wrapped} ESCAPE {quote_text(escape)}", BOOLEAN, value, simple=False)
    sql = pattern.wrapped
    if pattern.constant is None or "\\" in pattern.constant:
        sql = f"REPLACE({pattern.sql}, '\\\\', '\\\\\\\\')"
    return made(f"{value.wrapped} LIKE {sql}", BOOLEAN, value, pattern, simple=False)


def similar(value: Rendered, pattern: Rendered, escape: str | None) -> Rendered:
    """SIMILAR TO: a regular expression with ``%`` and ``_``, for the whole text; a point is any character, as in Flink.

    Raises:
        FunctionFault: the pattern is not a literal, or has a class by name.
    """
    value, pattern = argument("s", value, "SIMILAR TO"), argument("s", pattern, "SIMILAR TO")
    if pattern.constant is None or (escape is not None and len(escape) != 1):
        raise FunctionFault("SIMILAR TO takes its pattern as a literal, and one character after ESCAPE")
    if "[:" in pattern.constant:
        raise FunctionFault("SIMILAR TO: write a class of characters as [a-z]")
    found, position, inside = "", 0, False
    text = pattern.constant
    while position < len(text):
        letter = text[position]
        position += 1
        if letter == escape and position < len(text):
            found += "\\" + text[position]
            position += 1
        elif inside:
            inside = letter != "]"
            found += "\\\\" if letter == "\\" else letter
        elif letter in "%_":
            found += ".*" if letter == "%" else "."
        elif letter in "\\^$":
            found += "\\" + letter
        else:
            inside = letter == "["
            found += letter
    anchored = quote_text(f"\\A(?:{found})\\z")
    return made(f"{value.wrapped} RLIKE {anchored}", BOOLEAN, value, simple=False)
