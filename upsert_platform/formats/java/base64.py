"""Base64 as Jackson reads it: in units of four characters, blanks between units, padding required."""

from __future__ import annotations

import binascii
import re
from typing import Final

_PLAIN = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_UNIT = re.compile(r"[\x00-\x20]*(?:([A-Za-z0-9+/]{4})|([A-Za-z0-9+/]{3})=|([A-Za-z0-9+/]{2})==)")
_BLANK_END: Final = re.compile(r"[\x00-\x20]*")


def decode_base64(text: str) -> bytes:
    """Decodes base64 text; units after padding are joined, left-over bits are not checked.

    Raises:
        ValueError: a character that does not belong, or missing padding.
    """
    if _PLAIN.fullmatch(text):
        return binascii.a2b_base64(text)
    result = bytearray()
    at = 0
    while not _BLANK_END.fullmatch(text, at):
        match = _UNIT.match(text, at)
        if match is None:
            raise ValueError("not base64 with padding")
        unit = match[1] or match[2] or match[3]
        result += binascii.a2b_base64(unit.ljust(4, "="))
        at = match.end()
    return bytes(result)
