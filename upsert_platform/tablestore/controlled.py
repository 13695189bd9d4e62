"""The common base of Tablestore destinations: the control record with position, lease and verdict."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from upsert_platform.core.destination import BatchSpan, DestinationState, Lease, WriteReport
from upsert_platform.core.errors import DestinationError
from upsert_platform.tablestore.client import Client, is_missing
from upsert_platform.tablestore.control import ControlTable
from upsert_platform.tablestore.failures import ServiceError
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform.writing.controlled import ControlledTable
from upsert_platform.writing.lease import RenewedLease

if TYPE_CHECKING:
    from upsert_platform.tablestore.task import TaskStats
    from upsert_platform.writing.outcomes import Written


class ControlledDestination(ControlledTable):
    """A table with a record in the control table.

    Args:
        name: of the declared table.
        table_name: in the instance.
    """

    kind = "tablestore"
    system = "Tablestore"
    _control: ControlTable

    def __init__(self, name: str, table_name: str, settings: TablestoreSettings) -> None:
        self.name = name
        self.uri = f"{settings.endpoint}/{settings.instance_name}/{table_name}"
        self._settings, self._place = settings, table_name
        self._client = Client.of(settings)
        self._control = ControlTable(self._client, settings, table_name)
        self._prepared: int | None = None

    @abstractmethod
    def _created(self) -> int | None:
        """Return the creation time of the table in microseconds since 1970; 0 if it is unknown, None if it does not
        exist.
        """

    def close(self) -> None:
        """Releases the client. Idempotent."""
        self._client.close()

    def state(self) -> DestinationState:
        """Reads the control record; initial when the control table, its row or the table of the record is missing."""
        record = self._control.read(asks=True)
        if record is None:
            return DestinationState()
        return record.state(
            self._created(),
            f"Tablestore table '{self._control.table_name}'",
            gone="is gone; whoever dropped it, every batch is written again once it can be",
            shown=lambda created: datetime.fromtimestamp(created / 1_000_000, UTC).isoformat(timespec="seconds"),
        )

    def forget_applied(self, lease: Lease) -> None:
        """Drops the position from the control record.

        Raises:
            LeaseHeldError: the lease was lost.
        """
        lease.check()
        self._control.forget_position()

    def drop_table(self) -> None:
        """Deletes the table; no error where there is none."""
        try:
            self._client.repeat("delete_table", self._control.table_name)
        except ServiceError as error:
            if not is_missing(error):
                raise

    def _record_applied(self, span: BatchSpan, lease: RenewedLease) -> None:
        """Records a span as the holder of the lease.

        Raises:
            LeaseHeldError: the lease was lost meanwhile.
            DestinationError: the table is another one than that which was prepared.
        """
        lease.check()
        created = self._created()
        if created is None or (self._prepared and self._prepared != created):
            raise DestinationError(
                f"table '{self.name}': Tablestore table '{self._control.table_name}' was dropped"
                f" {'' if created is None else 'and made anew '}while this run wrote it; nothing was recorded as"
                " applied, so the next run writes everything again"
            )
        self._control.record_applied(lease, span, created=created)


def report_of(written: Written[TaskStats], *, started: float) -> WriteReport:
    """The report of a write from what its tasks did.

    Args:
        started: of the monotonic clock.
    """
    total = written.total
    metrics = asdict(total)
    metrics["task_seconds"] = round(metrics.pop("seconds"), 3)
    metrics["seconds"] = round(time.monotonic() - started, 3)
    return written.report(upserts=total.puts + total.updates, deletes=total.deletes, metrics=metrics)
