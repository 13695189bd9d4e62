"""The lease of a written topic: a record in the control topic, under a transactional id that fences other holders.

Whoever wants the lease first reads the record, then takes the transactional id (the broker from then on refuses every
other producer with it, and ends what a dead holder left open), reads again, and writes its own record. Two that come at
the same time cannot both succeed: the first one's commit is refused, or the second one reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from upsert_platform.core.errors import EndpointError
from upsert_platform.kafka.sink.control import DRIVER_TRANSACTION_MS, LEASE, STATE, VERDICT, Applied, ControlTopic
from upsert_platform.kafka.sink.transactions import Fenced, in_transaction, open_transactional
from upsert_platform.writing.lease import LeaseStore, RenewedLease, Tenure, held_error

if TYPE_CHECKING:
    from confluent_kafka import Producer


class KafkaLease(RenewedLease, LeaseStore):
    """The lease of a written topic; its holder writes the control records."""

    def __init__(self, control: ControlTopic, *, owner: str, duration: timedelta) -> None:
        super().__init__(self, f"topic '{control.topic}'", owner=owner, duration=duration)
        self._control = control
        self._producer: Producer | None = None

    def record_applied(self, applied: Applied) -> None:
        """Writes the position, as the holder.

        Raises:
            LeaseHeldError: the lease was lost.
            EndpointError: the brokers did not take it.
        """
        self.change(**{STATE: asdict(applied)})

    def forget_applied(self) -> None:
        """Writes a position before the first batch, and that there is no verdict, as the holder.

        Raises:
            LeaseHeldError: the lease was lost.
            EndpointError: the brokers did not take it.
        """
        self.change(**{STATE: asdict(Applied()), VERDICT: None})

    def take(self) -> None:
        """Takes the transactional id, unless somebody is seen to hold the lease, and then the lease."""
        self._control.create()
        seen = self._control.read(waits=False).lease
        if seen.held:
            raise held_error(self.what, seen)
        self._producer = _open(self._control)
        super().take()

    def tenure(self) -> Tenure:
        """The last lease; what an open transaction hides is waited for."""
        return self._control.read().lease

    def swap(self, old: Tenure, new: Tenure, **values: Any) -> bool:
        """Writes a lease and other records in one transaction, under the transactional id.

        Raises:
            EndpointError: the brokers cannot be reached or allow no transactions, or others want the lease too.
        """
        records = {LEASE: asdict(new), **values}
        try:
            self._write(records)
        except Fenced:  # by one who wants the lease, or has it by now
            self._producer = _open(self._control)
            if self.tenure() != old:
                return False
            try:
                self._write(records)
            except Fenced:
                raise EndpointError(f"{self.what}: others want the lease, and the record was not written") from None
        return True

    def _write(self, records: Mapping[str, Mapping[str, Any] | None]) -> None:
        producer = self._producer
        assert producer is not None

        def produce() -> None:
            for name, value in records.items():
                self._control.produce(producer, name, value)

        in_transaction(producer, produce)


def _open(control: ControlTopic) -> Producer:
    within = dict.fromkeys(("transaction.timeout.ms", "delivery.timeout.ms"), DRIVER_TRANSACTION_MS)
    return open_transactional(control.endpoint, lease_id(control), near=control.name, **within)


def lease_id(control: ControlTopic) -> str:
    """Transactional id of whoever holds the lease."""
    return f"upsert-platform.{control.name}.{control.topic}"
