"""Numbers that Arrow computes as Spark does: literals, casts, whole numbers that wrap around, sums and products of
decimals that have room, and doubles.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Native
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.native_types import Cast, Form, Reading
from upsert_platform.sql.numbers import MOST_DIGITS, as_decimal, is_exact, whole_digits_of_product
from upsert_platform.sql.rendered import BIGINT, INT, INTEGERS, NUMBERS, STRINGS

_ARITHMETIC: Final[Mapping[type[exp.Expr], str]] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Mod: "%", exp.IntDiv: "div",
}  # fmt: skip
_BITS: Final = {TypeName.TINYINT: 7, TypeName.SMALLINT: 15, TypeName.INT: 31, TypeName.BIGINT: 63}
_DECIMAL: Final = re.compile(r"[0-9]+\.[0-9]+")
_EXACT: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_DOUBLE: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_DOUBLES: Final = (TypeName.FLOAT, TypeName.DOUBLE)
_MOST_OF_SIGN: Final = 34
_MOST_OF_LONG: Final = 18
"""Digits of which every number is a BIGINT."""


def literal(node: exp.Expr, _reading: Reading) -> Native | None:
    """A literal of a number, of the type that Spark gives it; not one that is longer than a BIGINT."""
    if _DECIMAL.fullmatch(node.name):
        number = Decimal(node.name)
        scale = -int(number.as_tuple().exponent)
        digits = max(len(number.as_tuple().digits), scale)
        kind = LogicalType(TypeName.DECIMAL, precision=digits, scale=scale)
        return ("literal", number, kind) if digits <= MOST_DIGITS else None
    if not (node.name.isdigit() and node.name.isascii()) or int(node.name) >= 1 << _BITS[TypeName.BIGINT]:
        return None
    value = int(node.name)
    return ("literal", value, INT if value < 1 << _BITS[TypeName.INT] else BIGINT)


def _negative(node: exp.Expr, reading: Reading) -> Native | None:
    """A number with a sign before it: a literal of a whole number is read with it."""
    found = reading.typed(node.this)
    if found is None or found[1].name not in NUMBERS:
        return None
    inner, kind = found
    if inner[0] != "literal" or kind.name in _DOUBLES or inner[1] is None:
        return ("negative", inner) if _has_sign(kind) else None
    if kind.name is TypeName.DECIMAL:
        return ("literal", inner[1].copy_negate() if inner[1] else inner[1], kind)
    least_int = isinstance(node.this, exp.Literal) and inner[1] == 1 << _BITS[TypeName.INT]
    # Spark reads the least INT as one, and without the sign its digits are a BIGINT.
    return None if least_int else ("literal", -inner[1], kind)


def _size(node: exp.Expr, reading: Reading) -> Native | None:
    """ABS, whose result wraps around where there is no such number."""
    found = reading.typed(node.this)
    if found is None or found[1].name not in NUMBERS:
        return None
    return ("size", found[0]) if _has_sign(found[1]) else None


def _has_sign(kind: LogicalType) -> bool:
    """Return whether Spark gives numbers of a type another sign, and does not round them to 34 digits beside."""
    return kind.name is not TypeName.DECIMAL or (kind.precision or 0) <= _MOST_OF_SIGN


def _arithmetic(node: exp.Expr, reading: Reading) -> Native | None:
    """Whole numbers, of which the narrower is widened; decimals and doubles, of one kind each."""
    found = [reading.typed(side) for side in (node.this, node.expression)]
    if found[0] is None or found[1] is None:
        return None
    (one, left), (other, right) = (side for side in found if side is not None)
    operator = _ARITHMETIC[type(node)]
    names = {left.name, right.name}
    if all(name in INTEGERS for name in names):
        return (operator, one, other)
    if operator in ("%", "div"):
        return None
    if names == {TypeName.DECIMAL}:
        return (operator, one, other) if _has_room(operator, left, right) else None
    return (operator, one, other) if len(names) == 1 and left.name in _DOUBLES else None


def _has_room(operator: str, left: LogicalType, right: LogicalType) -> bool:
    """Return whether a DECIMAL has room for every digit of a result."""
    digits, scales = ((left.precision or 0, right.precision or 0), (left.scale or 0, right.scale or 0))
    if operator == "*":
        return sum(digits) < MOST_DIGITS
    whole = max(precision - scale for precision, scale in zip(digits, scales, strict=True))
    return whole + max(scales) < MOST_DIGITS


def _positive_rest(node: exp.Expr, reading: Reading) -> Native | None:
    """PMOD of whole numbers."""
    sides = [reading.of(side, *INTEGERS) for side in node.expressions]
    if len(sides) != 2 or any(side is None for side in sides):
        return None
    return ("pmod", *sides) if sides[1] is not None and _is_positive(sides[1]) else None


def _is_positive(native: Native) -> bool:
    return native[0] == "literal" and native[1] is not None and native[1] > 0


def _to_whole(node: exp.Expr, to: LogicalType, reading: Reading) -> Native | None:
    """CAST to a type of whole numbers, which cuts off the upper bits, and a fraction."""
    found = reading.typed(node)
    if found is None:
        return None
    inner, kind = found
    if kind.name in INTEGERS:
        value = inner[1] if inner[0] == "literal" else None
        if value is not None and -(1 << _BITS[to.name]) <= value < 1 << _BITS[to.name]:
            return ("literal", value, to)
        return ("whole", inner, to)
    if kind.name is TypeName.BOOLEAN:
        return ("whole", inner, to)
    if kind.name is TypeName.DECIMAL and whole_digits(inner, reading) <= _MOST_OF_LONG:
        return ("whole", ("whole part", inner), to)
    return ("text to whole", inner, to) if kind.name in STRINGS else None


def _to_decimal(node: exp.Expr, to: LogicalType, reading: Reading) -> Native | None:
    """CAST of an exact number to a DECIMAL: "decimal" where that has room for all digits, otherwise "fit"."""
    if isinstance(node, exp.Literal) and not node.is_string and _EXACT.fullmatch(node.name):
        known = _fitting(Decimal(node.name), to)
        if known is not None:
            return ("literal", known, to)
    found = reading.typed(node)
    if found is None or not (is_exact(found[1]) or found[1].name in STRINGS):
        return None
    inner, kind = found
    if kind.name in STRINGS:
        return ("text to decimal", inner, to)
    if inner[0] == "literal" and inner[1] is not None and (known := _fitting(Decimal(inner[1]), to)) is not None:
        return ("literal", known, to)
    room = (to.precision or 0) - (to.scale or 0)
    fits = (as_decimal(kind).scale or 0) <= (to.scale or 0) and whole_digits(inner, reading) <= room
    return ("decimal" if fits else "fit", inner, to)


def _fitting(value: Decimal, to: LogicalType) -> Decimal | None:
    """A number that has at most the digits of a type."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    whole = "".join(map(str, digits))[: len(digits) + exponent].lstrip("0")
    fits = len(whole) <= (to.precision or 0) - (to.scale or 0) and -exponent <= (to.scale or 0)
    return value if fits else None


def whole_digits(native: Native, reading: Reading) -> int:
    """The digits before the point that an exact number has at most."""
    if native[0] == "decimal":
        return whole_digits(native[1], reading)
    kind = reading.type_of(native)
    assert kind is not None
    if native[0] == "*" and kind.name is TypeName.DECIMAL:
        left, right = (reading.type_of(side) for side in native[1:])
        assert left is not None and right is not None
        whole = [whole_digits(side, reading) for side in native[1:]]
        most = whole_digits_of_product(left, right, whole=whole)
        if most is not None:
            return most
    given = as_decimal(kind)
    return (given.precision or 0) - (given.scale or 0)


def _to_real(node: exp.Expr, to: LogicalType, reading: Reading) -> Native | None:
    """CAST of a number to DOUBLE or FLOAT."""
    if isinstance(node, exp.Literal) and not node.is_string and _DOUBLE.fullmatch(node.name):
        value = _real(node.name, to)
        if value is not None:
            return ("literal", value, to)
    found = reading.typed(node)
    if found is None or found[1].name not in (*NUMBERS, *STRINGS):
        return None
    inner, kind = found
    if kind.name in STRINGS:
        return ("text to real", inner, to)
    return inner if kind.name is to.name else ("real", inner, to)


def _real(text: str, to: LogicalType) -> float | None:
    """The DOUBLE or FLOAT of a literal, None where it is rounded twice on the way."""
    value = float(text)
    if to.name is TypeName.DOUBLE:
        return value if abs(value) != float("inf") else None
    if Decimal(value) != Decimal(text):
        return None
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return None


CASTS: Final[Mapping[TypeName, Cast]] = {
    **dict.fromkeys(INTEGERS, _to_whole),
    TypeName.DECIMAL: _to_decimal,
    TypeName.DOUBLE: _to_real,
    TypeName.FLOAT: _to_real,
}
FORMS: Final[Mapping[type[exp.Expr], Form]] = {
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    exp.Neg: _negative,
    exp.Abs: _size,
}
FUNCTIONS: Final[Mapping[str, Form]] = {"PMOD": _positive_rest}
