"""ROUND, CEIL and FLOOR of exact numbers, and the last two of doubles, which Arrow rounds as Spark does.

Of doubles ROUND has no form: Spark rounds the digits that Java writes, and which those are depends on its version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Native
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.functions.numbers import whole_of_double
from upsert_platform.sql.native_quotients import FORMS as QUOTIENTS
from upsert_platform.sql.native_types import Form, Reading, has_only, parsed, whole_literal
from upsert_platform.sql.numbers import MOST_DIGITS
from upsert_platform.sql.rendered import DOUBLE, INTEGERS

_DOUBLES: Final = (TypeName.FLOAT, TypeName.DOUBLE)


def _round(node: exp.Expr, reading: Reading) -> Native | None:
    found, digits = reading.typed(node.this), whole_literal(node.args.get("decimals"))
    if found is None or digits is None or not has_only(node, "this", "decimals"):
        return None
    inner, kind = found
    if kind.name in INTEGERS:
        return inner if digits >= 0 else ("round", inner, "half up", -digits, kind)
    if kind.name is not TypeName.DECIMAL:
        return None
    precision, scale = kind.precision or 0, kind.scale or 0
    if digits >= 0:
        kept = min(scale, digits)
        return ("fit", inner, _decimal(min(precision - scale + 1 + kept, MOST_DIGITS), kept))
    whole = max(precision - scale, -digits) + 1
    return ("round", inner, "half up", -digits, _decimal(whole, 0)) if whole <= MOST_DIGITS else None


def _decimal(precision: int, scale: int) -> LogicalType:
    return LogicalType(TypeName.DECIMAL, precision=precision, scale=scale)


def _to_whole(node: exp.Expr, reading: Reading) -> Native | None:
    """CEIL and FLOOR of a DECIMAL, which has one digit more before the point then if it has a scale."""
    found = reading.typed(node.this)
    if found is None or found[1].name is not TypeName.DECIMAL or not has_only(node, "this"):
        return None
    if not found[1].scale:
        return found[0]
    whole = (found[1].precision or 0) - (found[1].scale or 0) + 1
    how = "ceil" if isinstance(node, exp.Ceil) else "floor"
    return ("round", found[0], how, 0, _decimal(whole, 0)) if whole <= MOST_DIGITS else None


def _choice(node: exp.Expr, reading: Reading) -> Native | None:
    """CASE, which may be CEIL or FLOOR of a double, as `functions.numbers` writes it."""
    other = node.args.get("default")
    whole = other.this if isinstance(other, exp.Cast) else None
    inner = reading.of(whole.this, *_DOUBLES) if isinstance(whole, (exp.Ceil, exp.Floor)) else None
    if inner is None or whole is None:
        return QUOTIENTS[exp.Case](node, reading)
    written = parsed(whole_of_double(whole.key.upper(), "_number"))
    number = whole.this
    same = written.transform(lambda item: number.copy() if isinstance(item, exp.Column) else item) == node
    # Beside the cast, values of type FLOAT are doubles in Spark.
    wide = inner if reading.type_of(inner) == DOUBLE else ("real", inner, DOUBLE)
    return (whole.key, wide) if same else None


FORMS: Final[Mapping[type[exp.Expr], Form]] = {
    exp.Round: _round,
    exp.Ceil: _to_whole,
    exp.Floor: _to_whole,
    exp.Case: _choice,
}
