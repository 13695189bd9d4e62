"""Functions of texts that Arrow evaluates as Spark does: parts between separators, groups of patterns that both read
alike, and what joins, cuts, measures and searches texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Native
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.native_patterns import re2_pattern
from upsert_platform.sql.native_types import Cast, Form, Reading, has_only, text_literal, whole_literal
from upsert_platform.sql.rendered import INTEGERS, STRING, STRINGS

_MOST_PARTS: Final = 1 << 31
_PLAIN_SCALE: Final = 6
"""Up to it a decimal is written without an exponent."""


def _regexp_like(node: exp.Expr, reading: Reading) -> Native | None:
    return _of_pattern("like", node, 0, reading)


def _regexp_extract(node: exp.Expr, reading: Reading) -> Native | None:
    group = node.args.get("group")
    if group is None or group.is_string or not group.name.isdigit():
        return None
    return _of_pattern("group", node, int(group.name), reading)


def _concat(node: exp.Expr, reading: Reading) -> Native | None:
    texts = [reading.text(item) for item in node.expressions]
    return ("join", *texts) if texts and all(text is not None for text in texts) else None


def _concat_ws(node: exp.Expr, reading: Reading) -> Native | None:
    """Texts that are not null, with the first one between them."""
    texts = [reading.text(item) for item in node.expressions]
    return ("join present", *texts) if len(texts) > 1 and all(text is not None for text in texts) else None


def _substring(node: exp.Expr, reading: Reading) -> Native | None:
    """Characters from a position, that counts from 1, or from the end where it is negative."""
    start, length = whole_literal(node.args.get("start")), whole_literal(node.args.get("length"))
    text = reading.text(node.this)
    if text is None or start is None or (length is None and node.args.get("length") is not None):
        return None
    if any(abs(number or 0) >= _MOST_PARTS for number in (start, length)):
        return None
    first = start - 1 if start > 0 else start
    if length is None:
        return ("slice", text, first, None)
    last = first + max(length, 0)
    if first == last:
        return ("slice", text, 0, 0)
    return ("slice", text, first, None if first < 0 <= last else last)


def _end(node: exp.Expr, reading: Reading) -> Native | None:
    """LEFT and RIGHT."""
    text, length = reading.text(node.this), whole_literal(node.expression)
    if text is None or length is None or abs(length) >= _MOST_PARTS:
        return None
    if isinstance(node, exp.Left) or length <= 0:
        return ("slice", text, 0, max(length, 0))
    return ("slice", text, -length, None)


def _trim(node: exp.Expr, reading: Reading) -> Native | None:
    """Blanks, or the characters of a literal, at one end or both."""
    given = node.args.get("expression")
    text, characters = reading.text(node.this), " " if given is None else text_literal(given)
    side = str(node.args.get("position") or "BOTH").upper()
    known = has_only(node, "this", "position", "expression") and side in ("BOTH", "LEADING", "TRAILING")
    return ("trim", text, side, characters) if text is not None and characters and known else None


def _replace(node: exp.Expr, reading: Reading) -> Native | None:
    text = reading.text(node.this)
    old, new = (text_literal(node.args.get(name)) for name in ("expression", "replacement"))
    return ("replace", text, old, new) if text is not None and old and new is not None else None


def _length(node: exp.Expr, reading: Reading) -> Native | None:
    text = reading.text(node.this)
    return ("length", text) if text is not None and has_only(node, "this") else None


def _position(node: exp.Expr, reading: Reading) -> Native | None:
    text, wanted = reading.text(node.this), text_literal(node.args.get("substr"))
    known = text is not None and wanted is not None and has_only(node, "this", "substr")
    return ("position", text, wanted) if known else None


def _like(node: exp.Expr, reading: Reading) -> Native | None:
    """LIKE with a literal: a backslash, or the character of ESCAPE, is before a wildcard that stands for itself."""
    escape = "\\"
    if isinstance(node, exp.Escape):
        escape = text_literal(node.expression) or ""
        node = node.this
    pattern = text_literal(node.expression) if isinstance(node, exp.Like) else None
    text = reading.text(node.this) if pattern is not None else None
    parts = _parts_of(pattern, escape) if pattern is not None and len(escape) == 1 else None
    if text is None or parts is None or not has_only(node, "this", "expression"):
        return None
    match parts:
        case [str() as whole]:
            return ("=", text, ("literal", whole, STRING))
        case [str() as start, 0]:
            return ("starts", text, start)
        case [0, str() as ending]:
            return ("ends", text, ending)
        case [0, str() as inner, 0]:
            return ("contains", text, inner)
    written = "".join((".*", ".")[part] if isinstance(part, int) else _quoted(part) for part in parts)
    return ("like", text, rf"\A(?s:{written})\z")


def _parts_of(pattern: str, escape: str) -> list[str | int] | None:
    """Texts that stand for themselves, 0 for any characters, and 1 for one; None where an escape is before no other."""
    found: list[str | int] = []
    signs = iter(pattern)
    for sign in signs:
        if sign in "%_" and sign != escape:
            if sign == "_" or not found or found[-1] != 0:
                found.append("%_".index(sign))
            continue
        plain = next(signs, "") if sign == escape else sign
        if sign == escape and plain not in ("%", "_", escape):
            return None
        if found and isinstance(last := found[-1], str):
            found[-1] = last + plain
        else:
            found.append(plain)
    return found or [""]


def _quoted(text: str) -> str:
    return "".join(sign if re.fullmatch("[0-9A-Za-z ]", sign) else rf"\x{{{ord(sign):x}}}" for sign in text)


def _starts(node: exp.Expr, reading: Reading) -> Native | None:
    """STARTSWITH and ENDSWITH."""
    text, wanted = reading.text(node.this), text_literal(node.expression)
    name = "starts" if isinstance(node, exp.StartsWith) else "ends"
    return (name, text, wanted) if text is not None and wanted is not None else None


def _to_text(node: exp.Expr, _to: LogicalType, reading: Reading) -> Native | None:
    """CAST to STRING of whole numbers, truth values, and decimals whose scale writes no exponent."""
    found = reading.typed(node)
    if found is None:
        return None
    inner, kind = found
    if kind.name in STRINGS:
        return inner
    plain = kind.name is TypeName.DECIMAL and (kind.scale or 0) <= _PLAIN_SCALE
    return ("text", inner) if plain or kind.name in (*INTEGERS, TypeName.BOOLEAN) else None


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


def _of_pattern(name: str, node: exp.Expr, group: int, reading: Reading) -> Native | None:
    pattern = node.expression
    value = reading.text(node.this)
    if value is None or not isinstance(pattern, exp.Literal) or not pattern.is_string:
        return None
    found = re2_pattern(pattern.name, group)
    return (name, value, found[0]) if found is not None else None


def _part(node: exp.Expr, reading: Reading) -> Native | None:
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
    value = reading.text(parts.this)
    return ("part", ("split", value, quoted[1]), int(index.name)) if value is not None else None


CASTS: Final[Mapping[TypeName, Cast]] = {
    TypeName.STRING: _to_text,
}
FORMS: Final[Mapping[type[exp.Expr], Form]] = {
    exp.RegexpLike: _regexp_like,
    exp.RegexpExtract: _regexp_extract,
    exp.Concat: _concat,
    exp.ConcatWs: _concat_ws,
    exp.Substring: _substring,
    exp.Left: _end,
    exp.Right: _end,
    exp.Trim: _trim,
    exp.Replace: _replace,
    exp.Length: _length,
    exp.StrPosition: _position,
    exp.Like: _like,
    exp.Escape: _like,
    exp.StartsWith: _starts,
    exp.EndsWith: _starts,
}
FUNCTIONS: Final[Mapping[str, Form]] = {"GET": _part}
