"""What a check found, and how checks are run side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from upsert_platform.errors import UpsertPlatformError
from upsert_platform.hops.status import Look, new_places


class State(StrEnum):
    """How well a thing is."""

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
        """What it finds; an error that is made for users is a fault."""
        try:
            return list(self.look())
        except UpsertPlatformError as error:
            return [Finding(self.area, self.subject, State.FAULT, str(error), self.remedy)]


def run_checks(checks: Sequence[Check], *, timeout: float) -> list[Finding]:
    """What all checks find, in their order.

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
