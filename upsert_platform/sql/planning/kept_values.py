"""Expressions that give another value for every value of a column, so that they may take its place in a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Field
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.compatibility import keeps_apart
from upsert_platform.sql.flink import declared_type
from upsert_platform.sql.rendered import INTEGERS, STRINGS, TIMESTAMPS

_WRITTEN: Final = (*INTEGERS, TypeName.DECIMAL, TypeName.BOOLEAN, TypeName.DATE, *TIMESTAMPS)
"""Types whose values have a text of their own each."""
_UNITS: Final = (("dd", 86_400_000_000), ("HH", 3_600_000_000), ("mm", 60_000_000), ("ss", 1_000_000), ("SSS", 1_000))

Find = Callable[[exp.Column], Field | None]


def kept_column(node: exp.Expr, find: Find) -> tuple[str, int] | None:
    """The column that an expression tells, and the unit of time (microseconds) up to which it does; 0 for all of it.

    Args:
        find: the column of the plan that a name means.
    """
    if isinstance(node, exp.Paren):
        return kept_column(node.this, find)
    if isinstance(node, exp.Column):
        field = find(node)
        return (field.name, 0) if field is not None else None
    if isinstance(node, (exp.Cast, exp.TryCast)):
        return _cast(node, find)
    parts = _joined_texts(node)
    if parts is not None:
        changing = [part for part in parts if not isinstance(part, exp.Literal)]
        return kept_column(changing[0], find) if len(changing) == 1 else None
    if isinstance(node, exp.Anonymous) and str(node.this).upper() == "DATE_FORMAT" and len(node.expressions) == 2:
        return _formatted(node.expressions[0], node.expressions[1], find)
    return None


def _cast(node: exp.Cast, find: Find) -> tuple[str, int] | None:
    to = declared_type(node)
    inner = node.this
    while isinstance(inner, exp.Paren):
        inner = inner.this
    kept = kept_column(inner, find)
    if to is None or kept is None:
        return None
    field = find(inner) if isinstance(inner, exp.Column) else None
    if field is None:  # a text, since nothing else has a column in it
        return kept if to.name is TypeName.STRING else None
    return kept if _is_apart(field.type, to) else None


def _is_apart(source: LogicalType, to: LogicalType) -> bool:
    if to.name is TypeName.STRING:
        return source.name in _WRITTEN or source.name in (TypeName.STRING, TypeName.VARCHAR)
    return to.name not in STRINGS and source.name not in STRINGS and keeps_apart(source, to)


def _joined_texts(node: exp.Expr) -> list[exp.Expr] | None:
    """The parts of CONCAT or ``||``; None for something else."""
    if isinstance(node, exp.DPipe):
        found: list[exp.Expr] = []
        for side in (node.this, node.expression):
            found += _joined_texts(side) or [side]
        return found
    if isinstance(node, exp.Anonymous) and str(node.this).upper() == "CONCAT":
        return list(node.expressions)
    return None


def _formatted(value: exp.Expr, pattern: exp.Expr, find: Find) -> tuple[str, int] | None:
    """A time as a text that begins with its date: up to the last unit that the pattern names."""
    field = find(value) if isinstance(value, exp.Column) else None
    if field is None or field.type.name not in TIMESTAMPS or not isinstance(pattern, exp.Literal):
        return None
    text = pattern.name
    if "'" in text or not all(letters in text for letters in ("yyyy", "MM")):
        return None
    unit = None
    for letters, length in _UNITS:
        if letters not in text:
            break
        unit = length
    return (field.name, unit) if unit is not None else None
