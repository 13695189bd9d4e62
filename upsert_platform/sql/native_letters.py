"""Functions that change letters and order of texts, or fill them up: UPPER, LOWER, INITCAP, REVERSE, LPAD, RPAD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Native
from upsert_platform.sql.functions.text import BEYOND, INITCAP
from upsert_platform.sql.native_types import Form, Reading, has_only, parsed, text_literal, whole_literal
from upsert_platform.sql.rendered import STRING

_LONGEST: Final = 1_000
"""A text to which others are filled up: all its beginnings are made."""
_CASES: Final = ("upper", "lower")
_PLACE: Final = "_text"


def _case(node: exp.Expr, reading: Reading) -> Native | None:
    """UPPER and LOWER; UPPER of the text of a truth value, which `casts.to_text` writes, has two values."""
    inner = node.this.this if isinstance(node.this, exp.Cast) and node.this.to.is_type("text") else None
    truth = reading.truth(inner) if isinstance(node, exp.Upper) else None
    if truth is not None:
        found = [("literal", text, STRING) for text in ("TRUE", "FALSE", None)]
        return ("case", truth, found[0], ("not", truth), found[1], found[2])
    text = reading.text(node.this)
    if text is None or not has_only(node, "this"):
        return None
    if text[0] in _CASES:
        text = text[1]  # Spark leaves the inner one out, though LOWER(UPPER('ı')) is not LOWER('ı')
    # What it leaves out further inside depends on what else it simplifies.
    return None if _changes_case(text) else (node.key, text)


def _changes_case(native: Native) -> bool:
    """Return whether UPPER or LOWER is somewhere in a form."""
    return native[0] in _CASES or any(_changes_case(part) for part in native[1:] if isinstance(part, tuple) and part)


def _words(node: exp.Expr, reading: Reading) -> Native | None:
    """INITCAP, as `functions.text` writes it."""
    parts = node.this.this if node.this.key == exp.Transform.key else None
    if not isinstance(parts, exp.RegexpExtractAll):
        return None
    whole, place = node.copy(), exp.column(_PLACE)
    whole.this.this.set("this", place)
    written = parsed(INITCAP.format(_PLACE))
    text = reading.text(parts.this)
    return ("words", text) if text is not None and whole == written else None


def _reverse(node: exp.Expr, reading: Reading) -> Native | None:
    text = reading.text(node.this)
    return ("reverse", text) if text is not None else None


def _pad(node: exp.Expr, reading: Reading) -> Native | None:
    """LPAD and RPAD with literals, as `functions.text` writes them: less the characters that count twice."""
    text, pad, size = reading.text(node.this), text_literal(node.args.get("fill_pattern")), node.expression
    length = whole_literal(size.this) if isinstance(size, exp.Sub) else None
    if text is None or not pad or length is None or not 0 <= length <= _LONGEST:
        return None
    counted = parsed(f"CHAR_LENGTH(REGEXP_REPLACE(SUBSTRING({_PLACE}, 1, {length}), {BEYOND}, ''))")
    counted.find(exp.Substring).set("this", node.this.copy())  # type: ignore[union-attr]
    return (
        ("pad", text, "left" if node.args.get("is_left") else "right", length, pad)
        if size.expression == counted
        else None
    )


FORMS: Final[Mapping[type[exp.Expr], Form]] = {
    exp.Upper: _case,
    exp.Lower: _case,
    exp.ArrayToString: _words,
    exp.Reverse: _reverse,
    exp.Pad: _pad,
}
