"""Calls of CURRENT_WATERMARK in a SELECT: columns stand for them until the rows below have the watermark."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from upsert_platform.sql.functions.times import WATERMARK_FUNCTION

WATERMARKS: Final = WATERMARK_FUNCTION
"""What such columns are qualified by."""


def watermark_calls(node: exp.Select) -> list[tuple[str, exp.Expr]] | exp.Expr:
    """Puts columns in the place of the calls of a SELECT, but not of those in subqueries.

    Returns:
        The column's name and the argument of each different call, or the call itself if it has not one; or a call that
        stands where none is computed.
    """
    found: dict[exp.Expr, str] = {}
    for call in list(node.walk(prune=lambda item: item is not node and isinstance(item, exp.Query))):
        if not isinstance(call, exp.Anonymous) or str(call.this).upper() != WATERMARK_FUNCTION:
            continue
        if call.find_ancestor(exp.Join, exp.From) is not None:
            return call
        argument = call.expressions[0] if len(call.expressions) == 1 else call
        shown = found.setdefault(argument, argument.sql())
        column = exp.Column(
            this=exp.to_identifier(shown, quoted=True), table=exp.to_identifier(WATERMARKS, quoted=True)
        )
        column.meta.update(call.meta)
        call.replace(exp.Paren(this=column))
    return [(shown, argument) for argument, shown in found.items()]
