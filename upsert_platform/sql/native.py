"""Spark SQL that Arrow evaluates alike: columns, fields of rows, literals, conditions and CASE; numbers
(`native_numbers`, `native_quotients`, `native_rounding`, `native_extremes`), dates and times (`native_times`,
`native_calendar`), texts (`native_texts`, `native_letters`), functions of a project (`native_calls`), and those of the
clock, whose time the driver writes into the form of a batch (`core.plan.clock`).

It reads the text that `expressions.render` made, in which casts and other differences between Flink and Spark are
written out: what is left of these few forms means the same in Spark and in Arrow. Anything else has no native form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from sqlglot import exp
from sqlglot.errors import SqlglotError

from upsert_platform.core.plan import Native, clock
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql import (
    native_calendar,
    native_calls,
    native_casts,
    native_comparisons,
    native_extremes,
    native_letters,
    native_numbers,
    native_quotients,
    native_rounding,
    native_text_casts,
    native_texts,
    native_times,
)
from upsert_platform.sql.functions.times import CLOCKS
from upsert_platform.sql.native_choices import FORMS as CHOICES
from upsert_platform.sql.native_types import Form, Reading, parsed, type_of
from upsert_platform.sql.rendered import BOOLEAN, STRING

__all__ = ["native_condition", "native_form", "type_of"]

_ESCAPES: Final = re.compile(r"(?:[^\\]|\\[\\'])*")
"""Texts whose escapes, of a backslash or a quote, every parser reads alike."""


def native_form(text: str, columns: Mapping[str, LogicalType]) -> Native | None:
    """An expression for Arrow, or None where it is not sure to give what Spark gives.

    Args:
        text: of `expressions.render`.
        columns: that it may name, with their types.
    """
    if not _ESCAPES.fullmatch(text):
        return None
    try:
        node = parsed(text)
    except SqlglotError:
        return None
    return _native(node, columns)


def native_condition(text: str, columns: Mapping[str, LogicalType]) -> Native | None:
    """As `native_form`, of a condition."""
    found = native_form(text, columns)
    kind = None if found is None else type_of(found, columns)
    return found if kind is not None and kind.name is TypeName.BOOLEAN else None


def _native(node: exp.Expr, columns: Mapping[str, LogicalType]) -> Native | None:
    if isinstance(node, exp.Paren):
        return _native(node.this, columns)
    reading = next((form for known, form in _clocks() if known == node), None)
    if reading is not None:
        return reading
    known = _FORMS.get(type(node))
    return known(node, Reading(columns, lambda part: _native(part, columns))) if known is not None else None


@cache
def _clocks() -> list[tuple[exp.Expr, Native]]:
    """Return the readings of the clock, parsed, with their forms."""
    return [(parsed(text).unnest(), clock(kind)) for text, kind in dict.fromkeys(CLOCKS.values())]


def _part(node: exp.Expr, reading: Reading) -> Native | None:
    return native_calls.native_call(node, reading) if native_calls.is_call(node) else _column(node, reading)


def _column(node: exp.Expr, reading: Reading) -> Native | None:
    """A column, or a field of one of type ROW; names are those of the declaration, in their case."""
    columns = reading.columns
    parts = node.parts if isinstance(node, (exp.Column, exp.Dot)) else []
    if not parts or not all(isinstance(part, exp.Identifier) for part in parts) or parts[0].name not in columns:
        return None
    found: Native = ("column", parts[0].name)
    kind = columns[parts[0].name]
    for part in parts[1:]:
        # Spark takes a name for a field whatever its case is.
        alike = [item for item in kind.fields if item.name.casefold() == part.name.casefold()]
        if kind.name is not TypeName.ROW or len(alike) != 1 or alike[0].name != part.name:
            return None
        found, kind = ("field", found, part.name), alike[0].type
    return found


def _boolean(node: exp.Expr, _reading: Reading) -> Native:
    return ("literal", bool(node.this), BOOLEAN)


def _literal(node: exp.Expr, reading: Reading) -> Native | None:
    if isinstance(node, exp.Literal) and node.is_string:
        return ("literal", node.name, STRING)
    return native_numbers.literal(node, reading)


def _sum(node: exp.Expr, reading: Reading) -> Native | None:
    of_times = isinstance(node.expression, exp.Interval)
    return native_times.shifted(node, reading) if of_times else native_numbers.FORMS[exp.Add](node, reading)


def _by_name(node: exp.Expr, reading: Reading) -> Native | None:
    """A function that the parser does not know, that of a project perhaps."""
    if native_calls.is_call(node):
        return native_calls.native_call(node, reading)
    known = _FUNCTIONS.get(node.name.upper())
    return known(node, reading) if known is not None else None


_FUNCTIONS: Final[Mapping[str, Form]] = {
    **native_numbers.FUNCTIONS,
    **native_times.FUNCTIONS,
    **native_texts.FUNCTIONS,
    **native_text_casts.FUNCTIONS,
}
_FORMS: Final[Mapping[type[exp.Expr], Form]] = {
    exp.Column: _column,
    exp.Dot: _part,
    exp.Boolean: _boolean,
    exp.Literal: _literal,
    exp.Anonymous: _by_name,
    **CHOICES,
    **native_casts.FORMS,
    **native_comparisons.FORMS,
    **native_numbers.FORMS,
    **native_quotients.FORMS,
    **native_rounding.FORMS,
    **native_extremes.FORMS,
    **native_times.FORMS,
    **native_calendar.FORMS,
    **native_texts.FORMS,
    **native_letters.FORMS,
    exp.Add: _sum,
}
