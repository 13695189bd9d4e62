"""``+ - * / %`` over numbers, and the types of number literals."""

from __future__ import annotations

from dataclasses import replace

from upsert_platform.core.types import LogicalType, TypeName, spark_type
from upsert_platform.sql.casts import cast, whole_digits
from upsert_platform.sql.functions.numbers import divide, exact, remainder
from upsert_platform.sql.functions.signatures import FunctionFault
from upsert_platform.sql.numbers import arithmetic_type, as_decimal, is_exact, whole_digits_of_product
from upsert_platform.sql.rendered import DOUBLE, INTEGERS, NUMBERS, Rendered, made


def arithmetic(operator: str, left: Rendered, right: Rendered) -> Rendered:
    """An arithmetic as Flink computes it: integers wrap, decimals keep their digits, doubles are Java's.

    Raises:
        FunctionFault: a side is not a number.
    """
    for side in (left, right):
        if side.type is None or side.root not in NUMBERS:
            raise FunctionFault(f"'{operator}' takes numbers, not {side.type or 'NULL'}")
    if operator == "/":
        return divide(left, right)
    if operator == "%":
        return remainder(left, right)
    assert left.type is not None and right.type is not None
    kind = arithmetic_type(operator, left.type, right.type)
    if kind.name in INTEGERS:
        return made(f"{left.wrapped} {operator} {right.wrapped}", kind, left, right, simple=False)
    if is_exact(kind):
        one, other = (_decimal(side) for side in (left, right))
    else:
        one, other = cast(left, kind).wrapped, cast(right, kind).wrapped
    found = made(f"CAST({one} {operator} {other} AS {spark_type(kind)})", kind, left, right)
    if operator == "*" and is_exact(kind):
        whole = [whole_digits(side) for side in (left, right)]
        found = replace(found, most_whole=whole_digits_of_product(left.type, right.type, whole=whole))
    return found


def _decimal(value: Rendered) -> str:
    """An exact number as the DECIMAL that Flink makes of it beside another one."""
    assert value.type is not None
    if value.root in INTEGERS:
        return f"CAST({value.sql} AS {spark_type(as_decimal(value.type))})"
    return exact(value)


def number_type(text: str) -> LogicalType | None:
    """The type of a literal; None if no type holds it."""
    if "e" in text.lower():
        return DOUBLE if abs(float(text)) != float("inf") else None
    if "." in text:
        digits = max(len(text) - 1, 1)
        scale = len(text.partition(".")[2])
        return LogicalType(TypeName.DECIMAL, precision=digits, scale=scale) if digits <= 38 else None
    value = int(text)
    for kind, bits in ((TypeName.INT, 31), (TypeName.BIGINT, 63)):
        if value < 1 << bits:
            return LogicalType(kind)
    return LogicalType(TypeName.DECIMAL, precision=len(text), scale=0) if len(text) <= 38 else None
