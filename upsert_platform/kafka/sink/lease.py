"""The lease of a written topic: a record in the control topic, under a transactional id that fences other holders.

Whoever wants the lease first reads the record, then takes the transactional id (the broker from then on refuses every
other producer with it, and ends what a dead holder left open), reads again, and writes its own record. Two that come at
the same time cannot both succeed: the first one's commit is refused, or the second one reads it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any

from upsert_platform.errors import EndpointError, LeaseHeldError
from upsert_platform.kafka.sink.control import (
    DRIVER_TRANSACTION_MS,
    LEASE,
    STATE,
    Applied,
    ControlTopic,
    LeaseRecord,
)
from upsert_platform.kafka.sink.transactions import Fenced, in_transaction, open_transactional
from upsert_platform.writing.lease import RenewedLease, held_message, lost_message

if TYPE_CHECKING:
    from confluent_kafka import Producer


class KafkaLease(RenewedLease):
    """A lease that is held."""

    def __init__(self, control: ControlTopic, producer: Producer, record: LeaseRecord, *, duration: timedelta) -> None:
        super().__init__(_what(control), duration=duration)
        self._control = control
        self._producer = producer
        self._record = record
        self._lock = Lock()

    @property
    def epoch(self) -> int:
        """Grows by one with every new holder."""
        return self._record.epoch

    @property
    def identity(self) -> str:
        """The token of this holder."""
        return self._record.token

    def record_applied(self, applied: Applied) -> None:
        """Writes the position, as the holder.

        Raises:
            LeaseHeldError: the lease was lost.
            EndpointError: the brokers did not take it.
        """
        self.check()
        self._put(STATE, asdict(applied))

    def start(self) -> None:
        """Writes the record of this holder and renews it from now on.

        Raises:
            Fenced: somebody else took the transactional id meanwhile.
        """
        asked_at = time.monotonic()
        record = replace(self._record, expires=self.expiry())
        in_transaction(self._producer, lambda: self._control.produce(self._producer, LEASE, asdict(record)))
        self.extended(asked_at)
        self.keep()

    def _renew(self) -> None:
        self._put(LEASE, asdict(replace(self._record, expires=self.expiry())))

    def _release(self) -> None:
        self._put(LEASE, asdict(replace(self._record, expires=0.0)))

    def _put(self, record: str, value: Mapping[str, Any]) -> None:
        with self._lock:
            try:
                in_transaction(self._producer, lambda: self._control.produce(self._producer, record, value))
            except Fenced:
                self._retake()
                try:
                    in_transaction(self._producer, lambda: self._control.produce(self._producer, record, value))
                except Fenced:
                    raise EndpointError(f"{self.what}: others want the lease, and the record was not written") from None

    def _retake(self) -> None:
        """Takes the transactional id back from one who wanted the lease and did not get it."""
        self._producer = _open(self._control)
        found = self._control.read().lease.tenure
        if found.identity != self.identity:
            raise self.lose(lost_message(self.what, found))


@contextmanager
def hold_lease(control: ControlTopic, *, owner: str, duration: timedelta) -> Iterator[KafkaLease]:
    """Takes the lease and keeps it while the context is open.

    Raises:
        LeaseHeldError: someone else has it.
        EndpointError: the brokers cannot be reached, or allow no transactions.
    """
    control.create()
    _refuse_if_held(control, waits=False)
    producer = _open(control)
    before = _refuse_if_held(control, waits=True)
    record = LeaseRecord(owner, uuid.uuid4().hex, before.epoch + 1)
    lease = KafkaLease(control, producer, record, duration=duration)
    try:
        lease.start()
    except Fenced:
        raise LeaseHeldError(lost_message(_what(control), control.read().lease.tenure)) from None
    try:
        yield lease
    finally:
        lease.give_back()


def _refuse_if_held(control: ControlTopic, *, waits: bool) -> LeaseRecord:
    found = control.read(waits=waits).lease
    if found.expires > time.time():
        raise LeaseHeldError(held_message(_what(control), found.tenure))
    return found


def _open(control: ControlTopic) -> Producer:
    within = dict.fromkeys(("transaction.timeout.ms", "delivery.timeout.ms"), DRIVER_TRANSACTION_MS)
    return open_transactional(control.endpoint, lease_id(control), **within)


def lease_id(control: ControlTopic) -> str:
    """Transactional id of whoever holds the lease."""
    return f"upsert-platform.{control.name}.{control.topic}"


def _what(control: ControlTopic) -> str:
    return f"topic '{control.topic}'"
