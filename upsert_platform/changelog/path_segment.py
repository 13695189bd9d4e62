"""Names of tables as folders and files of the lake: one path segment each, whatever characters a name has.

Names come from declarations and from servers of databases. No rule of the lake may depend on their characters.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

MOST_BYTES: Final = 249
"""File systems take 255 bytes; the longest name made of a segment is ``.SEGMENT.lock``."""
_ENCODED: Final = "~"
"""Begins every segment that is not the name itself, and every byte that is written as two hexadecimal digits."""
_HASHED: Final = "~~~"
"""Begins the segment of a name that is too long; in other encoded segments two digits follow each tilde."""
_READABLE: Final = 64
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f/\\\[\]^|#?\ud800-\udfff]|%(?=[0-9a-fA-F]{2})")
"""What splits a path, ends the path of a URI, or is refused by delta-rs; and a ``%`` that delta-rs decodes."""


def path_segment(name: str) -> str:
    """Return the path segment of a name: the name itself, unless the name is not safe as a folder.

    Different names have different segments. No segment is ``.`` or ``..``, holds a separator, or is longer than
    `MOST_BYTES` bytes. On a file system that does not distinguish case, `same_folder` finds what meets there.
    """
    if _is_safe(name):
        return name
    encoded = _ENCODED + "".join(map(_encoded, name)) if name.strip(". ") else _ENCODED + _hex(name)
    if len(encoded.encode()) <= MOST_BYTES:
        return encoded
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{_HASHED}{digest}-{''.join(char for char in name if char.isascii() and char.isalnum())[:_READABLE]}"


def same_folder(names: Iterable[str]) -> list[tuple[str, str, bool]]:
    """Return pairs of names that are one folder on a file system which distinguishes neither case nor normal forms.

    Each with whether the two also look the same: they differ in their Unicode normal form alone.
    """
    first: dict[str, str] = {}
    found = []
    for name in names:
        other = first.setdefault(_folded(name), name)
        if other != name:
            found.append((other, name, _composed(other) == _composed(name)))
    return found


def other_case(name: str, there: Iterable[str]) -> str | None:
    """Return the entry of a folder that a file system without case takes for a name, though it is spelt otherwise.

    None where the name itself is there, or nothing is that could be taken for it.
    """
    entries = list(there)
    if name in entries:
        return None
    found = {_composed(item) for item in entries}
    if _composed(name) in found:
        return None
    return next((item for item in sorted(found) if _folded(item) == _folded(name)), None)


def _is_safe(name: str) -> bool:
    return (
        name.strip() == name != ""
        and name not in (".", "..", "_delta_log")
        and not name.startswith(_ENCODED)
        and not (name.startswith(".") and name.lower().endswith(".lock"))
        and _UNSAFE.search(name) is None
        and len(name.encode()) <= MOST_BYTES
    )


def _encoded(char: str) -> str:
    return _hex(char) if char in "~%" or char.isspace() or _UNSAFE.match(char) else char


def _hex(text: str) -> str:
    return "".join(f"~{byte:02x}" for byte in text.encode("utf-8", "surrogatepass"))


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", _composed(name).casefold())
