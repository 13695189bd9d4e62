"""The lease of a destination table: taken in the control table, renewed by a thread, given back at the end.

A lease ends by the clock, and the clocks compared are those of the clients: one that is ahead by more than the lease's
duration could take a lease that is still held. Keep clocks synchronised to well below the duration.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from upsert_platform.errors import LeaseHeldError, UpsertPlatformError
from upsert_platform.tablestore.control import ControlRecord, ControlTable


class TablestoreLease:
    """A lease that is held; see `upsert_platform.destination.Lease`."""

    def __init__(self, control: ControlTable, *, epoch: int, expires: float, duration: timedelta) -> None:
        self._control = control
        self._epoch = epoch
        self._expires = expires
        self._duration = duration.total_seconds()
        self._lost: str | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease of {control.table_name}", daemon=True)
        self._thread.start()

    @property
    def epoch(self) -> int:
        """Grows by one with every new holder."""
        return self._epoch

    @property
    def deadline(self) -> datetime:
        """UTC; when the lease ends unless it is renewed before."""
        return datetime.fromtimestamp(self._expires, UTC)

    def check(self) -> None:
        """Raises LeaseHeldError when the lease was lost or has ended."""
        if self._lost is not None:
            raise LeaseHeldError(self._lost)
        if time.time() >= self._expires:
            raise LeaseHeldError(
                f"table '{self._control.table_name}': the lease ended at {_shown(self._expires)} because it could not"
                " be renewed; run the write again"
            )

    def give_back(self) -> None:
        """Ends the renewal and frees the destination, unless somebody else has it by now."""
        self._ended.set()
        self._thread.join()
        if self._lost is None:
            try:
                self._control.release(epoch=self._epoch)
            except UpsertPlatformError:
                # Freeing early is a courtesy: the lease ends by itself, and the write's own error matters more.
                return

    def _keep(self) -> None:
        while not self._ended.wait(self._duration / 3):
            expires = time.time() + self._duration
            try:
                if self._control.renew(epoch=self._epoch, expires=expires):
                    self._expires = expires
                else:
                    self._lost = _held(self._control.table_name, self._control.read())
                    return
            except UpsertPlatformError:
                # Tried again at the next turn; `check` and the tasks' guards act on the deadline.
                continue


@contextmanager
def hold_lease(control: ControlTable, *, owner: str, duration: timedelta) -> Iterator[TablestoreLease]:
    """Takes the lease and keeps it while the context is open.

    Raises:
        LeaseHeldError: someone else has it.
    """
    record = control.read()
    now = time.time()
    if record is not None and record.expires > now:
        raise LeaseHeldError(_held(control.table_name, record))
    expires = now + duration.total_seconds()
    epoch = record.epoch + 1 if record is not None else 1
    if not control.take(record, holder=owner, token=uuid.uuid4().hex, expires=expires):
        raise LeaseHeldError(_held(control.table_name, control.read()))
    lease = TablestoreLease(control, epoch=epoch, expires=expires, duration=duration)
    try:
        yield lease
    finally:
        lease.give_back()


def _held(table_name: str, record: ControlRecord | None) -> str:
    if record is None or not record.holder:
        return f"table '{table_name}': another writer took the lease and has given it back; run the write again"
    return (
        f"table '{table_name}' is being written by '{record.holder}', whose lease ends at {_shown(record.expires)};"
        " wait for it to finish, or for that time if it died"
    )


def _shown(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
