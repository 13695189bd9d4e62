"""The lease of a written topic: a record in the control topic, under a transactional id that fences other holders.

Whoever wants the lease first reads the record, then takes the transactional id (the broker from then on refuses every
other producer with it), reads again, and writes its own record. Two that come at the same time cannot both succeed: the
first one's commit is refused, or the second one reads it. An expired lease is judged by the clients' clocks: keep them
synchronised to well below the lease's duration.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from upsert_platform.errors import EndpointError, LeaseHeldError, UpsertPlatformError
from upsert_platform.kafka.endpoint import REQUEST_SECONDS
from upsert_platform.kafka.sink.control import LEASE, STATE, Applied, ControlTopic, Tenure
from upsert_platform.kafka.sink.transactions import Fenced, in_transaction, open_transactional
from upsert_platform.kafka.topics import wait_until_stable

if TYPE_CHECKING:
    from confluent_kafka import Producer


class KafkaLease:
    """A lease that is held; see `upsert_platform.destination.Lease`."""

    def __init__(self, control: ControlTopic, producer: Producer, tenure: Tenure, *, duration: timedelta) -> None:
        self._control = control
        self._producer = producer
        self._tenure = tenure
        self._duration = duration.total_seconds()
        self._lost: str | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease of {control.topic}", daemon=True)

    @property
    def epoch(self) -> int:
        """Grows by one with every new holder."""
        return self._tenure.epoch

    @property
    def token(self) -> str:
        """Identity of this holder, which writing tasks look for in the control topic."""
        return self._tenure.token

    @property
    def deadline(self) -> datetime:
        """UTC; when the lease ends unless it is renewed before."""
        return datetime.fromtimestamp(self._tenure.expires, UTC)

    def check(self) -> None:
        """Raises LeaseHeldError when the lease was lost or has ended."""
        if self._lost is not None:
            raise LeaseHeldError(self._lost)
        if time.time() >= self._tenure.expires:
            raise LeaseHeldError(
                f"topic '{self._control.topic}': the lease ended at {self.deadline.isoformat(timespec='seconds')}"
                " because it could not be renewed; run the write again"
            )

    def record_applied(self, applied: Applied) -> None:
        """Writes the position, as the holder.

        Raises:
            LeaseHeldError: the lease was lost.
            EndpointError: the brokers did not take it.
        """
        self.check()
        self._put(STATE, asdict(applied))

    def start(self) -> None:
        """Writes the record of this holder and renews it from now on."""
        self._put(LEASE, asdict(self._tenure))
        self._thread.start()

    def give_back(self) -> None:
        """Ends the renewal and frees the topic, unless somebody else has it by now."""
        self._ended.set()
        self._thread.join()
        if self._lost is None:
            try:
                self._put(LEASE, asdict(replace(self._tenure, expires=0.0)))
            except UpsertPlatformError:
                # Freeing early is a courtesy: the lease ends by itself, and the write's own error matters more.
                return

    def _put(self, record: str, value: Mapping[str, Any]) -> None:
        with self._lock:
            try:
                in_transaction(self._producer, lambda: self._control.produce(self._producer, record, value))
            except Fenced:
                self._retake()
                in_transaction(self._producer, lambda: self._control.produce(self._producer, record, value))
            wait_until_stable(self._control.endpoint, self._control.name)

    def _retake(self) -> None:
        """Takes the transactional id back from one who wanted the lease and did not get it."""
        self._producer = open_transactional(self._control.endpoint, lease_id(self._control))
        found = self._control.read().tenure
        if found.token != self._tenure.token:
            self._lost = held_message(self._control.topic, found)
            raise LeaseHeldError(self._lost)

    def _keep(self) -> None:
        while not self._ended.wait(self._duration / 3):
            renewed = replace(self._tenure, expires=time.time() + self._duration)
            try:
                self._put(LEASE, asdict(renewed))
                self._tenure = renewed
            except LeaseHeldError as error:
                self._lost = str(error)
                return
            except (UpsertPlatformError, Fenced):
                # Tried again at the next turn; `check` and the tasks' guards act on the deadline.
                continue


@contextmanager
def hold_lease(control: ControlTopic, *, owner: str, duration: timedelta) -> Iterator[KafkaLease]:
    """Takes the lease and keeps it while the context is open.

    Raises:
        LeaseHeldError: someone else has it.
        EndpointError: the brokers cannot be reached, or allow no transactions.
    """
    control.create()
    _refuse_if_held(control)
    producer = open_transactional(control.endpoint, lease_id(control))
    before = _refuse_if_held(control)
    tenure = Tenure(owner, uuid.uuid4().hex, before.epoch + 1, time.time() + duration.total_seconds())
    lease = KafkaLease(control, producer, tenure, duration=duration)
    try:
        lease.start()
    except Fenced:
        raise LeaseHeldError(held_message(control.topic, control.read().tenure)) from None
    try:
        yield lease
    finally:
        lease.give_back()


def _refuse_if_held(control: ControlTopic) -> Tenure:
    found = control.read().tenure
    if found.expires > time.time():
        raise LeaseHeldError(held_message(control.topic, found))
    return found


def lease_id(control: ControlTopic) -> str:
    """Transactional id of whoever holds the lease."""
    return f"upsert-platform.{control.name}.{control.topic}"


def held_message(topic: str, tenure: Tenure) -> str:
    """Names the holder of a lease."""
    if not tenure.holder or not tenure.expires:
        return f"topic '{topic}': another writer took the lease meanwhile; run the write again"
    ends = datetime.fromtimestamp(tenure.expires, UTC).isoformat(timespec="seconds")
    return (
        f"topic '{topic}' is being written by '{tenure.holder}', whose lease ends at {ends}; wait for it to finish, or"
        " for that time if it died"
    )


class LeaseGuard:
    """Watches, in a writing task, that the lease under which it writes is still held.

    Args:
        margin: seconds before the known end at which the control topic is asked whether the lease was renewed; longer
            than a record may wait in the producer.
    """

    def __init__(self, control: ControlTopic, *, token: str, expires: float, margin: float) -> None:
        self._control = control
        self._token = token
        self._expires = expires
        self._margin = margin

    def check(self) -> None:
        """Raises LeaseHeldError when the lease has another holder, or was not renewed."""
        if time.time() < self._expires - self._margin:
            return
        try:
            found = self._control.read().tenure
        except EndpointError:
            found = None
        if found is not None and found.token == self._token:
            self._expires = found.expires
        elif found is not None:
            raise LeaseHeldError(held_message(self._control.topic, found))
        if time.time() >= self._expires - min(self._margin, REQUEST_SECONDS):
            raise LeaseHeldError(f"topic '{self._control.topic}': the lease was not renewed; run the write again")
