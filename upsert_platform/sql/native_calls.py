"""Calls of functions in Python, which get columns where they are, past Spark SQL: those of a project, those of JSON."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Native
from upsert_platform.core.types import LogicalType, RowField, TypeName, arrow_type
from upsert_platform.core.user_functions import called_functions
from upsert_platform.sql.functions.json import CHECK, EXISTS, QUERY, VALUE
from upsert_platform.sql.native_types import Reading
from upsert_platform.sql.rendered import BOOLEAN, INTEGERS, STRING, nullable

_FOUND: Final = LogicalType(TypeName.ROW, fields=(RowField("value", STRING), RowField("fate", STRING)))
_JSON: Final = {
    VALUE: ("value", _FOUND),
    QUERY: ("query", _FOUND),
    EXISTS: ("exists", STRING),
    CHECK: ("check", BOOLEAN),
}


def is_call(node: exp.Expr) -> bool:
    """Return whether an expression is a call of a function in Python, or a part of what it gives."""
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        return is_call(node.this)
    return isinstance(node, exp.Anonymous) and (node.name in _JSON or bool(called_functions(f"{node.name}(")))


def native_call(node: exp.Expr, reading: Reading) -> Native | None:
    """The form of an expression for which `is_call` holds.

    A function that is not deterministic has none: its value is not computed a second time.
    """
    if isinstance(node, exp.Dot):
        call = native_call(node.this, reading)
        return ("field", call, node.expression.name) if call is not None else None
    if node.name in _JSON:
        return _of_json(node, reading)
    from upsert_platform.sql.user_batches import REASON, VALUE, Batches

    ((name, target),) = called_functions(f"{node.name}(").items()
    batches, signature = Batches.of(name, target)
    given = [reading.typed(item) for item in node.expressions]
    known = [item for item in given if item is not None]
    if not signature.deterministic or len(known) != len(given):
        return None
    if not all(_is_given(form, kind, to) for (form, kind), to in zip(known, signature.arguments, strict=True)):
        return None
    result = nullable(signature.result) or STRING
    if not batches.stops:
        result = LogicalType(TypeName.ROW, fields=(RowField(VALUE, result), RowField(REASON, STRING)))
    return ("call", batches, *(form for form, _ in known), result)


def _of_json(node: exp.Expr, reading: Reading) -> Native | None:
    from upsert_platform.sql.json_reading import JsonCalls

    name, result = _JSON[node.name]
    given = [reading.text(item) for item in node.expressions]
    return ("call", JsonCalls(name), *given, result) if all(given) else None


def _is_given(form: Native, kind: LogicalType, to: LogicalType) -> bool:
    """Return whether the function gets what Spark gives it; a literal of a whole number is as wide as it has to be."""
    return arrow_type(kind) == arrow_type(to) or (form[0] == "literal" and {kind.name, to.name} <= set(INTEGERS))
