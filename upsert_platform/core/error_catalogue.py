"""Identifiers of the errors that the platform shows: `UP-1234` with cause, remedy and example.

A raise site writes its message alone. The rows in ``error_rows/`` hold the words by which a message is recognised, so
that an error keeps its identifier where it comes back as text: from a task of Spark, in the log of a run, in a search.
A test compares the rows with every raise site. The identifier is added where a message is shown (`shown`), never in
``str(error)``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from upsert_platform.core.errors import DeclarationError, Problem, UpsertPlatformError

ANY: Final = "…"
"""Stands for what differs between two messages of one rule."""
_ROWS: Final = Path(__file__).parent / "error_rows"
_SHOWN: Final = re.compile(r"\[UP-\d{4}\]")


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One identifier.

    Attributes:
        id: ``UP-`` and four digits; those of one group begin with the same two.
        group: title of the group.
        title: the rule in a few words.
        cause: why the error is raised.
        remedy: what to do about it.
        example: a message.
        says: words of the messages; `ANY` stands for others.
        default_of: names of error classes whose messages have this identifier where no row knows their words.
    """

    id: str
    group: str
    title: str
    cause: str
    remedy: str
    example: str
    says: tuple[str, ...] = ()
    default_of: tuple[str, ...] = ()

    def words(self) -> tuple[str, ...]:
        """Return everything that a search looks at."""
        return (self.id, self.group, self.title, self.cause, self.remedy, self.example, *self.says)

    def strength(self, text: str) -> int:
        """Return how many characters of a message this row knows, 0 if it is not one of its messages."""
        return max((_length(words) for words in self.says if _stands_in(words, text)), default=0)


def _length(words: str) -> int:
    return sum(len(part) for part in words.split(ANY))


def _stands_in(words: str, text: str) -> bool:
    at = 0
    for part in words.split(ANY):
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


@lru_cache(maxsize=1)
def rows() -> Mapping[str, ErrorRow]:
    """Return every row by its identifier, in the order of the identifiers."""
    import yaml

    found: dict[str, ErrorRow] = {}
    for file in sorted(_ROWS.glob("*.yaml")):
        document = yaml.safe_load(file.read_text("utf-8"))
        for item in document["rows"]:
            says, default_of = tuple(item.pop("says", ())), tuple(item.pop("default_of", ()))
            found[item["id"]] = ErrorRow(group=document["group"], says=says, default_of=default_of, **item)
    return found


def row_of(text: str) -> ErrorRow | None:
    """Return the row that knows most of a message's words; None if no row knows any."""
    best = max(rows().values(), key=lambda row: row.strength(text))
    return best if best.strength(text) else None


def default_row(kind: type) -> ErrorRow | None:
    """Return the row of an error class, or of the nearest of its bases that has one."""
    names = [base.__name__ for base in kind.__mro__]
    found = {name: row for row in rows().values() for name in row.default_of}
    return next((found[name] for name in names if name in found), None)


def identifier(item: UpsertPlatformError | Problem) -> str:
    """Return the identifier of an error or a problem, such as ``UP-1101``."""
    text = item.message if isinstance(item, Problem) else str(item)
    row = row_of(text) or default_row(type(item))
    assert row is not None  # the base class has a row
    return row.id


def with_identifier(text: str, name: str) -> str:
    """Return a message with an identifier at the end of its first line, unless it has one."""
    if _SHOWN.search(text):
        return text
    first, newline, rest = text.partition("\n")
    return f"{first} [{name}]{newline}{rest}"


def identified(error: BaseException) -> str:
    """Return the text of any exception as users see it; a foreign one has an identifier where a row knows it."""
    if isinstance(error, UpsertPlatformError):
        return shown(error)
    row = row_of(str(error))
    return with_identifier(str(error), row.id) if row else str(error)


def shown(item: UpsertPlatformError | Problem) -> str:
    """Return the text of an error or a problem as users see it: each message followed by ``[UP-1234]``."""
    if isinstance(item, DeclarationError):
        return "\n".join([*(shown(problem) for problem in item.problems), *([item.hint] if item.hint else [])])
    return with_identifier(str(item), identifier(item))
