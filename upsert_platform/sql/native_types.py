"""Types of native forms, and the reading of their parts.

A form is a tuple: an operator, the forms that it takes, and what else it needs. What a new operator gives stands here;
how it is computed, in the modules `engine.*_values`, `engine.text_casts` and `engine.time_readings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark

from upsert_platform.core.plan import Native
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.numbers import MOST_DIGITS, arithmetic_type
from upsert_platform.sql.rendered import BIGINT, BOOLEAN, DATE, DOUBLE, INT, INTEGERS, STRING, STRINGS

_FIXED: Final[Mapping[str, LogicalType]] = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "of doubles", "text to truth"), BOOLEAN),
    **dict.fromkeys(("and", "or", "not", "is null", "is true", "in", "like", "starts", "ends", "contains"), BOOLEAN),
    **dict.fromkeys(("date format", "part", "group"), STRING),
    **dict.fromkeys(("join", "join present", "text", "slice", "trim", "replace"), STRING),
    **dict.fromkeys(("lower", "upper", "words", "reverse", "pad"), STRING),
    **dict.fromkeys(("length", "position", "date part"), INT),
    **dict.fromkeys(("div", "whole part", "micros", "millis"), BIGINT),
    **dict.fromkeys(("day", "date", "text to day"), DATE),
    **dict.fromkeys(("quotient of doubles", "root", "sign", "ceil", "floor"), DOUBLE),
}
"""Operators that always give the same type."""
_DECLARED: Final = frozenset(
    {"literal", "clock", "whole", "decimal", "fit", "real", "moment", "zone", "midnight", "call"}
    | {"text to whole", "text to decimal", "text to short decimal", "text to real"}
    | {"text to moment", "text to moment by", "quotient", "rest of decimals", "round"}
)
"""Operators whose last operand is the type that they give."""
_Type: Final = exp.DataType.Type
_TYPES: Final[Mapping[exp.DType, LogicalType]] = {
    _Type.TINYINT: LogicalType(TypeName.TINYINT), _Type.SMALLINT: LogicalType(TypeName.SMALLINT),
    _Type.INT: LogicalType(TypeName.INT), _Type.BIGINT: LogicalType(TypeName.BIGINT),
    _Type.FLOAT: LogicalType(TypeName.FLOAT), _Type.DOUBLE: LogicalType(TypeName.DOUBLE),
    _Type.BOOLEAN: LogicalType(TypeName.BOOLEAN), _Type.TEXT: LogicalType(TypeName.STRING),
    _Type.DATE: LogicalType(TypeName.DATE), _Type.TIMESTAMPNTZ: LogicalType(TypeName.TIMESTAMP, precision=6),
    _Type.TIMESTAMPTZ: LogicalType(TypeName.TIMESTAMP_LTZ, precision=6),
}  # fmt: skip
"""What Spark's types are called by the parser."""
_OF_FIRST: Final = frozenset(
    {"coalesce", "negative", "size", "shift", "greatest", "least"}
    | {"months later", "days later", "first day", "units later"}
)


class _Dialect(Spark):
    """Spark SQL whose patterns of times stay as they are written: the parser translates them, several to one."""

    TIME_MAPPING = {}  # noqa: RUF012 - as its parent has it


def parsed(text: str) -> exp.Expr:
    """An expression of Spark SQL.

    Raises:
        SqlglotError: the parser does not know it.
    """
    return sqlglot.parse_one(text, dialect=_Dialect)


def type_of(native: Native, columns: Mapping[str, LogicalType]) -> LogicalType | None:
    """The type of a form; None where nothing here gives it."""
    operator = native[0]
    if operator in _FIXED:
        return _FIXED[operator]
    if operator in _DECLARED:
        return cast("LogicalType", native[-1])
    if operator in _OF_FIRST:
        return type_of(native[1], columns)
    match operator:
        case "column":
            return columns[native[1]]
        case "field":
            row = type_of(native[1], columns)
            return next(item.type for item in row.fields if item.name == native[2]) if row is not None else None
        case "case":
            return type_of(native[2], columns)
        case "+" | "-" | "*" | "%" | "pmod":
            left, right = (type_of(side, columns) for side in native[1:])
            return None if left is None or right is None else _of_arithmetic(operator, left, right)
    return None


def _of_arithmetic(operator: str, left: LogicalType, right: LogicalType) -> LogicalType:
    """Whole numbers have the wider type in Spark, of a remainder too."""
    if left.name in INTEGERS and right.name in INTEGERS:
        return LogicalType(max(left.name, right.name, key=INTEGERS.index))
    return arithmetic_type(operator, left, right)


def declared_type(to: exp.DataType) -> LogicalType | None:
    """The type that a cast names; None for one that no form has."""
    if to.this is _Type.DECIMAL and len(to.expressions) == 2:
        precision, scale = (int(item.name) for item in to.expressions)
        known = 0 <= scale <= precision <= MOST_DIGITS
        return LogicalType(TypeName.DECIMAL, precision=precision, scale=scale) if known else None
    return None if to.expressions or to.args.get("nested") else _TYPES.get(to.this)


@dataclass(frozen=True)
class Reading:
    """An expression that is read.

    Attributes:
        columns: that it may name, with their types.
        form: reads a part of it.
    """

    columns: Mapping[str, LogicalType]
    form: Callable[[exp.Expr], Native | None]

    def type_of(self, native: Native) -> LogicalType | None:
        """The type of a form."""
        return type_of(native, self.columns)

    def typed(self, node: exp.Expr | None) -> tuple[Native, LogicalType] | None:
        """A part with its type; None where either is not known."""
        found = None if node is None else self.form(node)
        kind = None if found is None else self.type_of(found)
        return None if found is None or kind is None else (found, kind)

    def of(self, node: exp.Expr | None, *names: TypeName) -> Native | None:
        """A part of one of some types."""
        found = self.typed(node)
        return found[0] if found is not None and found[1].name in names else None

    def text(self, node: exp.Expr | None) -> Native | None:
        """A part that is a text."""
        return self.of(node, *STRINGS)

    def truth(self, node: exp.Expr | None) -> Native | None:
        """A part that is true, false or null."""
        return self.of(node, TypeName.BOOLEAN)


Form = Callable[[exp.Expr, Reading], "Native | None"]
"""Gives the form of a node of one class; None where it is not sure to give what Spark gives."""
Cast = Callable[[exp.Expr, LogicalType, Reading], "Native | None"]
"""Gives the form of what is cast to a type."""


def has_only(node: exp.Expr, *names: str) -> bool:
    """Return whether a node has no other arguments than those of some names."""
    return all(name in names for name, value in node.args.items() if value not in (None, False, []))


def whole_literal(node: exp.Expr | None) -> int | None:
    """The value of a literal of a whole number, which may have a sign; None for anything else."""
    if isinstance(node, exp.Paren):
        return whole_literal(node.this)
    if isinstance(node, exp.Neg):
        inner = whole_literal(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and node.name.isascii():
        return int(node.name)
    return None


def text_literal(node: exp.Expr | None) -> str | None:
    """The value of a literal of a text, or of REPLACE of such; None for anything else."""
    if isinstance(node, exp.Literal) and node.is_string:
        return node.name
    if isinstance(node, exp.Replace):
        parts = [text_literal(node.args.get(name)) for name in ("this", "expression", "replacement")]
        value, old, new = parts
        return value.replace(old, new) if value is not None and old and new is not None else None
    return None
