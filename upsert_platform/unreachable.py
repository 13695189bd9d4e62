"""Endpoints that do not answer: who asks on behalf of many tables waits once per endpoint, not once per table."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from upsert_platform.errors import EndpointError

_failed: ContextVar[dict[Hashable, str] | None] = ContextVar("endpoints that were not reached", default=None)


@contextmanager
def waiting_once() -> Iterator[None]:
    """Within the block, in this thread, an endpoint that was not reached is not tried again: its error comes at once.

    For looks at everything that end soon; a run that takes its time tries again at each step.
    """
    before = _failed.set({})
    try:
        yield
    finally:
        _failed.reset(before)


@contextmanager
def reaching(endpoint: Hashable) -> Iterator[None]:
    """Around what only fails because of an endpoint as a whole.

    Args:
        endpoint: address and login; equal ones are the same.

    Raises:
        EndpointError: within `waiting_once`, the endpoint was not reached before; with the text of that error.
    """
    failed = _failed.get()
    if failed is None:
        yield
        return
    if endpoint in failed:
        raise EndpointError(failed[endpoint])
    try:
        yield
    except EndpointError as error:
        failed[endpoint] = str(error)
        raise
