"""Takes the lease of a destination, and waits a while for one that another holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

from upsert_platform.core.destination import Destination, Lease
from upsert_platform.core.errors import LeaseHeldError

LEASE = timedelta(seconds=30)
PATIENCE = LEASE * 1.5
"""How long a run waits for a destination that another holds: the lease of a killed run has ended by then."""
_WAIT_SECONDS = 2.0


@contextmanager
def leased(destination: Destination, *, owner: str, tell: Callable[[str], None]) -> Iterator[Lease]:
    """Takes the lease of a destination; waits a while for one that is held, which may be a dead run's.

    Args:
        tell: is given a line when it has to wait.

    Raises:
        LeaseHeldError: another run has it for longer than PATIENCE.
    """
    deadline = time.monotonic() + PATIENCE.total_seconds()
    told = False
    with ExitStack() as held:
        while True:
            try:
                lease = held.enter_context(destination.lease(owner=owner, duration=LEASE))
                break
            except LeaseHeldError as error:
                if time.monotonic() >= deadline:
                    raise
                if not told:
                    tell(f"waiting up to {PATIENCE.total_seconds():.0f} s: {error}")
                    told = True
                time.sleep(_WAIT_SECONDS)
        yield lease
