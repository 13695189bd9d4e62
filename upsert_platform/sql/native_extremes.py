"""GREATEST and LEAST, which are the first value of several that no other one exceeds; nulls do not count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Native
from upsert_platform.core.types import TypeName, arrow_type
from upsert_platform.sql.native_types import Form, Reading, has_only
from upsert_platform.sql.rendered import NUMBERS, STRINGS, TIMESTAMPS

_ORDERED: Final = (*NUMBERS, *STRINGS, *TIMESTAMPS, TypeName.DATE, TypeName.BOOLEAN)


def _extreme(node: exp.Expr, reading: Reading) -> Native | None:
    found = [reading.typed(item) for item in (node.this, *node.expressions)]
    known = [item for item in found if item is not None]
    if len(known) != len(found) or not has_only(node, "this", "expressions", "ignore_nulls"):
        return None
    if any(kind.name not in _ORDERED for _, kind in known) or len({arrow_type(kind) for _, kind in known}) != 1:
        return None
    return (node.key, *(form for form, _ in known))


FORMS: Final[Mapping[type[exp.Expr], Form]] = {exp.Greatest: _extreme, exp.Least: _extreme}
