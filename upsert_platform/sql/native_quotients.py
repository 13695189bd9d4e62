"""Quotients and remainders that Arrow computes as Spark does: of decimals, and of doubles as `functions.numbers` writes
them; roots and signs of doubles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Native
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql import native_numbers
from upsert_platform.sql.functions.numbers import quotient_of_doubles
from upsert_platform.sql.native_choices import FORMS as CHOICES
from upsert_platform.sql.native_types import Form, Reading, parsed, whole_literal
from upsert_platform.sql.numbers import MOST_DIGITS, decimal
from upsert_platform.sql.rendered import INTEGERS

_DIGITS: Final = {TypeName.TINYINT: 3, TypeName.SMALLINT: 5, TypeName.INT: 10, TypeName.BIGINT: 20}
"""Of the decimals that Spark makes of whole numbers."""
_LEAST_SCALE: Final = 6
_UNIT: Final = re.compile(r"1(0*)|0\.0*1")
_Side = tuple[Native, int, int]
"""A form with its digits and its scale."""


def _divided(node: exp.Expr, reading: Reading) -> Native | None:
    """A quotient of decimals, or of one and a whole number."""
    sides = _sides(node, reading)
    if sides is None:
        return None
    (left, p1, s1), (right, p2, s2) = sides
    scale = max(_LEAST_SCALE, s1 + p2 + 1)
    kind = decimal(p1 - s1 + s2 + scale, scale)
    return ("quotient", left, right, kind)


def _rest(node: exp.Expr, reading: Reading) -> Native | None:
    """A remainder: of whole numbers, or as of decimals."""
    sides = _sides(node, reading)
    if sides is None:
        return native_numbers.FORMS[exp.Mod](node, reading)
    (left, p1, s1), (right, p2, s2) = sides
    scale = max(s1, s2)
    digits = min(p1 - s1, p2 - s2) + scale
    # Java stops where the whole part of the quotient has more digits than Spark's decimals.
    if digits > MOST_DIGITS or p1 - s1 + s2 > MOST_DIGITS:
        return None
    return ("rest of decimals", left, right, LogicalType(TypeName.DECIMAL, precision=digits, scale=scale))


def _sides(node: exp.Expr, reading: Reading) -> tuple[_Side, _Side] | None:
    """Both sides where one is a DECIMAL and the other one, or a whole number; not a literal of such.

    Spark takes that for a decimal of as many digits as it has.
    """
    left, right = _side(node.this, reading), _side(node.expression, reading)
    if (
        left is None
        or right is None
        or whole_literal(node.this) is not None
        or whole_literal(node.expression) is not None
    ):
        return None
    kinds = {left[1].name, right[1].name}
    if TypeName.DECIMAL not in kinds or not kinds <= {TypeName.DECIMAL, *INTEGERS}:
        return None
    (one, its), (other, mine) = (
        (form, (kind.precision or 0, kind.scale or 0) if kind.name is TypeName.DECIMAL else (_DIGITS[kind.name], 0))
        for form, kind in (left, right)
    )
    return (one, *its), (other, *mine)


def _side(node: exp.Expr, reading: Reading) -> tuple[Native, LogicalType] | None:
    """A side; one that is the unit of TRUNCATE is a text."""
    inner = node.this if isinstance(node, exp.Cast) else None
    if not (isinstance(inner, exp.Literal) and inner.is_string and _UNIT.fullmatch(inner.name)):
        return reading.typed(node)
    number = node.copy()
    number.set("this", exp.Literal.number(inner.name))
    found = reading.typed(number)
    known = found is not None and found[0][0] == "literal" and Decimal(found[0][1]) == Decimal(inner.name)
    return found if known else None


def _rest_of_any(node: exp.Expr, reading: Reading) -> Native | None:
    """A remainder; the unit of TRUNCATE of a whole number is a text, too."""
    if isinstance(node.expression, exp.Cast):
        found = [_side(side, reading) for side in (node.this, node.expression)]
        if all(side is not None and side[1].name in INTEGERS for side in found):
            return ("%", *(side[0] for side in found if side is not None))
    return _rest(node, reading)


def _choice(node: exp.Expr, reading: Reading) -> Native | None:
    """CASE, which may be a quotient of doubles: that by zero is infinite or NaN, as everywhere but in Spark."""
    quotient = node.args.get("default")
    if isinstance(quotient, exp.Div) and len(node.args["ifs"]) == 1:
        one, other = reading.of(quotient.this, TypeName.DOUBLE), reading.of(quotient.expression, TypeName.DOUBLE)
        if one is not None and other is not None and node == _written(quotient):
            return ("quotient of doubles", one, other)
    return CHOICES[exp.Case](node, reading)


def _written(quotient: exp.Div) -> exp.Expr:
    """Return what `functions.numbers` makes of a quotient."""
    sides = {"_one": quotient.this, "_other": quotient.expression}
    return parsed(quotient_of_doubles(*sides)).transform(
        lambda item: sides[item.name].copy() if isinstance(item, exp.Column) else item
    )


def _root(node: exp.Expr, reading: Reading) -> Native | None:
    """SQRT, which every machine rounds alike."""
    inner = reading.of(node.this, TypeName.DOUBLE)
    return ("root", inner) if inner is not None else None


def _sign(node: exp.Expr, reading: Reading) -> Native | None:
    inner = reading.of(node.this, TypeName.DOUBLE)
    return ("sign", inner) if inner is not None else None


FORMS: Final[Mapping[type[exp.Expr], Form]] = {
    exp.Div: _divided,
    exp.Mod: _rest_of_any,
    exp.Case: _choice,
    exp.Sqrt: _root,
    exp.Sign: _sign,
}
