"""A declared Tablestore table as a destination of the platform."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from upsert_platform.destination import (
    BatchSpan,
    DestinationState,
    KeepRefused,
    Lease,
    RefusedRow,
    Verdict,
    WriteReport,
    drop_nothing,
)
from upsert_platform.errors import DestinationError, LeaseHeldError, RecordError
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.control import ControlTable
from upsert_platform.tablestore.lease import hold_lease
from upsert_platform.tablestore.schema import describe, prepare_table
from upsert_platform.tablestore.settings import TablestoreTable
from upsert_platform.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TablestoreDestination:
    """Implements `upsert_platform.destination.Destination`."""

    kind = "tablestore"

    def __init__(self, table: TablestoreTable) -> None:
        self.table = table
        self.name = table.name
        self.columns = table.columns
        self.primary_key = tuple(column.name for column in table.primary_key)
        settings = table.settings
        self.uri = f"{settings.endpoint}/{settings.instance_name}/{table.table_name}"
        self._client = Client.of(settings)
        self._control = ControlTable(self._client, settings, table.table_name)

    def close(self) -> None:
        """Releases the client. Idempotent."""
        self._client.close()

    def prepare(self) -> None:
        """Creates the table when it is missing and ``auto.create`` is on, compares it with the declaration otherwise.

        The position in the control table belongs to the rows: it is dropped when the table is created.

        Raises:
            DestinationError: missing, or different; every difference is named.
            EndpointError: not reachable, or credentials refused.
        """
        if describe(self._client, self.table.table_name) is None and self.table.settings.auto_create:
            self._control.forget_position()
        prepare_table(self._client, self.table)

    def state(self) -> DestinationState:
        """Reads the control record; initial when the control table, its row or the table itself is missing."""
        record = self._control.read()
        if record is None:
            return DestinationState()
        held = record.expires > time.time()
        there = describe(self._client, self.table.table_name) is not None
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

    def write(
        self, changes: DataFrame, *, span: BatchSpan, lease: Lease, keep_refused: KeepRefused = drop_nothing
    ) -> WriteReport:
        """Applies a change frame, then records the span under the lease's epoch.

        Rows are put and deleted by key, so a replay after a failure converges.

        Raises:
            DestinationError: the write failed for good; nothing is recorded as applied.
            LeaseHeldError: the lease was lost, or ends before the write can.
            RecordError: Tablestore does not take a row, and ``on-error`` is ``fail``.
        """
        from upsert_platform.tablestore.task import OUTCOME_DDL, TaskStats, too_many_refused
        from upsert_platform.tablestore.writer import writing_task

        lease.check()
        started = time.monotonic()
        if self.table.settings.parallelism is not None:
            changes = changes.repartition(self.table.settings.parallelism)
        task = writing_task(self.table, epoch=lease.epoch, expires=lease.deadline.timestamp())
        total = TaskStats()
        refused: list[RefusedRow] = []
        with _errors_of_tasks():
            for outcome in changes.mapInArrow(task, OUTCOME_DDL).collect():
                if outcome.stats is not None:
                    total.add(TaskStats.from_json(outcome.stats))
                else:
                    refused.append(RefusedRow(outcome.key, outcome.row, outcome.reason))
        if total.refused > self.table.settings.max_refused_rows:
            raise too_many_refused(self.name, self.table.settings, total.refused, refused[0])
        keep_refused(refused)
        lease.check()
        if not self._control.record_applied(span, epoch=lease.epoch):
            lease.check()
            raise LeaseHeldError(
                f"table '{self.name}': another writer took the lease while this one wrote, so batch {span.upto} is not"
                " recorded as applied; run the write again"
            )
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

    def read(self, spark: SparkSession, *, keys: DataFrame | None = None) -> DataFrame:
        """Rows of the table in declared types: all, by the table's partitions, or those of some keys, 100 at a time.

        Args:
            keys: columns named as the primary key. Duplicates are asked for once.
        """
        from upsert_platform.tablestore.ranges import read_ranges
        from upsert_platform.tablestore.reader import RANGES_DDL, fetching_task, scanning_task

        schema = ", ".join(f"`{column.name}` {spark_type(column.type)}" for column in self.columns if column.type)
        if keys is not None:
            wanted = keys.select(*[f"`{name}`" for name in self.primary_key]).distinct()
            return wanted.mapInArrow(fetching_task(self.table), schema)
        ranges = read_ranges(self.table)
        frame = spark.createDataFrame([(bounds,) for bounds in ranges], RANGES_DDL).repartition(len(ranges))
        return frame.mapInArrow(scanning_task(self.table), schema)

    def record_verdict(self, verdict: Verdict) -> None:
        """Keeps the result of a check beside the applied batch."""
        self._control.record_verdict(verdict)


_RAISED = re.compile(r"^upsert_platform\.(?:\w+\.)+(\w+): (.*)$", re.MULTILINE)
_ERRORS = {"LeaseHeldError": LeaseHeldError, "RecordError": RecordError, "DestinationError": DestinationError}


@contextmanager
def _errors_of_tasks() -> Iterator[None]:
    """Turns what Spark reports of a failed task into the error that the task raised."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raised = _RAISED.findall(str(error))
        if not raised:
            raise
        kind, message = raised[-1]
        raise _ERRORS.get(kind, DestinationError)(message) from error
