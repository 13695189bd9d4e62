"""CAST, by the type that it gives. To the parser, literals of dates and times, and numbers with a letter, are casts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Native
from upsert_platform.core.types import TypeName
from upsert_platform.sql import native_numbers, native_text_casts, native_texts, native_times
from upsert_platform.sql.native_types import Cast, Form, Reading, declared_type, has_only

_CASTS: Final[Mapping[TypeName, Cast]] = {
    **native_numbers.CASTS,
    **native_times.CASTS,
    **native_texts.CASTS,
    **native_text_casts.CASTS,
}


def _cast(node: exp.Expr, reading: Reading) -> Native | None:
    to = declared_type(node.to) if isinstance(node, exp.Cast) else None
    if to is None or not has_only(node, "this", "to", "requires_string"):
        return None  # TRY_CAST is safe to the parser, and numbers that do not fit are null there
    if isinstance(node.this, exp.Null):
        return ("literal", None, to)
    known = _CASTS.get(to.name)
    return known(node.this, to, reading) if known is not None else None


FORMS: Final[Mapping[type[exp.Expr], Form]] = {exp.Cast: _cast, exp.TryCast: _cast}
