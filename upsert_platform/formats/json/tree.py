"""JSON text to a tree that keeps what Flink's parser sees: source text of numbers, repeated names, their order.

The grammar is Jackson's as Flink configures it: raw control characters may stand in strings, NaN and comments may not,
whatever follows the first value is ignored, and UTF-16, UTF-32 and a byte order mark are recognised.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from upsert_platform.formats.java.jackson import decode_wide, find_encoding


class IntText(str):
    """Source text of a number without fraction and exponent."""

    __slots__ = ()


class FloatText(str):
    """Source text of a number with a fraction or an exponent."""

    __slots__ = ()


Tree = Any
"""An object is a tuple of (name, value) pairs, an array a list; else str, IntText, FloatText, bool or None."""


class JsonSyntaxError(ValueError):
    """The message is not JSON."""


def _refuse_constant(name: str) -> NoReturn:
    raise JsonSyntaxError(f"not JSON: {name} stands without quotes")


def _scanner(*, strict: bool) -> Any:
    return json.JSONDecoder(
        object_pairs_hook=tuple,
        parse_float=FloatText,
        parse_int=IntText,
        parse_constant=_refuse_constant,
        strict=strict,
    ).scan_once  # type: ignore[attr-defined]


_lenient: Final = _scanner(strict=False)
_strict: Final = _scanner(strict=True)


def parse_tree(message: bytes, *, strict: bool = False) -> Tree:
    """Reads the first JSON value of a message.

    Args:
        strict: refuse raw control characters in strings.

    Raises:
        JsonSyntaxError: there is none, or it is broken.
    """
    text = read_text(message)
    start = len(text) - len(text.lstrip(" \t\r\n"))
    try:
        return (_strict if strict else _lenient)(text, start)[0]
    except StopIteration as stop:
        _refuse_broken(message, text)
        if start == len(text):
            raise JsonSyntaxError("not JSON: the message is empty") from None
        raise JsonSyntaxError(f"not JSON: a value expected at character {stop.value}") from None
    except json.JSONDecodeError as error:
        if error.msg.startswith("Unterminated") or error.pos >= len(text):
            _refuse_broken(message, text)
        raise JsonSyntaxError(f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos}") from None
    except RecursionError:
        raise JsonSyntaxError("not JSON that can be read: nested too deep") from None


def _refuse_broken(message: bytes, text: str) -> None:
    """Says that a text ends early because its bytes are broken, if that is so."""
    try:
        message.decode()
    except UnicodeDecodeError as error:
        encoding, _ = find_encoding(message)
        if encoding == "utf-8" and len(text.encode("utf-8", "surrogatepass")) <= error.start:
            raise JsonSyntaxError(f"not JSON: broken UTF-8 at byte {error.start}") from None


def read_text(message: bytes) -> str:
    """Decodes a message as Jackson does: the encoding is told from the first four bytes."""
    if message[:1] in (b"{", b"[") and message[1:2] != b"\0":
        return _utf8(message)
    encoding, mark = find_encoding(message)
    if encoding == "utf-8":
        return _utf8(message[mark:])
    try:
        return decode_wide(message[mark:], encoding)
    except UnicodeDecodeError:
        raise JsonSyntaxError("not JSON: broken UTF-32") from None


def _utf8(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return _lenient_utf8(content)


def _lenient_utf8(content: bytes) -> str:
    # Jackson checks lead and continuation bytes only: overlong forms and surrogates pass. The text ends before the
    # first byte that it would refuse, so a parser that gets there finds the message cut off.
    units: list[str] = []
    at = 0
    while at < len(content):
        lead = content[at]
        if lead < 0x80:
            units.append(chr(lead))
            at += 1
            continue
        more = 1 if lead & 0xE0 == 0xC0 else 2 if lead & 0xF0 == 0xE0 else 3 if lead & 0xF8 == 0xF0 else 0
        tail = content[at + 1 : at + 1 + more]
        if more == 0 or len(tail) < more or any(byte & 0xC0 != 0x80 for byte in tail):
            break
        point = lead & (0x3F >> more)
        for byte in tail:
            point = point << 6 | byte & 0x3F
        if point > 0x10FFFF or (more == 3 and point < 0x10000):
            break
        units.append(chr(point))
        at += 1 + more
    return "".join(units).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
