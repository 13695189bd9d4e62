"""Findings of diagnostics, and their parallel execution."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from upsert_platform.core.error_catalogue import shown
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.sync.status import Look, new_places


class State(StrEnum):
    """The result of a diagnostic."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        area: ``java``, ``kafka``, ``lake``, ...
        subject: what of it: an endpoint, a topic, a folder.
        told: what was found.
        remedy: what to do; empty where nothing is wrong.
    """

    area: str
    subject: str
    state: State
    told: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """Looks at something; all checks run at once.

    Attributes:
        remedy: what to do where `look` raises an error, or does not end in time.
    """

    area: str
    subject: str
    look: Callable[[], Iterator[Finding]]
    remedy: str = ""

    def found(self) -> list[Finding]:
        """Return the findings; a user-facing error becomes a fault."""
        try:
            return list(self.look())
        except UpsertPlatformError as error:
            return [Finding(self.area, self.subject, State.FAULT, shown(error), self.remedy)]


def run_checks(checks: Sequence[Check], *, timeout: float) -> list[Finding]:
    """Return the findings of all diagnostics in order.

    Args:
        timeout: seconds after which what has not ended is a fault.
    """
    deadline = time.monotonic() + timeout
    places = new_places()
    looks = [Look(check.found, places) for check in checks]
    found: list[Finding] = []
    for check, look in zip(checks, looks, strict=True):
        answer = look.result(deadline)
        late = Finding(check.area, check.subject, State.FAULT, f"no answer within {timeout:g} s", check.remedy)
        found += [late] if answer is None else answer
    return found
