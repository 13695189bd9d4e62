"""Endpoints that do not answer: who asks on behalf of many tables waits once per endpoint, not once per table."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from upsert_platform.core.errors import EndpointError

AWAY_SECONDS: Final = 30.0
"""How long an endpoint that was not reached counts as away for the other tables of a run, or of a look."""


@dataclass
class _Failures:
    """Errors of endpoints that were not reached.

    Attributes:
        seconds: how long each counts.
        known: endpoint to the text of its error and to the moment after which it is tried again.
    """

    seconds: float
    known: dict[Hashable, tuple[str, float]] = field(default_factory=dict)

    def text(self, endpoint: Hashable) -> str | None:
        text, until = self.known.get(endpoint, (None, 0.0))
        return text if time.monotonic() < until else None


_failures: ContextVar[_Failures | None] = ContextVar("endpoints that were not reached", default=None)


@contextmanager
def waiting_once() -> Iterator[None]:
    """Within the block, in this thread, an endpoint that was not reached is not tried again: its error comes at once.

    For looks at everything that end soon.
    """
    before = _failures.set(_Failures(math.inf))
    try:
        yield
    finally:
        _failures.reset(before)


def wait_once_for(seconds: float | None) -> None:
    """From here on in this thread, an endpoint that was not reached is tried again after so many seconds.

    For a run, whose steps ask the same endpoints in turn.

    Args:
        seconds: until then its error comes at once; None if each caller tries from now on.
    """
    _failures.set(None if seconds is None else _Failures(seconds))


@contextmanager
def reaching(endpoint: Hashable) -> Iterator[None]:
    """Around what only fails because of an endpoint as a whole.

    Args:
        endpoint: address and login; equal ones are the same.

    Raises:
        EndpointError: within `waiting_once` or `wait_once_for`, the endpoint was not reached before; with the text of
            that error.
    """
    failures = _failures.get()
    if failures is None:
        yield
        return
    text = failures.text(endpoint)
    if text is not None:
        raise EndpointError(text)
    try:
        yield
    except EndpointError as error:
        text = failures.text(endpoint)
        if text is not None:  # of a thread that waited for it, too: all say the same
            raise EndpointError(text) from error
        failures.known[endpoint] = (str(error), time.monotonic() + failures.seconds)
        raise
