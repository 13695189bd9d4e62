"""Conditions joined by AND, OR and NOT, tests for null, and what chooses among values: CASE and COALESCE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Native
from upsert_platform.core.types import LogicalType, TypeName, arrow_type
from upsert_platform.sql import native_text_casts, native_texts
from upsert_platform.sql.native_types import Form, Reading, has_only
from upsert_platform.sql.rendered import INTEGERS, STRINGS

_FEWEST: Final = 3
"""Literals that are looked for together, and not one by one."""


def _and_or(node: exp.Expr, reading: Reading) -> Native | None:
    if isinstance(node, exp.Or) and (value := native_texts.text_of_any(node)) is not None:
        text = reading.text(value)  # it is null where the text is
        return ("=", text, text) if text is not None else None
    sides = [reading.truth(side) for side in node.flatten(unnest=False)]
    known = [side for side in sides if side is not None]
    if len(known) != len(sides):
        return None
    among = _one_of(known, reading) if isinstance(node, exp.Or) else None
    return among if among is not None else _joined(node.key, known)


def _joined(operator: str, sides: Sequence[Native]) -> Native:
    """Many conditions as pairs of pairs, lest one is nested as deep as they are many."""
    if len(sides) == 1:
        return sides[0]
    middle = (len(sides) + 1) // 2
    return (operator, _joined(operator, sides[:middle]), _joined(operator, sides[middle:]))


def _one_of(sides: Sequence[Native], reading: Reading) -> Native | None:
    """IN, which is written as equalities of one value with literals."""
    if len(sides) < _FEWEST or any(side[0] != "=" or side[2][0] != "literal" for side in sides):
        return None
    value, kind = sides[0][1], reading.type_of(sides[0][1])
    if kind is None or kind.name not in (*INTEGERS, *STRINGS) or any(side[1] != value for side in sides):
        return None
    literals = [side[2] for side in sides]
    if any(arrow_type(literal[2]) != arrow_type(kind) for literal in literals):
        return None
    return ("in", value, *literals)


def _not(node: exp.Expr, reading: Reading) -> Native | None:
    inner = reading.truth(node.this)
    return ("not", inner) if inner is not None else None


def _is(node: exp.Expr, reading: Reading) -> Native | None:
    """IS NULL, of any value; IS TRUE and IS FALSE, of a condition."""
    if isinstance(node.expression, exp.Null):
        inner = reading.form(node.this)
        return ("is null", inner) if inner is not None else None
    inner = reading.truth(node.this)
    if inner is None or not isinstance(node.expression, exp.Boolean):
        return None
    return ("is true", inner if node.expression.this else ("not", inner))


def _case(node: exp.Expr, reading: Reading) -> Native | None:
    """CASE WHEN ..., or CASE of a value WHEN ..., with values of one type, which null has too."""
    of_text = native_text_casts.of_case(node, reading) if isinstance(node, exp.Case) else None
    if of_text is not None:
        return of_text
    branches = [branch.this for branch in node.args["ifs"]]
    if node.this is not None:
        branches = [exp.EQ(this=node.this.copy(), expression=branch.copy()) for branch in branches]
    conditions = [reading.truth(branch) for branch in branches]
    given = [*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default") or exp.Null()]
    values = _alike(given, reading)
    if values is None or any(condition is None for condition in conditions):
        return None
    found = [item for pair in zip(conditions, values[:-1], strict=True) for item in pair]
    return ("case", *found, values[-1])


def _coalesce(node: exp.Expr, reading: Reading) -> Native | None:
    """The first value that is not null; values have one type."""
    values = _alike([node.this, *node.expressions], reading)
    if values is None or not has_only(node, "this", "expressions"):
        return None
    kind = reading.type_of(values[0])
    if kind is None or kind.name in (TypeName.ARRAY, TypeName.MAP, TypeName.MULTISET, TypeName.ROW):
        return None
    return ("coalesce", *values)


def _alike(given: Sequence[exp.Expr], reading: Reading) -> list[Native] | None:
    """Values of one type, of which NULL takes that of the others; None where they have several, or none at all."""
    found: list[Native | None] = []
    kinds: list[LogicalType] = []
    for value in given:
        known = None if isinstance(value, exp.Null) else reading.typed(value)
        if known is None and not isinstance(value, exp.Null):
            return None
        found.append(None if known is None else known[0])
        kinds += [] if known is None else [known[1]]
    if len({arrow_type(kind) for kind in kinds}) != 1:
        return None
    return [("literal", None, kinds[0]) if value is None else value for value in found]


FORMS: Final[Mapping[type[exp.Expr], Form]] = {
    exp.And: _and_or,
    exp.Or: _and_or,
    exp.Not: _not,
    exp.Is: _is,
    exp.Case: _case,
    exp.Coalesce: _coalesce,
}
