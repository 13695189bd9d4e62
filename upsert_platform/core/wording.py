"""Numbers and plurals in messages."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return ``1 record``, ``2 records``, ``2 batches``."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}{'es' if noun.endswith('ch') else 's'}"
