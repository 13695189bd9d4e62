"""Numbers in Arrow, as Spark computes them: whole numbers wrap around, NaN is the greatest double and equals itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import arrow_type


def _divided(left: Any, right: Any) -> Any:
    """DIV: a BIGINT, cut towards zero; null where the divisor is zero."""
    left, right = left.cast(pa.int64()), right.cast(pa.int64())
    if _is_usual(right):
        return pc.divide(left, right)
    found = pc.divide(left, _other_than(right, 0, -1))
    found = pc.if_else(pc.equal(right, -1), pc.negate(left), found)  # the least BIGINT wraps around
    return pc.if_else(pc.equal(right, 0), pa.scalar(None, found.type), found)


def _rest(left: Any, right: Any) -> Any:
    """A remainder with the sign of the dividend, of the wider type; null where the divisor is zero."""
    divisor = right if _is_usual(right) else _other_than(right, 0, -1)
    found = pc.subtract(left, pc.multiply(pc.divide(left, divisor), divisor))
    if divisor is right:
        return found
    found = pc.if_else(pc.equal(right, -1), pa.scalar(0, found.type), found)
    valid = pc.and_(pc.is_valid(left), pc.not_equal(right, 0))
    return pc.if_else(valid, found, pa.scalar(None, found.type))


def _is_usual(divisor: Any) -> bool:
    """Return whether a divisor is a literal by which Arrow divides as Spark does."""
    return isinstance(divisor, pa.Scalar) and divisor.as_py() not in (None, 0, -1)


def _other_than(divisors: Any, *numbers: int) -> Any:
    """Divisors, with 1 in the place of some."""
    for number in numbers:
        divisors = pc.if_else(pc.equal(divisors, number), pa.scalar(1, divisors.type), divisors)
    return divisors


def _positive_rest(left: Any, right: Any) -> Any:
    """PMOD, by a positive number."""
    found = _rest(left, right)
    return pc.if_else(pc.less(found, 0), pc.add(found, right), found)


def _doubles(left: Any, right: Any, operator: str) -> Any:
    """A comparison of two doubles: no number is greater than NaN."""
    if operator in (">", ">="):
        return _doubles(right, left, "<" if operator == ">" else "<=")
    if operator == "<>":
        return pc.invert(_doubles(left, right, "="))
    one, other = pc.is_nan(left), pc.is_nan(right)
    match operator:
        case "=":
            return pc.or_(pc.equal(left, right), pc.and_(one, other))
        case "<":
            return pc.or_(pc.less(left, right), pc.and_(pc.invert(one), other))
    return pc.or_(pc.less_equal(left, right), other)


def _one_of(values: Any, *literals: Any) -> Any:
    """IN, null where the value is null."""
    found = pc.is_in(values, value_set=pa.array([literal.as_py() for literal in literals], values.type))
    return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_())) if values.null_count else found


def _first_of(values: tuple[Any, ...], operator: str) -> Any:
    """The first value that no other one exceeds, as an operator compares them; nulls do not count."""
    found = values[0]
    for value in values[1:]:
        beyond = pc.fill_null(_compared(value, found, operator), False)
        found = pc.if_else(pc.or_(beyond, pc.is_null(found)), value, found)
    return found


def _compared(left: Any, right: Any, operator: str) -> Any:
    if pa.types.is_floating(left.type):
        return _doubles(left, right, operator)
    return pc.greater(left, right) if operator == ">" else pc.less(left, right)


FORMS: Final[Mapping[str, Callable[..., Any]]] = {
    "div": _divided,
    "%": _rest,
    "pmod": _positive_rest,
    "negative": pc.negate,
    "size": pc.abs,
    "of doubles": _doubles,
    "whole": lambda values, kind: values.cast(arrow_type(kind), safe=False),
    "in": _one_of,
    "greatest": lambda *values: _first_of(values, ">"),
    "least": lambda *values: _first_of(values, "<"),
}
"""Operators of forms: what they take, then what else stands in the form."""
