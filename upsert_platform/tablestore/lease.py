"""The lease of a destination table: taken in the control table by a conditional write, renewed, and given back."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from upsert_platform.errors import LeaseHeldError
from upsert_platform.tablestore.control import ControlTable
from upsert_platform.writing.lease import RenewedLease, Tenure, held_message, lost_message


class TablestoreLease(RenewedLease):
    """A lease that is held; tasks know it by its epoch."""

    def __init__(self, control: ControlTable, *, epoch: int, duration: timedelta) -> None:
        super().__init__(_what(control), duration=duration)
        self._control = control
        self._epoch = epoch

    @property
    def epoch(self) -> int:
        """Grows by one with every new holder."""
        return self._epoch

    @property
    def identity(self) -> str:
        """The epoch."""
        return str(self._epoch)

    def _renew(self) -> None:
        if not self._control.renew(epoch=self._epoch, expires=self.expiry()):
            raise self.lose(lost_message(self.what, self._control.tenure()))

    def _release(self) -> None:
        self._control.release(epoch=self._epoch)


@contextmanager
def hold_lease(control: ControlTable, *, owner: str, duration: timedelta) -> Iterator[TablestoreLease]:
    """Takes the lease and keeps it while the context is open.

    Raises:
        LeaseHeldError: someone else has it.
    """
    record = control.read()
    if record is not None and record.expires > time.time():
        raise LeaseHeldError(held_message(_what(control), Tenure(str(record.epoch), record.expires, record.holder)))
    lease = TablestoreLease(control, epoch=record.epoch + 1 if record is not None else 1, duration=duration)
    asked_at = time.monotonic()
    if not control.take(record, holder=owner, token=uuid.uuid4().hex, expires=lease.expiry()):
        raise LeaseHeldError(lost_message(_what(control), control.tenure()))
    lease.extended(asked_at)
    lease.keep()
    try:
        yield lease
    finally:
        lease.give_back()


def _what(control: ControlTable) -> str:
    return f"table '{control.table_name}'"
