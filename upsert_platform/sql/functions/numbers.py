"""Functions of numbers. Flink calls Java's Math: what has no logarithm or root is NaN, not null as in Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from upsert_platform.core.types import LogicalType, TypeName, spark_type
from upsert_platform.sql.casts import cast
from upsert_platform.sql.functions.signatures import (
    FunctionFault,
    Handler,
    Overloads,
    argument,
    integer,
    overloads,
)
from upsert_platform.sql.numbers import arithmetic_type, as_decimal, is_exact, rounded_type
from upsert_platform.sql.rendered import (
    DOUBLE,
    INT,
    INTEGERS,
    STRING,
    Rendered,
    fails_when,
    made,
)

_INFINITY: Final = "DOUBLE('Infinity')"
_NO_FRACTION: Final = "4503599627370496D"
"""From 2 to the 52nd on, a double has no fraction."""


def logarithm(sql: str) -> str:
    """The natural logarithm as Java has it: NaN below zero, minus infinity at zero."""
    return f"CASE WHEN {sql} > 0 THEN LN({sql}) WHEN {sql} = 0 THEN -{_INFINITY} WHEN {sql} < 0 THEN DOUBLE('NaN') END"


def divide(left: Rendered, right: Rendered) -> Rendered:
    """Division: of integers without a remainder; by zero it fails, of doubles it is infinite or NaN."""
    assert left.type is not None and right.type is not None
    kind = arithmetic_type("/", left.type, right.type)
    one, other = _operands(left, right, kind)
    if not is_exact(kind):
        sql = quotient_of_doubles(one, other)
        return made(f"CAST({sql} AS FLOAT)" if kind.name is TypeName.FLOAT else sql, kind, left, right, simple=False)
    word = "DIV" if kind.name in INTEGERS else "/"
    return made(
        f"CAST({one} {word} {other} AS {spark_type(kind)})", kind, left, right, fails=_by_zero(one, other, right)
    )


def quotient_of_doubles(one: str, other: str) -> str:
    """Spark SQL of a quotient, which is null in Spark where the divisor is zero."""
    signed = f"CASE WHEN CAST({other} AS STRING) = '-0.0' THEN -{_INFINITY} ELSE {_INFINITY} END"
    return f"CASE WHEN {other} = 0 THEN {one} * ({signed}) ELSE {one} / {other} END"


def _by_zero(one: str, other: str, divisor: Rendered) -> str | None:
    if divisor.never_zero or (divisor.constant is not None and float(divisor.constant) != 0):
        return None
    return fails_when(f"{one} IS NOT NULL AND {other} = 0", "division by zero")


def remainder(left: Rendered, right: Rendered) -> Rendered:
    """The remainder, with the sign of the dividend; of exact numbers alone."""
    assert left.type is not None and right.type is not None
    if not (is_exact(left.type) and is_exact(right.type)):
        raise FunctionFault("MOD and % take exact numbers: CAST them AS DECIMAL or BIGINT")
    kind = arithmetic_type("%", left.type, right.type)
    one, other = _operands(left, right, kind)
    sql = f"CAST({one} % {other} AS {spark_type(kind)})"
    return made(sql, kind, left, right, fails=_by_zero(one, other, right))


def _operands(left: Rendered, right: Rendered, kind: LogicalType) -> tuple[str, str]:
    """Both as Spark has to see them, so that it computes as Flink does whatever it makes of literals."""
    if not is_exact(kind):
        return cast(left, DOUBLE).wrapped, cast(right, DOUBLE).wrapped
    return exact(left), exact(right)


def exact(value: Rendered) -> str:
    """An exact number, of the type that Flink gives it: Spark reads the literal 3 as DECIMAL(1, 0) beside a decimal."""
    if value.constant is None:
        return value.wrapped
    assert value.type is not None
    return f"CAST({value.sql} AS {spark_type(value.type)})"


def _mod(arguments: Sequence[Rendered]) -> Rendered:
    return remainder(argument("n", arguments[0], "MOD"), argument("n", arguments[1], "MOD"))


def _same(name: str, integers: str, decimals: str, doubles: str) -> Handler:
    """A function that gives what it takes, with Spark SQL per kind of number."""

    def render(arguments: Sequence[Rendered]) -> Rendered:
        value = argument("n", arguments[0], name)
        assert value.type is not None
        kind = replace(value.type, nullable=True)
        text = integers if value.root in INTEGERS else decimals if value.root is TypeName.DECIMAL else doubles
        return made(f"CAST({text.format(value.wrapped)} AS {spark_type(kind)})", kind, value)

    return render


def whole(name: str) -> Handler:
    """CEIL and FLOOR: a DECIMAL loses its scale, a double stays one (and may be minus zero)."""

    def render(arguments: Sequence[Rendered]) -> Rendered:
        value = argument("n", arguments[0], name)
        assert value.type is not None
        if value.root in INTEGERS:
            return made(value.sql, replace(value.type, nullable=True), value, simple=value.simple)
        if value.root is TypeName.DECIMAL:
            kind = LogicalType(TypeName.DECIMAL, precision=value.type.precision, scale=0)
            return made(f"CAST({name}({value.sql}) AS {spark_type(kind)})", kind, value)
        kind = replace(value.type, nullable=True)
        sql = whole_of_double(name, value.wrapped)
        return made(f"CAST({sql} AS {spark_type(kind)})", kind, value)

    return render


def whole_of_double(name: str, number: str) -> str:
    """Spark SQL of CEIL or FLOOR of a double, which is a BIGINT in Spark, without a sign at zero."""
    minus_zero = f" WHEN {number} > -1 AND {number} < 0 THEN -0.0D" if name == "CEIL" else ""
    return (
        f"CASE WHEN NOT (ABS({number}) < {_NO_FRACTION}) OR {number} = 0 THEN {number}{minus_zero}"
        f" ELSE CAST({name}({number}) AS DOUBLE) END"
    )


def _round(arguments: Sequence[Rendered]) -> Rendered:
    value, digits = argument("n", arguments[0], "ROUND"), _fraction_digits("ROUND", arguments)
    assert value.type is not None
    kind = rounded_type(value.type, digits)
    return made(f"CAST(ROUND({value.sql}, {digits}) AS {spark_type(kind)})", kind, value)


def _truncate(arguments: Sequence[Rendered]) -> Rendered:
    value, digits = argument("n", arguments[0], "TRUNCATE"), _fraction_digits("TRUNCATE", arguments)
    assert value.type is not None
    if not is_exact(value.type):
        raise FunctionFault("TRUNCATE takes exact numbers: CAST it AS DECIMAL")
    if value.root in INTEGERS and digits >= 0:
        return made(value.sql, replace(value.type, nullable=True), value, simple=value.simple)
    kind, number, given = rounded_type(value.type, digits), value.wrapped, as_decimal(value.type)
    if digits >= (given.scale or 0):
        return made(value.sql, kind, value, simple=value.simple)
    if -digits >= (given.precision or 0) - (given.scale or 0):  # no such number is as large as the unit
        sql = f"CASE WHEN {number} IS NOT NULL THEN 0 END"
    else:
        unit = f"1{'0' * -digits}" if digits <= 0 else f"0.{'1':0>{digits}}"
        # What FLOOR gives may have a digit more than the type has room for.
        sql = f"{number} - {number} % CAST('{unit}' AS {spark_type(value.type)})"
    return made(f"CAST({sql} AS {spark_type(kind)})", kind, value)


def _fraction_digits(name: str, arguments: Sequence[Rendered]) -> int:
    if len(arguments) == 1:
        return 0
    digits = integer(arguments[1])
    if digits is None:
        raise FunctionFault(f"{name} takes the number of digits as a literal here")
    return digits


def _sign(arguments: Sequence[Rendered]) -> Rendered:
    value = argument("n", arguments[0], "SIGN")
    assert value.type is not None
    kind, number = replace(value.type, nullable=True), value.wrapped
    if not is_exact(kind):
        return made(f"CAST(SIGNUM({number}) AS {spark_type(kind)})", kind, value)
    sql = f"CASE WHEN {number} > 0 THEN 1 WHEN {number} < 0 THEN -1 WHEN {number} = 0 THEN 0 END"
    return made(f"CAST({sql} AS {spark_type(kind)})", kind, value)


def _log(arguments: Sequence[Rendered]) -> Rendered:
    given = [argument("d", item, "LOG") for item in arguments]
    sql = [f"({logarithm(item.wrapped)})" for item in given]
    text = sql[0] if len(sql) == 1 else f"{sql[1]} / {sql[0]}"
    return made(text, DOUBLE, *given, simple=False)


_DOUBLE_FUNCTIONS: Final = (
    "ACOS", "ASIN", "ATAN", "COS", "COSH", "COT", "DEGREES", "EXP", "RADIANS", "SIN", "SINH", "SQRT", "TAN", "TANH",
)  # fmt: skip
_LN2: Final = f"({logarithm('{0}')}) / LN(2D)"
_LN10: Final = "CASE WHEN {0} > 0 THEN LOG10({0}) ELSE " + logarithm("{0}") + " END"

FUNCTIONS: Final[dict[str, Overloads]] = {
    **overloads(
        {
            **{name: [("d", f"{name}({{0}})", DOUBLE)] for name in _DOUBLE_FUNCTIONS},
            "ATAN2": [("dd", "ATAN2({0}, {1})", DOUBLE)],
            "POWER": [("dd", "POWER({0}, {1})", DOUBLE)],
            "LN": [("d", logarithm("{0}"), DOUBLE)],
            "LOG10": [("d", _LN10, DOUBLE)],
            "LOG2": [("d", _LN2, DOUBLE)],
            "PI": [("", "PI()", DOUBLE)],
            "E": [("", "E()", DOUBLE)],
            "BIN": [("i", "BIN(CAST({0} AS BIGINT))", STRING)],
            "RAND": [("", "RAND()", DOUBLE), ("i", "RAND({0})", DOUBLE)],
            "RAND_INTEGER": [("i", "CAST(FLOOR(RAND() * {0}) AS INT)", INT),
                             ("ii", "CAST(FLOOR(RAND({0}) * {1}) AS INT)", INT)],
            "UUID": [("", "UUID()", STRING)],
        }
    ),
    "ABS": {1: _same("ABS", "ABS({0})", "ABS({0})", "ABS({0})")},
    "SIGN": {1: _sign},
    "CEIL": {1: whole("CEIL")},
    "CEILING": {1: whole("CEIL")},
    "FLOOR": {1: whole("FLOOR")},
    "ROUND": {1: _round, 2: _round},
    "TRUNCATE": {1: _truncate, 2: _truncate},
    "MOD": {2: _mod},
    "LOG": {1: _log, 2: _log},
}  # fmt: skip
