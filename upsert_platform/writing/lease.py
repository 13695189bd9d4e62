"""Leases of destinations: renewed by the driver, watched by the tasks that write under them. One rule for every system.

The end of a lease stands in the control record of its destination, as seconds since 1970. It is compared with a wall
clock once, by whoever reads or writes it; from then on the process counts on its monotonic clock, so a clock that is
set neither prolongs a lease nor ends it. The holder and its tasks stop `MARGIN` of the duration before the stored end,
and others wait for all of it: clocks of machines may differ by what a request leaves of the margin (3 s of a lease of
30 s). What no clock can hold up is a process frozen between its last look and its request; what systems offer against
that (transactions, conditional writes, recorded commits) stays with them.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from upsert_platform.errors import LeaseHeldError, UpsertPlatformError

_LOG: Final = logging.getLogger(__name__)
MARGIN: Final = 1 / 3
"""Part of the duration, before the end, in which nothing is sent any more."""
_RENEWALS: Final = 4
"""Per duration: one that fails leaves time for another before the margin."""
_LOOK_AGAIN: Final = 1 / 2
"""Part of the duration that is left when a task reads the record again: the holder has renewed it by then."""
_OF_MARGIN: Final = 2 / 3
"""How much of the margin a request may take."""


@dataclass(frozen=True, slots=True)
class Tenure:
    """A lease as it stands in a control record.

    Attributes:
        identity: of the holder, never given twice: a token, or an epoch.
        expires: seconds since 1970.
        holder: for messages.
    """

    identity: str
    expires: float
    holder: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a task is told of the lease under which it writes. Picklable.

    Attributes:
        what: the destination, for messages: ``topic 'users'``.
        expires: as known when the task was planned.
        seconds: duration of the lease.
    """

    what: str
    identity: str
    expires: float
    seconds: float


class RenewedLease(ABC):
    """A lease that is held, renewed by a thread until it is given back; see `upsert_platform.destination.Lease`.

    Args:
        what: the destination, for messages: ``topic 'users'``.
    """

    def __init__(self, what: str, *, duration: timedelta) -> None:
        self.what = what
        self.seconds = duration.total_seconds()
        self._until = 0.0  # of the monotonic clock
        self._lost: str | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease of {what}", daemon=True)

    @property
    @abstractmethod
    def epoch(self) -> int:
        """Grows by one with every new holder."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """What tasks look for in the control record."""

    @abstractmethod
    def _renew(self) -> None:
        """Stores `expiry()` in the control record.

        Raises:
            LeaseHeldError: somebody else has the lease; it is lost.
            UpsertPlatformError: it could not be stored now.
        """

    @abstractmethod
    def _release(self) -> None:
        """Ends the lease in the control record."""

    @property
    def deadline(self) -> datetime:
        """UTC; the holder writes nothing after it, unless the lease is renewed before."""
        return datetime.now(UTC) + timedelta(seconds=self._until - time.monotonic())

    @property
    def terms(self) -> Terms:
        """What tasks are told."""
        left = self._until - time.monotonic() + self.seconds * MARGIN
        return Terms(self.what, self.identity, time.time() + left, self.seconds)

    def expiry(self) -> float:
        """What to store as the end of the lease now, seconds since 1970."""
        return time.time() + self.seconds

    def extended(self, asked_at: float) -> None:
        """Notes that the control record holds a new end.

        Args:
            asked_at: monotonic time before that end was taken from `expiry`.
        """
        self._until = max(self._until, asked_at + self.seconds * (1 - MARGIN))

    def check(self) -> None:
        """Raises LeaseHeldError when the lease was lost or has ended."""
        if self._lost is not None:
            raise LeaseHeldError(self._lost)
        if time.monotonic() >= self._until:
            raise LeaseHeldError(
                f"{self.what}: the lease ended at {shown(self.deadline.timestamp())} because it could not be renewed;"
                " run the write again"
            )

    def keep(self) -> None:
        """Renews the lease from now on."""
        self._thread.start()

    def give_back(self) -> None:
        """Ends the renewal and frees the destination, unless somebody else has it by now. Idempotent."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._lost is None:
            self._lost = f"{self.what}: the lease was given back"
            try:
                self._release()
            except UpsertPlatformError:
                # Freeing early is a courtesy: the lease ends by itself, and the write's own error matters more.
                return

    def lose(self, reason: str) -> LeaseHeldError:
        """Notes that somebody else has the lease; gives the error to raise."""
        self._lost = reason
        return LeaseHeldError(reason)

    def _keep(self) -> None:
        while not self._ended.wait(self.seconds / _RENEWALS):
            asked_at = time.monotonic()
            try:
                self._renew()
            except LeaseHeldError as error:
                self._lost = str(error)
                return
            except UpsertPlatformError as error:
                # Tried again at the next turn; `check` and the tasks' guards act on the deadline.
                _LOG.warning("%s: the lease could not be renewed, trying again: %s", self.what, error)
                continue
            self.extended(asked_at)


class LeaseGuard:
    """Watches, in a writing task, that its lease is held; used by all threads of the task.

    Reads the control record when half of the lease is over as far as the task knows: once in some renewals, whatever
    the number of rows.

    Args:
        read: the lease in the control record; None when there is no record.
        longest: seconds that a request may take at most.
    """

    def __init__(self, terms: Terms, read: Callable[[], Tenure | None], *, longest: float = float("inf")) -> None:
        self._terms = terms
        self._read = read
        self._margin = terms.seconds * MARGIN
        self._request = min(longest, self._margin * _OF_MARGIN)
        self._until = time.monotonic() + terms.expires - time.time()
        self._next_look = 0.0
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raises LeaseHeldError when the lease has another holder, or ends too soon to send anything."""
        left = self._until - time.monotonic()
        if left < self._terms.seconds * _LOOK_AGAIN:
            self._look()
            left = self._until - time.monotonic()
        if left <= self._margin:
            raise LeaseHeldError(
                f"{self._terms.what}: the lease of this write ends at {shown(time.time() + left)} and was not renewed,"
                " so the task stops before another writer can start; run the write again"
            )

    def time_for_request(self) -> float:
        """Seconds that the next request may take.

        Raises:
            LeaseHeldError: see `check`.
        """
        self.check()
        return self._request

    def _look(self) -> None:
        with self._lock:
            now = time.monotonic()
            if now < self._next_look:
                return
            self._next_look = now + min(1.0, self._margin / 4)
            try:
                found = self._read()
            except LeaseHeldError:
                raise
            except UpsertPlatformError:
                return  # looked at again in a moment; the end that is known counts
            if found is None or found.identity != self._terms.identity:
                raise LeaseHeldError(lost_message(self._terms.what, found))
            self._until = max(self._until, now + found.expires - time.time())


def held_message(what: str, found: Tenure) -> str:
    """For one who wants a destination that another holds."""
    return (
        f"{what} is being written by '{found.holder}', whose lease ends at {shown(found.expires)}; wait for it to"
        " finish, or for that time if it died"
    )


def lost_message(what: str, found: Tenure | None) -> str:
    """For one who held a destination."""
    holder = f"'{found.holder}'" if found is not None and found.holder else "nobody"
    return f"{what}: the lease of this write was lost, and {holder} holds it now; run the write again"


def shown(seconds: float) -> str:
    """A moment in messages, UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
