"""JSON strings as Jackson writes them."""

from __future__ import annotations

import re
from typing import Final

_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_ESCAPED_BYTES = re.compile('["\\\\\\x00-\\x1f\U00010000-\U0010ffff]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def quote(text: str) -> str:
    """A JSON string as written to text: characters beyond the Basic Multilingual Plane stay as they are."""
    return f'"{_ESCAPED.sub(_escape, text)}"'


def quote_for_bytes(text: str) -> str:
    """A JSON string as written to bytes: characters beyond the Basic Multilingual Plane become two escapes."""
    return f'"{_ESCAPED_BYTES.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    short = _SHORT.get(character)
    if short is not None:
        return short
    point = ord(character)
    if point < 0x10000:
        return f"\\u{point:04X}"
    point -= 0x10000
    return f"\\u{0xD800 | point >> 10:04X}\\u{0xDC00 | point & 0x3FF:04X}"
