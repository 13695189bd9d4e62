"""Spark SQL text of an expression, with what is known of its type; and casts between types."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from upsert_platform.types import LogicalType, TypeName, spark_type

INTEGERS: Final = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT)
STRINGS: Final = (TypeName.CHAR, TypeName.VARCHAR, TypeName.STRING)
TIMESTAMPS: Final = (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ)
_MICROSECONDS_OF_DAY: Final = 86_400_000_000

STRING = LogicalType(TypeName.STRING)
BOOLEAN = LogicalType(TypeName.BOOLEAN)
INT = LogicalType(TypeName.INT)
BIGINT = LogicalType(TypeName.BIGINT)
DOUBLE = LogicalType(TypeName.DOUBLE)
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
    """

    sql: str
    type: LogicalType | None = None
    simple: bool = False
    column: str | None = None
    constant: str | None = None
    varies: str | None = None

    @property
    def wrapped(self) -> str:
        """The text, in parentheses unless it is simple."""
        return self.sql if self.simple else f"({self.sql})"

    @property
    def root(self) -> TypeName | None:
        """Root of the type, if known."""
        return self.type.name if self.type else None


def quote_name(name: str) -> str:
    """A name as Spark SQL writes it."""
    return "`" + name.replace("`", "``") + "`"


def quote_text(text: str) -> str:
    """A text literal of Spark SQL: backslashes are escapes there, and ``${`` begins a substitution."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")
    return f"'{escaped}'"


def same_type(left: LogicalType | None, right: LogicalType | None) -> bool:
    """Whether two known types differ in nothing but the outermost nullability."""
    return left is not None and right is not None and replace(left, nullable=True) == replace(right, nullable=True)


def cast(value: Rendered, to: LogicalType, *, safe: bool = False, implicit: bool = False) -> Rendered:
    """Casts as Flink does.

    Args:
        safe: TRY_CAST: null instead of an error.
        implicit: lengths of CHAR and VARCHAR are not enforced, as when Flink writes to a table.
    """
    unbounded = implicit or to.name is TypeName.STRING
    if same_type(value.type, to) or (unbounded and value.root in STRINGS and to.name in STRINGS):
        return replace(value, type=to)
    word = "TRY_CAST" if safe else "CAST"
    plain = f"{word}({value.sql} AS {spark_type(to)})"
    sql = plain
    if to.name in STRINGS:
        sql = _to_string(value, word)
        if to.name is TypeName.CHAR and not implicit:
            sql = f"RPAD(SUBSTRING({sql}, 1, {to.length}), {to.length}, ' ')"
        elif to.name is TypeName.VARCHAR and not implicit:
            sql = f"SUBSTRING({sql}, 1, {to.length})"
    elif to.name in TIMESTAMPS:
        known = value.type.precision if value.type and value.root in TIMESTAMPS else None
        if value.root not in (TypeName.DATE,) and (known is None or known > (to.precision or 0)):
            sql = truncate(plain, to)
    elif to.name is TypeName.TIME:
        sql = _to_time(value, to, word)
    return Rendered(sql, to, simple=True, varies=value.varies)


def _to_string(value: Rendered, word: str) -> str:
    match value.root:
        case TypeName.BOOLEAN:
            return f"UPPER({word}({value.sql} AS STRING))"
        case TypeName.TIMESTAMP | TypeName.TIMESTAMP_LTZ:
            return f"DATE_FORMAT({value.sql}, '{_pattern('yyyy-MM-dd HH:mm:ss', value.type)}')"
        case TypeName.TIME:
            return f"DATE_FORMAT(TIMESTAMP_MICROS({value.sql}), '{_pattern('HH:mm:ss', value.type)}')"
    return f"{word}({value.sql} AS STRING)"


def _pattern(seconds: str, logical: LogicalType | None) -> str:
    digits = min(logical.precision or 0, 9) if logical else 0
    return f"{seconds}.{'S' * digits}" if digits else seconds


def _to_time(value: Rendered, to: LogicalType, word: str) -> str:
    """TIME is carried as microseconds of the day."""
    if value.root in STRINGS:
        micros = f"UNIX_MICROS({word}(CONCAT('1970-01-01 ', {value.sql}) AS TIMESTAMP))"
    elif value.root in TIMESTAMPS:
        micros = f"PMOD(UNIX_MICROS(CAST({value.sql} AS TIMESTAMP)), {_MICROSECONDS_OF_DAY})"
    else:
        micros = f"CAST({value.sql} AS BIGINT)"
    step = _step(to)
    return micros if step == 1 else f"{micros} DIV {step} * {step}"


def _step(logical: LogicalType) -> int:
    """How many microseconds the last digit of a fraction is worth."""
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
    """Whether a value of the type may hold more digits of a second."""
    if logical.name in (*TIMESTAMPS, TypeName.TIME):
        return _step(_at_most(logical, digits)) > 1
    inner = [field.type for field in logical.fields]
    return any(_has_more(part, digits) for part in (*inner, *([logical.element] if logical.element else [])))


def widest_integer(left: LogicalType | None, right: LogicalType | None) -> LogicalType | None:
    """The integer type of an arithmetic over two integers, None if one is something else."""
    if left is None or right is None or left.name not in INTEGERS or right.name not in INTEGERS:
        return None
    return LogicalType(max(left.name, right.name, key=INTEGERS.index))
