"""Spark SQL that Arrow evaluates alike: columns, literals and comparisons within a family of types.

It reads the text that `expressions.render` made, in which casts and other differences between Flink and Spark are
written out: what is left of these few forms means the same in Spark and in Arrow. Anything else has no native form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from upsert_platform.core.plan import Native
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.rendered import INTEGERS, STRINGS

_COMPARISONS: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_LEAST_LONG: Final = 1 << 63


def native_form(text: str, columns: Mapping[str, LogicalType]) -> Native | None:
    """An expression for Arrow, or None where it is not sure to give what Spark gives.

    Args:
        text: of `expressions.render`.
        columns: that it may name, with their types.
    """
    if "\\" in text:  # an escape in a literal: parsers disagree about them
        return None
    try:
        parsed = sqlglot.parse_one(text, dialect="spark")
    except SqlglotError:
        return None
    return _native(parsed, columns)


def _native(node: exp.Expr, columns: Mapping[str, LogicalType]) -> Native | None:
    if isinstance(node, exp.Paren):
        return _native(node.this, columns)
    if isinstance(node, exp.Column):
        known = len(node.parts) == 1 and isinstance(node.this, exp.Identifier) and node.name in columns
        return ("column", node.name) if known else None
    if isinstance(node, exp.Boolean):
        return ("literal", bool(node.this), LogicalType(TypeName.BOOLEAN))
    if isinstance(node, exp.Literal):
        return _literal(node)
    if type(node) in _COMPARISONS:
        return _comparison(node, columns)
    if isinstance(node, (exp.And, exp.Or)):
        sides = [_truth(side, columns) for side in (node.this, node.expression)]
        return (node.key, *sides) if all(side is not None for side in sides) else None
    if isinstance(node, exp.Not):
        inner = _truth(node.this, columns)
        return ("not", inner) if inner is not None else None
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        inner = _native(node.this, columns)
        return ("is null", inner) if inner is not None else None
    return None


def native_condition(text: str, columns: Mapping[str, LogicalType]) -> Native | None:
    """As `native_form`, of a condition."""
    found = native_form(text, columns)
    return found if found is not None and _is_truth(found, columns) else None


def _truth(node: exp.Expr, columns: Mapping[str, LogicalType]) -> Native | None:
    found = _native(node, columns)
    return found if found is not None and _is_truth(found, columns) else None


def _is_truth(native: Native, columns: Mapping[str, LogicalType]) -> bool:
    kind = _type(native, columns)
    return kind is None or kind.name is TypeName.BOOLEAN


def _type(native: Native, columns: Mapping[str, LogicalType]) -> LogicalType | None:
    """Return the type of a column or a literal; None for a truth value."""
    if native[0] == "column":
        return columns[native[1]]
    return native[2] if native[0] == "literal" else None


def _literal(node: exp.Literal) -> Native | None:
    if node.is_string:
        return ("literal", node.name, LogicalType(TypeName.STRING))
    if not node.name.isdigit() or int(node.name) >= _LEAST_LONG:
        return None
    return ("literal", int(node.name), LogicalType(TypeName.BIGINT))


def _comparison(node: exp.Expr, columns: Mapping[str, LogicalType]) -> Native | None:
    sides = [_native(side, columns) for side in (node.this, node.expression)]
    if any(side is None for side in sides):
        return None
    kinds = [_type(side, columns) for side in sides if side is not None]
    if any(kind is None for kind in kinds):
        return None
    names = [kind.name for kind in kinds if kind is not None]
    alike = any(all(name in family for name in names) for family in (INTEGERS, STRINGS, (TypeName.BOOLEAN,)))
    return (_COMPARISONS[type(node)], *sides) if alike else None
