"""The right to write a destination: bounded in time, renewed in the background, fenced by the control record.

What the lease guarantees: only its holder records a commit (the record is changed by compare-and-set, under the
holder's token), and every commit is recorded before it happens. So a holder that was cut off (frozen, or without
network beyond its lease) cannot start a commit, and one that it had recorded is finished by the next holder before
anything else is written; finishing it twice changes nothing. Expiry uses the clocks of the writers: a wrong clock makes
a lease end early or late, which costs a run, never a row. What remains outside is somebody who writes the table without
a lease.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import TracebackType

from upsert_platform.errors import LeaseHeldError, UpsertPlatformError
from upsert_platform.maxcompute.connection import ServiceError
from upsert_platform.maxcompute.control import ControlRecord, ControlTable

_LOGGER = logging.getLogger(__name__)
_MARGIN = 0.1
"""Part of the duration by which the holder stops before others may take over."""


class ControlLease:
    """A lease in the control record; use it as a context manager.

    Args:
        owner: shown to whoever finds the destination held.
        what: the destination, for messages.
    """

    def __init__(self, control: ControlTable, *, owner: str, duration: timedelta, what: str) -> None:
        self._control = control
        self._owner = owner
        self._seconds = duration.total_seconds()
        self._what = what
        self._token = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._stored = ControlRecord()
        self._unsaved: dict[str, int | str] = {}
        self._deadline = 0.0
        self._lost: str | None = None
        self._stop = threading.Event()
        self._renewer: threading.Thread | None = None

    def __enter__(self) -> ControlLease:
        self.take()
        self._renewer = threading.Thread(target=self._renew_until_stopped, name="maxcompute-lease", daemon=True)
        self._renewer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._renewer is not None:
            self._renewer.join()
        self.give_back()

    @property
    def epoch(self) -> int:
        """Grows by one with every new holder."""
        return self._stored.epoch

    @property
    def deadline(self) -> datetime:
        """UTC; the holder starts no commit after it."""
        remaining = self._deadline - time.monotonic()
        return datetime.now(UTC) + timedelta(seconds=remaining)

    @property
    def record(self) -> ControlRecord:
        """The control record as this holder last saw or wrote it, with what it still has to write."""
        return replace(self._stored, **self._unsaved)  # type: ignore[arg-type]

    def check(self) -> None:
        """Raises LeaseHeldError when the lease was lost."""
        if self._lost is None and time.monotonic() >= self._deadline:
            self._lost = "it could not be renewed in time"
        if self._lost is not None:
            raise LeaseHeldError(f"the lease on {self._what} was lost: {self._lost}. Run again")

    def take(self) -> None:
        """Takes the lease.

        Raises:
            LeaseHeldError: somebody holds it; the message names the holder and the end of its lease.
            EndpointError: no answer.
        """
        found = self._control.ensure()
        while True:
            started = time.monotonic()
            if found.held_at(time.time()) and found.token != self._token:
                raise held_by(found, self._what)
            taken = self._control.swap(
                found,
                replace(
                    found,
                    epoch=found.epoch + 1,
                    holder=self._owner,
                    token=self._token,
                    lease_expires=self._expiry(),
                ),
            )
            if taken is not None:
                self._accept(taken, started)
                return
            found = self._control.read()

    def change(self, **values: int | str) -> ControlRecord:
        """Changes fields of the record as the holder.

        Raises:
            LeaseHeldError: the lease was lost; nothing was changed.
        """
        with self._lock:
            self.check()
            return self._swap(values)

    def change_later(self, **values: int | str) -> None:
        """Changes fields with the next change, renewal or the end of the lease: one statement less.

        For what the next holder finds out by itself when this one dies: that a recorded commit happened.

        Raises:
            LeaseHeldError: the lease was lost.
        """
        with self._lock:
            self.check()
            self._unsaved.update(values)

    def give_back(self) -> None:
        """Ends the lease, unless it was lost. Failures are logged: the lease then ends by itself."""
        with self._lock:
            if self._lost is not None or not self._stored.token:
                return
            try:
                self._swap({"holder": "", "token": "", "lease_expires": 0})
            except (UpsertPlatformError, ServiceError) as error:
                _LOGGER.warning("the lease on %s ends by itself: %s", self._what, error)
            self._stored = replace(self._stored, token="")

    def _swap(self, values: Mapping[str, int | str]) -> ControlRecord:
        while True:
            started = time.monotonic()
            changed = {"lease_expires": self._expiry(), **self._unsaved, **values}
            stored = self._control.swap(self._stored, replace(self._stored, **changed))  # type: ignore[arg-type]
            if stored is not None:
                self._accept(stored, started)
                return stored
            found = self._control.read()
            if found.token != self._token:
                self._lost = f"'{found.holder}' took it" if found.token else "somebody ended it"
                self.check()
            self._stored = found  # a check stored its verdict meanwhile

    def _accept(self, record: ControlRecord, started: float) -> None:
        self._stored = record
        self._unsaved = {}
        self._deadline = started + self._seconds * (1 - _MARGIN)

    def _expiry(self) -> int:
        return int((time.time() + self._seconds) * 1000)

    def _renew_until_stopped(self) -> None:
        while not self._stop.wait(self._seconds / 3):
            with self._lock:
                if self._lost is not None:
                    return
                try:
                    self._swap({})
                except LeaseHeldError:
                    return
                except UpsertPlatformError as error:
                    _LOGGER.warning("renewing the lease on %s failed, trying again: %s", self._what, error)


def held_by(record: ControlRecord, what: str) -> LeaseHeldError:
    """The error for a destination that somebody holds."""
    until = f"{record.lease_ends:%Y-%m-%d %H:%M:%S} UTC"
    return LeaseHeldError(
        f"{what} is being written by '{record.holder}'; its lease ends at {until} unless it is renewed. Wait for that"
        " run, or until then if it is dead"
    )
