"""The right to write a destination: bounded in time, renewed in the background, fenced by the control record.

What the lease guarantees: only its holder records a commit (the record is changed by compare-and-set, under the
holder's token), and every commit is recorded before it happens. So a holder that was cut off (frozen, or without
network beyond its lease) cannot start a commit, and one that it had recorded is finished by the next holder before
anything else is written; finishing it twice changes nothing. Expiry uses the clocks of the writers: a wrong clock makes
a lease end early or late, which costs a run, never a row. What remains outside is somebody who writes the table without
a lease.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from upsert_platform.core.errors import EndpointError
from upsert_platform.maxcompute.connection import ServiceError
from upsert_platform.maxcompute.control import ControlRecord, ControlTable
from upsert_platform.writing.lease import LeaseStore, RenewedLease, Tenure


class ControlLease(RenewedLease, LeaseStore):
    """A lease in the control record."""

    def __init__(self, control: ControlTable, *, owner: str, duration: timedelta, what: str) -> None:
        super().__init__(self, what, owner=owner, duration=duration)
        self._control = control
        self._stored = ControlRecord()
        self._unsaved: Mapping[str, int | str] = {}

    @property
    def record(self) -> ControlRecord:
        """The control record as this holder last saw or wrote it, with what it still has to write."""
        return replace(self._stored, **self._unsaved)  # type: ignore[arg-type]

    def change_later(self, **values: int | str) -> None:
        """Changes fields with the next change, renewal or the end of the lease: one statement less.

        For what the next holder finds out by itself when this one dies: that a recorded commit happened.

        Raises:
            LeaseHeldError: the lease was lost.
        """
        with self._lock:
            self.check()
            self._unsaved = {**self._unsaved, **values}

    def tenure(self) -> Tenure:
        """The lease of the record, which is read again, or made."""
        self._stored = self._control.read() if self._stored.revision else self._control.ensure()
        return self._stored.tenure

    def swap(self, old: Tenure, new: Tenure, **values: Any) -> bool:
        """Changes the record as it was read last, and what is not saved yet with it.

        Raises:
            EndpointError: no answer.
            DestinationError: a refusal that is no conflict.
        """
        try:
            wanted = replace(self._stored.leased(new), **{**self._unsaved, **values})
            stored = self._control.swap(self._stored, wanted)
        except ServiceError as error:
            raise EndpointError(str(error)) from error
        if stored is None:
            return False
        self._stored, self._unsaved = stored, {}
        return True
