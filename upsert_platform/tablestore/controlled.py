"""What destinations in Tablestore share: the control record with position, lease and verdict."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from upsert_platform.destination import BatchSpan, DestinationState, Lease, RefusedRow, Verdict, WriteReport
from upsert_platform.errors import LeaseHeldError
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.control import ControlTable
from upsert_platform.tablestore.lease import hold_lease
from upsert_platform.tablestore.options import TablestoreSettings

if TYPE_CHECKING:
    from upsert_platform.tablestore.task import TaskStats


class ControlledDestination(ABC):
    """A table with a record in the control table.

    Args:
        name: of the declared table.
        table_name: in the instance.
    """

    kind = "tablestore"

    def __init__(self, name: str, table_name: str, settings: TablestoreSettings) -> None:
        self.name = name
        self.uri = f"{settings.endpoint}/{settings.instance_name}/{table_name}"
        self._client = Client.of(settings)
        self._control = ControlTable(self._client, settings, table_name)

    @abstractmethod
    def _exists(self) -> bool:
        """Whether the table is there; without it the control record tells nothing."""

    def close(self) -> None:
        """Releases the client. Idempotent."""
        self._client.close()

    def state(self) -> DestinationState:
        """Reads the control record; initial when the control table, its row or the table itself is missing."""
        record = self._control.read(asks=True)
        if record is None:
            return DestinationState()
        held = record.expires > time.time()
        there = self._exists()
        return DestinationState(
            applied_batch=record.applied_batch if there else 0,
            changelog_id=record.changelog_id if there else "",
            verdict=record.verdict if there else None,
            holder=record.holder if held else None,
            lease_expires=datetime.fromtimestamp(record.expires, UTC) if held else None,
        )

    def lease(self, *, owner: str, duration: timedelta) -> AbstractContextManager[Lease]:
        """Takes the table for one writer, renews while open, gives it back at the end.

        Raises:
            LeaseHeldError: someone else has it.
        """
        return hold_lease(self._control, owner=owner, duration=duration)

    def record_verdict(self, verdict: Verdict) -> None:
        """Keeps the result of a check beside the applied batch."""
        self._control.record_verdict(verdict)

    def _record_applied(self, span: BatchSpan, lease: Lease) -> None:
        """Records a span under the lease's epoch.

        Raises:
            LeaseHeldError: the lease was lost meanwhile.
        """
        lease.check()
        if not self._control.record_applied(span, epoch=lease.epoch):
            lease.check()
            raise LeaseHeldError(
                f"table '{self.name}': another writer took the lease while this one wrote, so batch {span.upto} is not"
                " recorded as applied; run the write again"
            )


def report_of(total: TaskStats, refused: Sequence[RefusedRow], *, started: float) -> WriteReport:
    """The report of a write from the sums of its tasks.

    Args:
        started: of the monotonic clock.
    """
    metrics = asdict(total)
    metrics["task_seconds"] = round(metrics.pop("seconds"), 3)
    metrics["seconds"] = round(time.monotonic() - started, 3)
    return WriteReport(
        upserts=total.puts + total.updates,
        deletes=total.deletes,
        refused_count=total.refused,
        refused=tuple(refused),
        metrics=metrics,
    )
