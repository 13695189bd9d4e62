"""Bytes of a text message to characters, as Jackson's JSON and CSV readers find the encoding: from the first four."""

from __future__ import annotations

from typing import Final

_MARKS: Final = (
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xff\xfe\0\0", "utf-32-le"),
    (b"\xfe\xff", "utf-16-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xef\xbb\xbf", "utf-8"),
)


def find_encoding(message: bytes) -> tuple[str, int]:
    """Encoding of a message, and how many bytes its byte order mark takes."""
    head = message[:4]
    if len(head) == 4:
        for mark, encoding in _MARKS:
            if head.startswith(mark):
                return encoding, len(mark)
        if head[:3] == b"\0\0\0" or head[1:] == b"\0\0\0":
            return "utf-32-be" if head[0] == 0 else "utf-32-le", 0
    if len(head) >= 2 and 0 in head[:2]:
        return "utf-16-be" if head[0] == 0 else "utf-16-le", 0
    return "utf-8", 0


def decode_wide(content: bytes, encoding: str) -> str:
    """Decodes UTF-16, where broken units become U+FFFD, or UTF-32.

    Raises:
        UnicodeDecodeError: broken UTF-32.
    """
    return content.decode(encoding, "replace" if encoding.startswith("utf-16") else "strict")
