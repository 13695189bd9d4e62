"""Comparisons that Arrow computes as Spark does: of exact numbers, doubles, texts, moments, days and truth values."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Native
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.native_types import Form, Reading, has_only
from upsert_platform.sql.numbers import MOST_DIGITS
from upsert_platform.sql.rendered import INTEGERS, STRINGS, TIMESTAMPS

_OPERATORS: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_DIGITS: Final = {TypeName.TINYINT: 3, TypeName.SMALLINT: 5, TypeName.INT: 10, TypeName.BIGINT: 20}
"""Of the decimals that Spark makes of whole numbers."""
_DOUBLES: Final = (TypeName.FLOAT, TypeName.DOUBLE)
_ALIKE: Final = (STRINGS, (TypeName.BOOLEAN,), (TypeName.DATE,), (TypeName.TIME,))
_MOMENT: Final = LogicalType(TypeName.TIMESTAMP, precision=6)


def _comparison(node: exp.Expr, reading: Reading) -> Native | None:
    return compared(_OPERATORS[type(node)], node.this, node.expression, reading)


def compared(operator: str, left: exp.Expr, right: exp.Expr, reading: Reading) -> Native | None:
    """The form of a comparison."""
    found = [reading.typed(side) for side in (left, right)]
    if found[0] is None or found[1] is None:
        return None
    (one, its), (other, mine) = (side for side in found if side is not None)
    names = {its.name, mine.name}
    if names <= {*INTEGERS}:
        return (operator, _widened(one, its, mine), _widened(other, mine, its))
    if names <= {*INTEGERS, TypeName.DECIMAL}:
        if any(kind.name in INTEGERS and _is_literal(node) for kind, node in ((its, right), (mine, left))):
            return None  # Spark takes one that no whole number reaches for true, or false, of a null as well
        both = _common(its, mine)
        return (operator, _as_decimal(one, its, both), _as_decimal(other, mine, both)) if both is not None else None
    if names <= {*_DOUBLES} and len(names) == 1:
        return ("of doubles", one, other, operator)
    if names <= {*TIMESTAMPS}:
        if len(names) > 1:
            one, other = (side if kind.name is TypeName.TIMESTAMP else ("zone", side, _MOMENT) for side, kind in
                          ((one, its), (other, mine)))  # fmt: skip
        return (operator, one, other)
    return (operator, one, other) if any(names <= {*family} for family in _ALIKE) else None


def _is_literal(node: exp.Expr) -> bool:
    """Return whether a number is a literal with a fraction, which may have a sign."""
    if isinstance(node, (exp.Paren, exp.Neg)):
        return _is_literal(node.this)
    return isinstance(node, exp.Literal) and not node.name.isdigit()


def _widened(value: Native, kind: LogicalType, other: LogicalType) -> Native:
    """A whole number; a literal in the type of what it is compared with, where that is wider."""
    if value[0] != "literal" or INTEGERS.index(kind.name) >= INTEGERS.index(other.name):
        return value
    return ("literal", value[1], LogicalType(other.name))


def _common(left: LogicalType, right: LogicalType) -> LogicalType | None:
    """The DECIMAL that holds every value of both; None where none does, and Spark rounds one of them."""
    parts = [
        (kind.precision or 0, kind.scale or 0) if kind.name is TypeName.DECIMAL else (_DIGITS[kind.name], 0)
        for kind in (left, right)
    ]
    scale = max(scale for _, scale in parts)
    digits = max(precision - scale for precision, scale in parts) + scale
    return LogicalType(TypeName.DECIMAL, precision=digits, scale=scale) if digits <= MOST_DIGITS else None


def _as_decimal(value: Native, kind: LogicalType, both: LogicalType) -> Native:
    if (kind.name, kind.precision, kind.scale) == (both.name, both.precision, both.scale):
        return value
    if value[0] == "literal" and value[1] is not None:
        return ("literal", Decimal(value[1]), both)
    return ("decimal", value, both)


def _same(node: exp.Expr, reading: Reading) -> Native | None:
    """Equal, or both null."""
    equal = compared("=", node.this, node.expression, reading)
    sides = [reading.form(side) for side in (node.this, node.expression)]
    if equal is None or any(side is None for side in sides):
        return None
    return ("or", ("is true", equal), ("and", *(("is null", side) for side in sides)))


def _between(node: exp.Expr, reading: Reading) -> Native | None:
    if not has_only(node, "this", "low", "high"):
        return None
    least = compared(">=", node.this, node.args["low"], reading)
    most = compared("<=", node.this, node.args["high"], reading)
    return ("and", least, most) if least is not None and most is not None else None


FORMS: Final[Mapping[type[exp.Expr], Form]] = {
    **dict.fromkeys(_OPERATORS, _comparison),
    exp.NullSafeEQ: _same,
    exp.Between: _between,
}
