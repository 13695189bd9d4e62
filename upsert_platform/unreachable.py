"""Endpoints that do not answer: who asks on behalf of many tables waits once per endpoint, not once per table."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from upsert_platform.errors import EndpointError

_failed: ContextVar[dict[bytes, str] | None] = ContextVar("endpoints that were not reached", default=None)


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
def reaching(endpoint: object) -> Iterator[None]:
    """Around what only fails because of an endpoint as a whole.

    Args:
        endpoint: address and login; what is equal when pickled is the same one.

    Raises:
        EndpointError: within `waiting_once`, the endpoint was not reached before; with the text of that error.
    """
    failed = _failed.get()
    if failed is None:
        yield
        return
    name = pickle.dumps(endpoint)
    if name in failed:
        raise EndpointError(failed[name])
    try:
        yield
    except EndpointError as error:
        failed[name] = str(error)
        raise
