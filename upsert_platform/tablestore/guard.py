"""What a writing task knows of the lease under which it writes: it stops before the lease can end.

The driver renews the lease while tasks run. A task starts with the deadline that it was sent, and reads the control
record again when that comes near; it sends nothing that could still be under way when the lease ends. Deadlines compare
the clock of the driver with that of the worker: they must differ by less than the margin.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from upsert_platform.errors import LeaseHeldError


@dataclass(frozen=True, slots=True)
class Tenure:
    """A lease as it is known at a moment.

    Attributes:
        expires: seconds since 1970, UTC.
        holder: who has it, for messages.
    """

    epoch: int
    expires: float
    holder: str


class LeaseGuard:
    """Says how long a request may take, or that there is no time left. Used by all threads of a task."""

    def __init__(
        self,
        *,
        table: str,
        epoch: int,
        expires: float,
        request_timeout: float,
        read_tenure: Callable[[], Tenure | None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._epoch = epoch
        self._expires = expires
        self._read_tenure = read_tenure
        self._now = now
        self._lock = threading.Lock()
        self._request_timeout = request_timeout
        self._margin = self._read_again = self._next_read = 0.0
        self._measure()

    def time_for_request(self) -> float:
        """Seconds that the next request may take.

        Raises:
            LeaseHeldError: the lease ends too soon, was lost or given away.
        """
        # A task may begin long after its write was planned: the end that it was told may have passed, and been renewed.
        if self._expires - self._now() < self._read_again or self._margin == 0.0:
            self._refresh()
        if self._expires - self._now() <= self._margin or self._margin == 0.0:
            ends = datetime.fromtimestamp(self._expires).astimezone().isoformat(timespec="seconds")
            raise LeaseHeldError(
                f"table '{self._table}': the lease of this write ends at {ends} and was not renewed, so the task stops"
                " before another writer can start; run the write again"
            )
        return self._margin

    def _refresh(self) -> None:
        with self._lock:
            now = self._now()
            if now < self._next_read:
                return
            self._next_read = now + min(1.0, self._margin / 2)
            tenure = self._read_tenure()
            if tenure is None or tenure.epoch != self._epoch:
                holder = f"'{tenure.holder}'" if tenure is not None and tenure.holder else "nobody"
                raise LeaseHeldError(
                    f"table '{self._table}': the lease of this write was lost, and {holder} holds it now; nothing was"
                    " recorded as applied, run the write again"
                )
            self._expires = max(self._expires, tenure.expires)
            self._measure()

    def _measure(self) -> None:
        """How long requests may take, and when to look again, by the longest time that was seen to be left."""
        remaining = max(0.0, self._expires - self._now())
        self._margin = max(self._margin, min(self._request_timeout, remaining / 4))
        self._read_again = max(self._read_again, remaining / 2)
