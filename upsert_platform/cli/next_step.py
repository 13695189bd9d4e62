"""The command to type after something went wrong, which is the last thing that a failed command prints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from upsert_platform.core.errors import (
    ChangelogError,
    DeclarationError,
    DestinationError,
    EndpointError,
    TopicError,
    UpsertPlatformError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMED: Final = re.compile(r"'(upsert-platform [^']+)'")
"""A command that a message names."""
_HERE: Final = re.compile(r"\b(?:127\.0\.0\.1|localhost)\b")
_COMMANDS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (DeclarationError, "upsert-platform validate"),
    (TopicError, "upsert-platform discover"),
    (EndpointError, "upsert-platform doctor"),
    (DestinationError, "upsert-platform status"),
    (ChangelogError, "upsert-platform status"),
)
"""Errors, the narrower first, to the command that shows more."""


def first_named(messages: Iterable[str]) -> str:
    """Return the first command that a message names; empty if none does."""
    return next((found[1] for text in messages if (found := NAMED.search(text)) is not None), "")


def next_step(error: Exception) -> str:
    """Return the command to type after an error; empty where the message says all that there is to do."""
    text = str(error)
    named = first_named([text])
    if named:
        return named
    if isinstance(error, EndpointError) and "not reachable" in text and _HERE.search(text):
        return "upsert-platform local up"
    if not isinstance(error, UpsertPlatformError):
        return ""
    return next((command for kind, command in _COMMANDS if isinstance(error, kind)), "")
