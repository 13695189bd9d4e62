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
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self

from upsert_platform.core.destination import DestinationState
from upsert_platform.core.errors import DestinationError, LeaseHeldError, UpsertPlatformError
from upsert_platform.writing.time_limit import time_limit

_LOG: Final = logging.getLogger(__name__)
MARGIN: Final = 1 / 3
"""Part of the duration, before the end, in which nothing is sent any more."""
_RENEWALS: Final = 4
"""Per duration: one that fails leaves time for another before the margin."""
_LOOK_AGAIN: Final = 1 / 2
"""Part of the duration that is left when a task reads the record again: the holder has renewed it by then."""
_OF_MARGIN: Final = 2 / 3
"""How much of the margin a request may take."""
_TRIES: Final = 10
"""How often a change of a control record that others change too is tried."""


@dataclass(frozen=True, slots=True)
class Tenure:
    """A lease as it stands in a control record; nobody's before the first one.

    Attributes:
        token: of the holder, never given twice.
        expires: seconds since 1970.
        holder: for messages.
        epoch: grows by one with every new holder.
    """

    token: str = ""
    expires: float = 0.0
    holder: str = ""
    epoch: int = 0

    @property
    def held(self) -> bool:
        """Return whether somebody has the lease now."""
        return self.expires > time.time()

    def shown_in(self, state: DestinationState) -> DestinationState:
        """A state with the holder and the end of this lease, while somebody has it."""
        if not self.held:
            return state
        return replace(state, holder=self.holder, lease_expires=datetime.fromtimestamp(self.expires, UTC))


class LeaseStore(ABC):
    """The store of a destination's lease: its control record, changed by compare-and-set.

    Clients of a store obey `time_limit`: a service that accepts requests and stays silent holds nobody longer.
    """

    @abstractmethod
    def tenure(self) -> Tenure:
        """The lease as it is stored."""

    @abstractmethod
    def swap(self, old: Tenure, new: Tenure, **values: Any) -> bool:
        """Stores a lease, and with it other values of the record, all or nothing.

        Args:
            old: the lease must still be this one.
            values: such as the position; the holder alone changes them.

        Returns:
            Whether the record was changed; if not, it was not the old one.

        Raises:
            UpsertPlatformError: nobody knows whether it was.
        """


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of the lease under which a task writes. Picklable.

    Attributes:
        what: the destination, for messages: ``topic 'users'``.
        expires: as known when the task was planned.
        seconds: duration of the lease.
    """

    what: str
    token: str
    expires: float
    seconds: float


class RenewedLease:
    """A lease; see `upsert_platform.core.destination.Lease`. Held, and renewed by a thread, while its context is open.

    Args:
        what: the destination, for messages: ``topic 'users'``.
        owner: shown to whoever finds the destination held.
    """

    def __init__(self, store: LeaseStore, what: str, *, owner: str, duration: timedelta) -> None:
        self.what = what
        self.seconds = duration.total_seconds()
        self._store = store
        self._owner = owner
        self._token = uuid.uuid4().hex
        self._tenure = Tenure()  # as this holder stored it last
        self._until = 0.0  # of the monotonic clock
        self._lost: str | None = None
        self._lock = threading.Lock()  # of changes to the record
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease of {what}", daemon=True)

    def __enter__(self) -> Self:
        self.take()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()

    @property
    def epoch(self) -> int:
        """Grows by one with every new holder."""
        return self._tenure.epoch

    @property
    def deadline(self) -> datetime:
        """UTC; the holder writes nothing after it, unless the lease is renewed before."""
        return datetime.now(UTC) + timedelta(seconds=self._until - time.monotonic())

    @property
    def terms(self) -> Terms:
        """Return the terms for tasks."""
        left = self._until - time.monotonic() + self.seconds * MARGIN
        return Terms(self.what, self._token, time.time() + left, self.seconds)

    def take(self) -> None:
        """Takes the lease; nothing renews it before the context is entered.

        Raises:
            LeaseHeldError: somebody else has it; the message names the holder and the end of its lease.
            UpsertPlatformError: the control record could not be read or changed.
        """
        for _ in range(_TRIES):
            found = self._store.tenure()
            if found.held:
                raise held_error(self.what, found)
            asked_at = time.monotonic()
            mine = Tenure(self._token, time.time() + self.seconds, self._owner, found.epoch + 1)
            if self._store.swap(found, mine):
                self._tenure = mine
                self._extended(asked_at)
                return
        raise LeaseHeldError(lost_message(self.what, self._store.tenure()))

    def change(self, **values: Any) -> None:
        """Changes values of the control record as the holder, all or none; the lease is renewed with it.

        Raises:
            LeaseHeldError: the lease was lost; nothing was changed.
            UpsertPlatformError: nobody knows whether they were changed.
        """
        with self._lock:
            self.check()
            self._prolong(values)

    def check(self) -> None:
        """Raises LeaseHeldError when the lease was lost or has ended."""
        if self._lost is not None:
            raise LeaseHeldError(self._lost)
        if time.monotonic() >= self._until:
            raise LeaseHeldError(
                f"{self.what}: the lease ended at {shown(self.deadline.timestamp())} because it could not be renewed;"
                " run the write again"
            )

    def give_back(self) -> None:
        """Ends the renewal and frees the destination, unless somebody else has it by now. Idempotent."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._lost is None:
            self._lost = f"{self.what}: the lease was given back"
            try:
                self._release()
            except UpsertPlatformError as error:
                # Freeing early is a courtesy, and the write's own error matters more.
                _LOG.warning("%s: the lease ends by itself: %s", self.what, error)

    def _renew(self) -> None:
        with self._lock:
            self._prolong({})

    def _release(self) -> None:
        with self._lock:
            left = self._left()
            if left > 0:
                with time_limit(left):
                    self._put(Tenure(epoch=self.epoch), {})

    def _prolong(self, values: Mapping[str, Any]) -> None:
        asked_at = time.monotonic()
        with time_limit(max(self._left(), self.seconds * MARGIN)):
            self._put(replace(self._tenure, expires=time.time() + self.seconds), values)
        self._extended(asked_at)

    def _left(self) -> float:
        """Seconds until the stored end, after which another may have the lease."""
        return self._until + self.seconds * MARGIN - time.monotonic()

    def _put(self, new: Tenure, values: Mapping[str, Any]) -> None:
        for _ in range(_TRIES):
            if self._store.swap(self._tenure, new, **values):
                self._tenure = new
                return
            found = self._store.tenure()
            if found.token != self._token:
                self._lost = lost_message(self.what, found)
                raise LeaseHeldError(self._lost)
            self._tenure = found
        raise DestinationError(f"{self.what}: its control record could not be changed, others keep changing it")

    def _extended(self, asked_at: float) -> None:
        """Notes that the control record holds a new end, taken after that monotonic time."""
        self._until = max(self._until, asked_at + self.seconds * (1 - MARGIN))

    def _keep(self) -> None:
        while not self._ended.wait(self.seconds / _RENEWALS):
            try:
                self._renew()
            except LeaseHeldError as error:
                self._lost = str(error)
                return
            except UpsertPlatformError as error:
                # Tried again at the next turn; `check` and the tasks' guards act on the deadline.
                _LOG.warning("%s: the lease could not be renewed, trying again: %s", self.what, error)


class LeaseGuard:
    """Watches, in a writing task, that its lease is held; used by all threads of the task.

    Reads the control record when half of the lease is over as far as the task knows: once in some renewals, whatever
    the number of rows.

    Args:
        read: the lease in the control record.
        longest: seconds that a request may take at most.
    """

    def __init__(self, terms: Terms, read: Callable[[], Tenure], *, longest: float = float("inf")) -> None:
        self._terms = terms
        self._read = read
        self._margin = terms.seconds * MARGIN
        self._request = min(longest, self._margin * _OF_MARGIN)
        self._until = time.monotonic() + terms.expires - time.time()
        self._next_look = 0.0
        self._looks = False
        self._looked = threading.Condition()  # held for moments: never while the record is read

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
        """Reads the record, in one thread at a time; the others go on until the end that is known, and wait then."""
        with self._looked:
            if self._looks and self._until - time.monotonic() <= self._margin:
                self._looked.wait_for(lambda: not self._looks, self._request)
            now = time.monotonic()
            if self._looks or now < self._next_look:
                return
            self._looks = True
            self._next_look = now + min(1.0, self._margin / 4)
        try:
            # A task that was busy for long may find its lease renewed, so it may ask when no time is left.
            with time_limit(max(self._until - now - self._margin, self._request)):
                found = self._read()
        except LeaseHeldError:
            raise
        except UpsertPlatformError:
            return  # looked at again in a moment; the end that is known counts
        else:
            if found.token != self._terms.token:
                raise LeaseHeldError(lost_message(self._terms.what, found))
            self._until = max(self._until, now + found.expires - time.time())
        finally:
            with self._looked:
                self._looks = False
                self._looked.notify_all()


def held_error(what: str, found: Tenure) -> LeaseHeldError:
    """For one who wants a destination that another holds."""
    return LeaseHeldError(
        f"{what} is being written by '{found.holder}', whose lease ends at {shown(found.expires)}; wait for it to"
        " finish, or for that time if it died",
        ends=found.expires,
    )


def lost_message(what: str, found: Tenure) -> str:
    """For one who held a destination."""
    holder = f"'{found.holder}'" if found.holder else "nobody"
    return f"{what}: the lease of this write was lost, and {holder} holds it now; run the write again"


def shown(seconds: float) -> str:
    """A moment in messages, UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
