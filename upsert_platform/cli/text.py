"""How commands put numbers into words, and texts of others on a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text


def counted(number: int, noun: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def printable(text: str) -> Text:
    """Text of others as a terminal may have it: no markup, and control characters as JSON escapes them."""
    from rich.text import Text

    return Text("".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text), overflow="fold")
