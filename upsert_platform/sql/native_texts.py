"""Functions of texts that Arrow evaluates as Spark does: parts between separators, groups of patterns that both read
alike, and LOWER and UPPER beside a literal.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from upsert_platform.core.plan import Native
from upsert_platform.sql.native_patterns import re2_pattern
from upsert_platform.sql.rendered import STRING

Text = Callable[[exp.Expr], "Native | None"]
"""The form of an expression, if it is a text."""
_MOST_PARTS = 1 << 31


def native_form(node: exp.Expr, text: Text) -> Native | None:
    """The form of a function of a text; None where it is not sure to give what Spark gives."""
    if isinstance(node, exp.RegexpLike):
        return _of_pattern("like", node, 0, text)
    if isinstance(node, exp.RegexpExtract):
        group = node.args.get("group")
        if group is None or group.is_string or not group.name.isdigit():
            return None
        return _of_pattern("group", node, int(group.name), text)
    if isinstance(node, exp.Anonymous) and node.name.upper() == "GET":
        return _part(node, text)
    return None


def of_case(node: exp.Expr, text: Text) -> tuple[Native, Native] | None:
    """The sides of a comparison for equality of LOWER or UPPER of a text with a literal of ASCII.

    Spark knows letters of a newer Unicode than Python does, but which texts become one of ASCII has long been the same.
    """
    for side, other in ((node.this, node.expression), (node.expression, node.this)):
        if isinstance(side, (exp.Lower, exp.Upper)) and isinstance(other, exp.Literal) and other.is_string:
            value = text(side.this)
            if value is None or not other.name.isascii():
                return None
            return ("upper" if isinstance(side, exp.Upper) else "lower", value), ("literal", other.name, STRING)
    return None


def text_of_any(node: exp.Or) -> exp.Expr | None:
    """Return the text in a condition of `functions.text` that every text meets: a group took part in the match.

    The condition compares the group with '', or the places of the pattern with and without a reference back to the
    group. It is null for a null text. Only a group that takes part in every match makes it true for all others.
    """
    left, right = node.this, node.expression
    if not (isinstance(left, exp.NEQ) and isinstance(right, exp.EQ) and isinstance(left.this, exp.RegexpExtract)):
        return None
    group, pattern = left.this.args.get("group"), left.this.expression
    places = [right.this, right.expression]
    if not (
        group is not None
        and isinstance(pattern, exp.Literal)
        and pattern.is_string
        and left.expression == exp.Literal.string("")
        and all(isinstance(place, exp.RegexpInstr) and place.this == left.this.this for place in places)
        and places[0].expression == exp.Literal.string(f"(?>{pattern.name})(?:\\{group.name})")
        and places[1].expression == pattern
    ):
        return None
    found = re2_pattern(pattern.name, int(group.name))
    return left.this.this if found is not None and found[1] else None


def _of_pattern(name: str, node: exp.Expr, group: int, text: Text) -> Native | None:
    pattern = node.expression
    value = text(node.this)
    if value is None or not isinstance(pattern, exp.Literal) or not pattern.is_string:
        return None
    found = re2_pattern(pattern.name, group)
    return (name, value, found[0]) if found is not None else None


def _part(node: exp.Anonymous, text: Text) -> Native | None:
    """GET(SPLIT(text, separator), index), of a separator that is quoted as a whole."""
    if len(node.expressions) != 2:
        return None
    parts, index = node.expressions
    if not isinstance(parts, exp.RegexpSplit) or not isinstance(parts.expression, exp.Concat):
        return None
    quoted = [
        item.name if isinstance(item, exp.Literal) and item.is_string else None for item in parts.expression.expressions
    ]
    if len(quoted) != 3 or (quoted[0], quoted[2]) != ("\\Q", "\\E") or not quoted[1] or "\\" in quoted[1]:
        return None
    if (
        not isinstance(index, exp.Literal)
        or index.is_string
        or not index.name.isdigit()
        or int(index.name) >= _MOST_PARTS
    ):
        return None
    value = text(parts.this)
    return ("part", ("split", value, quoted[1]), int(index.name)) if value is not None else None
