"""Types of numbers in Flink: what arithmetic, rounding and mixing of types give.

Decimals follow `LogicalTypeMerging` of Flink: sums keep every digit, quotients have at least six, and what exceeds 38
digits loses fraction digits, though not below six.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from upsert_platform.core.types import LogicalType, RowField, TypeName
from upsert_platform.sql.rendered import BINARIES, DOUBLE, FLOAT, INTEGERS, NUMBERS, STRING, STRINGS, TIMESTAMPS

_DIGITS: Final = {TypeName.TINYINT: 3, TypeName.SMALLINT: 5, TypeName.INT: 10, TypeName.BIGINT: 19}
MOST_DIGITS: Final = 38
_LEAST_SCALE: Final = 6


def decimal(precision: int, scale: int) -> LogicalType:
    """A DECIMAL, brought within 38 digits."""
    if precision > MOST_DIGITS:
        whole = precision - scale
        precision, scale = MOST_DIGITS, max(MOST_DIGITS - whole, min(scale, _LEAST_SCALE))
    return LogicalType(TypeName.DECIMAL, precision=precision, scale=scale)


def as_decimal(kind: LogicalType) -> LogicalType:
    """The DECIMAL that holds every value of an exact number type."""
    if kind.name is TypeName.DECIMAL:
        return replace(kind, nullable=True)
    return LogicalType(TypeName.DECIMAL, precision=_DIGITS[kind.name], scale=0)


def is_exact(kind: LogicalType) -> bool:
    """Return whether a number type is an integer or a DECIMAL."""
    return kind.name in INTEGERS or kind.name is TypeName.DECIMAL


def arithmetic_type(operator: str, left: LogicalType, right: LogicalType) -> LogicalType:
    """The type of an arithmetic over two numbers.

    Args:
        operator: one of ``+ - * / %``.
    """
    if not (is_exact(left) and is_exact(right)):
        return common_number(left, right)
    if left.name in INTEGERS and right.name in INTEGERS:
        return LogicalType(right.name) if operator == "%" else common_number(left, right)
    one, other = as_decimal(left), as_decimal(right)
    p1, s1, p2, s2 = one.precision or 0, one.scale or 0, other.precision or 0, other.scale or 0
    match operator:
        case "*":
            return decimal(p1 + p2 + 1, s1 + s2)
        case "/":
            scale = max(_LEAST_SCALE, s1 + p2 + 1)
            return decimal(p1 - s1 + s2 + scale, scale)
        case "%":
            scale = max(s1, s2)
            return decimal(min(p1 - s1, p2 - s2) + scale, scale)
    scale = max(s1, s2)
    return decimal(max(p1 - s1, p2 - s2) + scale + 1, scale)


def whole_digits_of_product(left: LogicalType, right: LogicalType, *, whole: Sequence[int]) -> int | None:
    """The digits before the point that a product of exact numbers has at most.

    Its type has room for a digit more than the factors have together.

    Args:
        whole: the digits before the point that each factor has at most.

    Returns:
        None where the type says it: fraction digits that are rounded away may carry one over.
    """
    scales = [as_decimal(side).scale or 0 for side in (left, right)]
    return sum(whole) if arithmetic_type("*", left, right).scale == sum(scales) else None


def rounded_type(kind: LogicalType, digits: int) -> LogicalType:
    """The type of a number rounded to fraction digits (before the point if negative)."""
    if kind.name is not TypeName.DECIMAL:
        return replace(kind, nullable=True)
    precision, scale = kind.precision or 0, kind.scale or 0
    if digits >= scale:
        return replace(kind, nullable=True)
    if digits < 0:
        return decimal(min(MOST_DIGITS, 1 + precision - scale), 0)
    return decimal(1 + precision - scale + digits, digits)


def common_decimal(left: LogicalType, right: LogicalType) -> LogicalType:
    """The DECIMAL that both exact numbers are brought to: of more than 38 digits, those of the fraction give way.

    That differs from arithmetic, which keeps six of them.
    """
    one, other = as_decimal(left), as_decimal(right)
    whole = max((one.precision or 0) - (one.scale or 0), (other.precision or 0) - (other.scale or 0))
    scale = min(max(one.scale or 0, other.scale or 0), MOST_DIGITS - whole)
    return LogicalType(TypeName.DECIMAL, precision=whole + scale, scale=scale)


def common_number(left: LogicalType, right: LogicalType) -> LogicalType:
    """The number type that both are brought to."""
    names = {left.name, right.name}
    if TypeName.DOUBLE in names or names == {TypeName.FLOAT, TypeName.DECIMAL}:
        return DOUBLE
    if TypeName.FLOAT in names:
        return FLOAT
    if TypeName.DECIMAL in names:
        return common_decimal(left, right)
    return LogicalType(max(left.name, right.name, key=INTEGERS.index))


def common_type(kinds: Sequence[LogicalType]) -> LogicalType | None:
    """The type that values of several types are brought to, as in CASE; None if there is none."""
    found: LogicalType | None = replace(kinds[0], nullable=True)
    for kind in kinds[1:]:
        found = _common(found, replace(kind, nullable=True)) if found is not None else None
    return found


def _common(left: LogicalType, right: LogicalType) -> LogicalType | None:
    if left == right:
        return left
    if left.name in NUMBERS and right.name in NUMBERS:
        return common_number(left, right)
    if left.name in STRINGS and right.name in STRINGS:
        if TypeName.STRING in (left.name, right.name):
            return STRING
        return LogicalType(TypeName.VARCHAR, length=max(left.length or 1, right.length or 1))
    if left.name in BINARIES and right.name in BINARIES:
        return LogicalType(TypeName.BYTES)
    if left.name in (*TIMESTAMPS, TypeName.DATE) and right.name in (*TIMESTAMPS, TypeName.DATE):
        name = TypeName.TIMESTAMP_LTZ if TypeName.TIMESTAMP_LTZ in (left.name, right.name) else TypeName.TIMESTAMP
        return LogicalType(name, precision=max(left.precision or 0, right.precision or 0))
    if left.name is not right.name:
        return None
    if left.name is TypeName.TIME:
        return LogicalType(TypeName.TIME, precision=max(left.precision or 0, right.precision or 0))
    if left.name is TypeName.ROW and len(left.fields) == len(right.fields):
        pairs = [(one, _common(one.type, other.type)) for one, other in zip(left.fields, right.fields, strict=True)]
        fields = tuple(RowField(one.name, kind) for one, kind in pairs if kind is not None)
        return LogicalType(TypeName.ROW, fields=fields) if len(fields) == len(pairs) else None
    element = _common(left.element, right.element) if left.element and right.element else None
    key = _common(left.key, right.key) if left.key and right.key else None
    if element is None or (left.key is not None and key is None):
        return None
    return LogicalType(left.name, element=element, key=key)
