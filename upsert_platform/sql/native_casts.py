"""CAST, by the type that it gives. To the parser, literals of dates and times, and numbers with a letter, are casts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Native
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql import native_numbers, native_texts, native_times
from upsert_platform.sql.native_types import Cast, Form, Reading, has_only
from upsert_platform.sql.numbers import MOST_DIGITS

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
_CASTS: Final[Mapping[TypeName, Cast]] = {**native_numbers.CASTS, **native_times.CASTS, **native_texts.CASTS}


def _cast(node: exp.Expr, reading: Reading) -> Native | None:
    to = _declared(node.to) if isinstance(node, exp.Cast) else None
    if to is None or not has_only(node, "this", "to", "safe", "requires_string"):
        return None
    if isinstance(node.this, exp.Null):
        return ("literal", None, to)
    known = _CASTS.get(to.name)
    return known(node.this, to, reading) if known is not None else None


def _declared(to: exp.DataType) -> LogicalType | None:
    if to.this is _Type.DECIMAL and len(to.expressions) == 2:
        precision, scale = (int(item.name) for item in to.expressions)
        known = 0 <= scale <= precision <= MOST_DIGITS
        return LogicalType(TypeName.DECIMAL, precision=precision, scale=scale) if known else None
    return None if to.expressions or to.args.get("nested") else _TYPES.get(to.this)


FORMS: Final[Mapping[type[exp.Expr], Form]] = {exp.Cast: _cast, exp.TryCast: _cast}
