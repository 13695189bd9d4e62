"""The errors that a user of the platform can meet.

Every message says what was read, where, why it was refused and what to do next. Messages never contain the value of a
secret; classes that wrap a foreign error keep its class and a text from which secrets were removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from upsert_platform.core.redaction import redact

_WORD: Final = 12
"""Letters that a plain word has at most."""


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """The location of a declaration: a file and a line counted from 1 (0 for the whole file)."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in what a user declared.

    Attributes:
        message: what is wrong, by which rule, and the remedy; names the option, column or table.
        location: where it is declared, when known.
        severity: ``error`` stops the platform, ``warning`` is shown and does not.
        variable: name of the variable that nobody sets, where that is what is wrong.
    """

    message: str
    location: SourceLocation | None = None
    severity: str = "error"
    variable: str = ""

    def __str__(self) -> str:
        place = f"{self.location}: " if self.location else ""
        return f"{place}{self.severity}: {self.message}"


def hide(text: str, secrets: Iterable[str], *, ids: Iterable[str] = ()) -> str:
    """A foreign text without secrets.

    Args:
        secrets: taken out wherever they stand.
        ids: access ids, taken out too; but not one that is a plain word, such as that of a local server, which opens
            nothing and would take the word out of every text.
    """
    for secret in (*secrets, *(name for name in ids if not name.isalpha() or len(name) > _WORD)):
        if secret:
            text = text.replace(secret, "***")
    return text


class UpsertPlatformError(Exception):
    """Base of all errors that the platform raises on purpose. Their texts are redacted when they are made."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(redact(part) if isinstance(part, str) else part for part in args))


class DeclarationError(UpsertPlatformError):
    """The declared project cannot be used; carries every problem found, not only the first.

    Args:
        hint: what helps against several of them at once; a line of its own after the problems.
    """

    def __init__(self, problems: Iterable[Problem], *, hint: str = "") -> None:
        self.problems = tuple(problems)
        self.hint = hint
        super().__init__("\n".join([*(str(problem) for problem in self.problems), *([hint] if hint else [])]))


class EndpointError(UpsertPlatformError):
    """An endpoint could not be reached, or refused the credentials or the request."""


class ReplicationError(UpsertPlatformError):
    """The log of a source database holds what cannot be followed, or no longer holds what is needed."""


class StaleDeclarationError(ReplicationError):
    """A table was changed since it was declared; declarations that are read again may carry the change."""


class TopicError(UpsertPlatformError):
    """A topic is unknown, was recreated or truncated, or its records are no longer there."""


class DestinationError(UpsertPlatformError):
    """A destination table does not fit its declaration, or a write to it failed for good."""


class LeaseHeldError(DestinationError):
    """Another writer holds the destination; the message names the holder and when its lease ends.

    Attributes:
        ends: seconds since 1970 at which the lease ends unless its holder renews it; None where that is not known.
    """

    def __init__(self, message: str, *, ends: float | None = None) -> None:
        super().__init__(message)
        self.ends = ends


class ChangelogError(UpsertPlatformError):
    """The changelog in the lake is not in the state that was expected (a lost commit, a foreign writer)."""


class RecordError(UpsertPlatformError):
    """A record could not be decoded or written, and the policy is ``on-error = fail``."""
