"""Spark SQL text of an expression, with its type in Flink and when it fails; and fractions of seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from upsert_platform.core.types import LogicalType, TypeName, quote_name

INTEGERS: Final = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT)
STRINGS: Final = (TypeName.CHAR, TypeName.VARCHAR, TypeName.STRING)
TIMESTAMPS: Final = (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ)

NUMBERS: Final = (*INTEGERS, TypeName.DECIMAL, TypeName.FLOAT, TypeName.DOUBLE)
BINARIES: Final = (TypeName.BINARY, TypeName.VARBINARY, TypeName.BYTES)

STRING = LogicalType(TypeName.STRING)
BOOLEAN = LogicalType(TypeName.BOOLEAN)
INT = LogicalType(TypeName.INT)
BIGINT = LogicalType(TypeName.BIGINT)
FLOAT = LogicalType(TypeName.FLOAT)
DOUBLE = LogicalType(TypeName.DOUBLE)
BYTES = LogicalType(TypeName.BYTES)
DATE = LogicalType(TypeName.DATE)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A Spark SQL expression.

    Attributes:
        type: as Flink would give it, or None where that is not known.
        simple: stands inside a larger expression without parentheses.
        column: name of the source's column, when it is nothing but one.
        constant: the text of a literal.
        varies: name of a function in it that gives another value each time.
        fails: Spark SQL of the reason why it has no value for a row, null where it has one; None if it cannot fail. The
            expression itself raises nothing: what fails for a row is null there.
        json: its text is JSON, which goes into other JSON as it is.
        never_zero: a number that may be null, but not zero.
        most_whole: digits before the point that an exact number has at most, where its type has room for more.
    """

    sql: str
    type: LogicalType | None = None
    simple: bool = False
    column: str | None = None
    constant: str | None = None
    varies: str | None = None
    fails: str | None = None
    json: bool = False
    never_zero: bool = False
    most_whole: int | None = None

    @property
    def wrapped(self) -> str:
        """The text, in parentheses unless it is simple."""
        return self.sql if self.simple else f"({self.sql})"

    @property
    def may_be_null(self) -> bool:
        """Return whether its type admits nulls; a literal is none."""
        return self.constant is None and (self.type is None or self.type.nullable)

    @property
    def root(self) -> TypeName | None:
        """Root of the type, if known."""
        return self.type.name if self.type else None


def nullable(kind: LogicalType | None) -> LogicalType | None:
    """The type of values that may be null."""
    return replace(kind, nullable=True) if kind is not None else None


def quote_text(text: str) -> str:
    """A text literal of Spark SQL: backslashes are escapes there, and ``${`` begins a substitution."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")
    return f"'{escaped}'"


def same_type(left: LogicalType | None, right: LogicalType | None) -> bool:
    """Return whether two known types differ in nothing but the outermost nullability."""
    return left is not None and right is not None and replace(left, nullable=True) == replace(right, nullable=True)


def made(
    sql: str, kind: LogicalType | None, *parts: Rendered, simple: bool = True, fails: str | None = None
) -> Rendered:
    """An expression made of others: it varies, and fails, as they do, and may be null where one of them may.

    Args:
        kind: its type, NOT NULL for one that is never null by itself.
        fails: when it fails by itself, see `Rendered.fails`.
    """
    varies = next((part.varies for part in parts if part.varies), None)
    if kind is not None and not kind.nullable and any(part.may_be_null for part in parts):
        kind = replace(kind, nullable=True)
    return Rendered(
        sql, kind, simple=simple, varies=varies, fails=first_failure(*(part.fails for part in parts), fails)
    )


def first_failure(*failures: str | None) -> str | None:
    """The first reason that is not null, of several that may each be None."""
    found = list(dict.fromkeys(failure for failure in failures if failure))
    if len(found) < 2:
        return found[0] if found else None
    return f"COALESCE({', '.join(found)})"


def fails_when(condition: str, reason: str) -> str:
    """A failure with a fixed reason."""
    return f"CASE WHEN {condition} THEN {quote_text(reason)} END"


def _step(logical: LogicalType) -> int:
    """Return the number of microseconds of the last digit of a fraction."""
    return int(10 ** (6 - min(logical.precision or 0, 6)))


def truncate(sql: str, to: LogicalType) -> str:
    """Cuts the fraction of a timestamp to a precision, downwards as Flink does."""
    step = _step(to)
    if step == 1:
        return sql
    micros = f"UNIX_MICROS(CAST({sql} AS TIMESTAMP))"
    cut = f"TIMESTAMP_MICROS({micros} - PMOD({micros}, {step}))"
    return f"CAST({cut} AS TIMESTAMP_NTZ)" if to.name is TypeName.TIMESTAMP else cut


def cut_fractions(sql: str, logical: LogicalType, *, digits: int = 6) -> str:
    """Cuts every fraction of a second in a value to the digits that its type declares, or to fewer.

    Formats read what a text has, whatever is declared.
    """
    if not _has_more(logical, digits):
        return sql
    match logical.name:
        case TypeName.TIMESTAMP | TypeName.TIMESTAMP_LTZ:
            return truncate(sql, _at_most(logical, digits))
        case TypeName.TIME:
            step = _step(_at_most(logical, digits))
            return f"({sql}) DIV {step} * {step}"
        case TypeName.ARRAY:
            assert logical.element is not None
            return f"TRANSFORM({sql}, _e -> {cut_fractions('_e', logical.element, digits=digits)})"
        case TypeName.MAP:
            assert logical.element is not None
            return f"TRANSFORM_VALUES({sql}, (_k, _e) -> {cut_fractions('_e', logical.element, digits=digits)})"
        case TypeName.ROW:
            fields = ", ".join(
                f"{quote_text(field.name)},"
                f" {cut_fractions(f'({sql}).{quote_name(field.name)}', field.type, digits=digits)}"
                for field in logical.fields
            )
            return f"IF(({sql}) IS NULL, NULL, NAMED_STRUCT({fields}))"
    return sql


def _at_most(logical: LogicalType, digits: int) -> LogicalType:
    return replace(logical, precision=min(logical.precision or 0, digits))


def _has_more(logical: LogicalType, digits: int) -> bool:
    """Return whether a value of the type may hold more digits of a second."""
    if logical.name in (*TIMESTAMPS, TypeName.TIME):
        return _step(_at_most(logical, digits)) > 1
    inner = [field.type for field in logical.fields]
    return any(_has_more(part, digits) for part in (*inner, *([logical.element] if logical.element else [])))
