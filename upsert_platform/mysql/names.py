"""Patterns of table names: regular expressions in which a point separates schema and table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class TablePattern:
    """One pattern. Each part has to match the whole of its name.

    Attributes:
        parts: one regular expression per name.
    """

    text: str
    parts: tuple[re.Pattern[str], ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        r"""Reads a pattern: ``.`` separates names, ``\.`` is any character, all else is a regular expression.

        Raises:
            ValueError: a part is not a regular expression.
        """
        parts = []
        for part in text.strip().replace(r"\.", "\0").split("."):
            try:
                parts.append(re.compile(part.strip().replace("\0", ".")))
            except re.error as error:
                shown = part.replace("\0", r"\.")
                raise ValueError(f"'{shown}' of '{text.strip()}' is not a regular expression: {error}") from None
        return cls(text.strip(), tuple(parts))

    def matches(self, *names: str) -> bool:
        """Return whether names, as many as the pattern has parts, match."""
        return len(names) == len(self.parts) and all(
            part.fullmatch(name) for part, name in zip(self.parts, names, strict=True)
        )


def split_patterns(text: str) -> Iterator[str]:
    r"""Patterns that commas separate; a comma inside of brackets, as in ``\d{1,3}``, belongs to its pattern."""
    depth, current = 0, ""
    for character in text:
        depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and depth <= 0:
            yield current
            current = ""
        else:
            current += character
    yield current


def parse_patterns(text: str, *, names: int = 2) -> tuple[TablePattern, ...]:
    """A list of patterns.

    Args:
        names: that every pattern has.

    Raises:
        ValueError: one is not a pattern of so many names.
    """
    found = tuple(TablePattern.parse(part) for part in split_patterns(text) if part.strip())
    for pattern in found:
        if len(pattern.parts) != names:
            raise ValueError(
                f"'{pattern.text}' has {len(pattern.parts)} parts; a schema and a table are joined by one point, and"
                r" any character is written \."
            )
    return found


@dataclass(frozen=True, slots=True)
class TableSelection:
    """A selection of tables: those that a pattern matches, without those that an exclusion matches."""

    included: tuple[TablePattern, ...]
    excluded: tuple[TablePattern, ...] = ()

    def has(self, schema: str, table: str) -> bool:
        """Return whether a table is read."""
        return _any(self.included, schema, table) and not _any(self.excluded, schema, table)


def _any(patterns: Iterable[TablePattern], schema: str, table: str) -> bool:
    return any(pattern.matches(schema, table) for pattern in patterns)
