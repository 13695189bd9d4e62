"""Calls of a project's functions that Arrow evaluates: the function gets columns where they are, past Spark SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sqlglot import exp

from upsert_platform.core.plan import Native
from upsert_platform.core.types import LogicalType, RowField, TypeName, arrow_type
from upsert_platform.core.user_functions import SIGNATURE, Signature, called_functions
from upsert_platform.sql.rendered import INTEGERS, STRING, nullable

if TYPE_CHECKING:
    from upsert_platform.sql.user_batches import Batches


def is_call(node: exp.Expr) -> bool:
    """Return whether an expression is a call of a function of the project, or a part of what it gives."""
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        return is_call(node.this)
    return isinstance(node, exp.Anonymous) and bool(called_functions(f"{node.name}("))


def native_call(node: exp.Expr, arguments: Mapping[exp.Expr, tuple[Native, LogicalType]]) -> Native | None:
    """The form of an expression for which `is_call` holds.

    A function that is not deterministic has none: its value is not computed a second time.

    Args:
        arguments: the forms and types of those that have one.
    """
    if isinstance(node, exp.Dot):
        call = native_call(node.this, arguments)
        return ("field", call, node.expression.name) if call is not None else None
    from upsert_platform.sql.user_batches import Batches

    ((name, target),) = called_functions(f"{node.name}(").items()
    batches, signature = Batches.of(name, target)
    given = [arguments.get(item) for item in node.expressions]
    known = [item for item in given if item is not None]
    if not signature.deterministic or len(known) != len(given):
        return None
    if not all(_is_given(form, kind, to) for (form, kind), to in zip(known, signature.arguments, strict=True)):
        return None
    return ("call", batches, *(form for form, _ in known))


def type_of_call(batches: Batches) -> LogicalType:
    """The type of what a call gives."""
    signature: Signature = getattr(batches.function, SIGNATURE)
    result = nullable(signature.result) or STRING
    if batches.stops:
        return result
    from upsert_platform.sql.user_batches import REASON, VALUE

    return LogicalType(TypeName.ROW, fields=(RowField(VALUE, result), RowField(REASON, STRING)))


def _is_given(form: Native, kind: LogicalType, to: LogicalType) -> bool:
    """Return whether the function gets what Spark gives it; a literal of a whole number is as wide as it has to be."""
    return arrow_type(kind) == arrow_type(to) or (form[0] == "literal" and {kind.name, to.name} <= set(INTEGERS))
