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
from datetime import timedelta
from types import TracebackType

from upsert_platform.errors import EndpointError, LeaseHeldError, UpsertPlatformError
from upsert_platform.maxcompute.connection import ServiceError
from upsert_platform.maxcompute.control import ControlRecord, ControlTable
from upsert_platform.writing.lease import RenewedLease, held_message, lost_message

_LOGGER = logging.getLogger(__name__)


class ControlLease(RenewedLease):
    """A lease in the control record; use it as a context manager.

    Args:
        owner: shown to whoever finds the destination held.
        what: the destination, for messages.
    """

    def __init__(self, control: ControlTable, *, owner: str, duration: timedelta, what: str) -> None:
        super().__init__(what, duration=duration)
        self._control = control
        self._owner = owner
        self._token = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._stored = ControlRecord()
        self._unsaved: dict[str, int | str] = {}

    def __enter__(self) -> ControlLease:
        self.take()
        self.keep()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()

    @property
    def epoch(self) -> int:
        """Grows by one with every new holder."""
        return self._stored.epoch

    @property
    def identity(self) -> str:
        """The token of this holder."""
        return self._token

    @property
    def record(self) -> ControlRecord:
        """The control record as this holder last saw or wrote it, with what it still has to write."""
        return replace(self._stored, **self._unsaved)  # type: ignore[arg-type]

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
                raise LeaseHeldError(held_message(self.what, found.tenure))
            taken = self._control.swap(
                found,
                replace(
                    found,
                    epoch=found.epoch + 1,
                    holder=self._owner,
                    token=self._token,
                    lease_expires=self._expires_at(),
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

    def _release(self) -> None:
        with self._lock:
            if not self._stored.token:
                return
            try:
                self._swap({"holder": "", "token": "", "lease_expires": 0})
            except (UpsertPlatformError, ServiceError) as error:
                _LOGGER.warning("the lease on %s ends by itself: %s", self.what, error)
            self._stored = replace(self._stored, token="")

    def _renew(self) -> None:
        with self._lock:
            try:
                self._swap({})
            except ServiceError as error:
                raise EndpointError(str(error)) from error

    def _swap(self, values: Mapping[str, int | str]) -> ControlRecord:
        while True:
            started = time.monotonic()
            changed = {"lease_expires": self._expires_at(), **self._unsaved, **values}
            stored = self._control.swap(self._stored, replace(self._stored, **changed))  # type: ignore[arg-type]
            if stored is not None:
                self._accept(stored, started)
                return stored
            found = self._control.read()
            if found.token != self._token:
                raise self.lose(lost_message(self.what, found.tenure))
            self._stored = found  # a check stored its verdict meanwhile

    def _accept(self, record: ControlRecord, started: float) -> None:
        self._stored = record
        self._unsaved = {}
        self.extended(started)

    def _expires_at(self) -> int:
        return int(self.expiry() * 1000)
