"""Sources whose batches are snapshots: a table that is read whole, and read again when that is due.

A snapshot is one batch, so that the batch is the table at one moment. One of n rows takes n + 1 numbers of its only
lane; the batch behind a repeated one, which deletes the keys that it did not meet, takes one.
"""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import OffsetRange, RangeAccount
from upsert_platform.changelog.data_files import DataFile, files_by_tasks, write_rows
from upsert_platform.changelog.head import Head, Positions
from upsert_platform.changelog.landed_rows import account_row, change_rows, deletes_of_unmet
from upsert_platform.changelog.rows import arrow_schema
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.capabilities import Shares
from upsert_platform.core.model import Table
from upsert_platform.core.source import MODE_UPSERT, Landed, TakesSnapshots
from upsert_platform.core.task_runner import TaskRunner, numbers_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_LANE: Final = 0


class Lane(NamedTuple):
    """Numbers of the only lane: rows, as the server estimates them."""

    partition: int
    low: int
    end: int


class TableStream(NamedTuple):
    """The table as it is now; `topic_id` is its identity."""

    name: str
    topic_id: str
    partitions: tuple[Lane, ...]

    @classmethod
    def of(cls, name: str, identity: str, rows: int) -> TableStream:
        """A table of about so many rows."""
        return cls(name, identity, (Lane(_LANE, 0, rows),))


class Progress(NamedTuple):
    """The state after a batch: when its snapshot was taken (0: a new one is asked for), and the batch that it is; keys
    of earlier batches are to be deleted next where `unmet` is set.
    """

    taken: float = 0
    batch: int = 0
    unmet: bool = False


@dataclass(frozen=True)
class SnapshotSource(TakesSnapshots):
    """A table that is read by snapshots; what reads it says how.

    Attributes:
        stream: name of the table, as rows and positions show it.
        interval: how old a snapshot may be before a new one is due; None where one is taken when it is asked for.
    """

    stream: str
    interval: timedelta | None

    @abstractmethod
    def take(self, spark: Callable[[], SparkSession], part: SnapshotPart, runner: TaskRunner | None) -> list[DataFile]:
        """Reads the table at one moment into files of the changelog. Raises what `land` does."""

    @property
    def mode(self) -> str:
        """``upsert``: a row has a key."""
        return MODE_UPSERT

    def _progress(self, positions: Positions) -> Progress | None:
        found = positions.topic_ids.get(self.stream)
        return None if found is None else Progress(*json.loads(found))

    def _number(self, positions: Positions) -> int:
        return positions.offsets.get(self.stream, {}).get(_LANE, 0)

    def backlog(self, streams: Sequence[TableStream], positions: Positions) -> Sequence[OffsetRange]:
        """A snapshot that is due, of as many rows as the server estimates; deletes that are left of the last one."""
        known, interval, start = self._progress(positions), self.interval, 0
        if known is not None:
            start = self._number(positions)
            aged = interval is not None and time.time() - known.taken >= interval.total_seconds()
            if known.taken and not known.unmet and not aged:
                return ()
        return (OffsetRange(self.stream, _LANE, start, start + streams[0].partitions[0].end + 1),)

    def remaining(self, backlog: Sequence[OffsetRange], positions: Positions) -> Iterator[OffsetRange]:
        """The snapshot until it is taken, however many rows it proves to have, and its deletes behind it."""
        known, number = self._progress(positions), self._number(positions)
        if known is not None and known.unmet:
            yield OffsetRange(self.stream, _LANE, number, number + 1)
        else:
            yield from (item for item in backlog if item.start == number)

    def bound(
        self, ranges: Sequence[OffsetRange], *, record_bytes: float | None, widened: int = 1
    ) -> tuple[OffsetRange, ...]:
        """All: a snapshot is one batch."""
        del record_bytes, widened
        return tuple(ranges)

    def land(
        self,
        spark: Callable[[], SparkSession],
        ranges: Sequence[OffsetRange],
        *,
        streams: Sequence[TableStream],
        head: Head,
        location: TableLocation,
        runner: TaskRunner | None = None,
    ) -> Landed:
        """Takes a snapshot, or deletes the keys that the last one did not meet.

        Raises:
            DestinationError: the server refuses to be read, or a value is not of its declared type.
            EndpointError: the server does not answer, or refuses the login.
        """
        known, number, batch = self._progress(head.positions), self._number(head.positions), head.batch + 1
        if known is not None and known.unmet:
            files = self._deletes(spark(), known, head=head, location=location)
            deletes = sum(item.rows for item in files)
            account = RangeAccount(self.stream, _LANE, number, number + 1, gaps=1, rows=deletes)
            return self._landed(files, account, known._replace(unmet=False), head=head, location=location)
        taken = time.time()
        files = self.take(spark, SnapshotPart(self.table, self.stream, number, batch, location), runner)
        count = sum(item.rows for item in files)
        account = RangeAccount(
            self.stream, _LANE, number, number + count + 1, records=count, gaps=1, kept=count, rows=count
        )
        return self._landed(files, account, Progress(taken, batch, known is not None), head=head, location=location)

    def begin_anew(self, head: Head, *, location: TableLocation) -> Landed:
        """A batch without rows, behind which a new snapshot is due."""
        number = self._number(head.positions)
        account = RangeAccount(self.stream, _LANE, number, number)
        return self._landed([], account, Progress(), head=head, location=location)

    def publish(self, positions: Positions) -> None:
        """Nobody else looks."""

    def _deletes(self, spark: SparkSession, known: Progress, *, head: Head, location: TableLocation) -> list[DataFile]:
        store, number = ChangelogStore(location, self.table, mode=self.mode), self._number(head.positions)
        gone = deletes_of_unmet(
            spark, store, before=known.batch, upto=head.batch, stream=self.stream, lane=_LANE, offset=number
        )
        return store.write(gone, batch=head.batch + 1)

    def _landed(
        self, files: list[DataFile], account: RangeAccount, progress: Progress, *, head: Head, location: TableLocation
    ) -> Landed:
        schema = arrow_schema(self.table)
        counts = write_rows([account_row(schema, account)], location=location, schema=schema, batch=head.batch + 1)
        positions = head.positions.advanced({(self.stream, _LANE): account.end}, {self.stream: json.dumps(progress)})
        return Landed([*files, *counts], positions)


@dataclass(frozen=True)
class SnapshotPart:
    """Makes changes of a batch of the rows that tasks read; all of them stand at one number."""

    table: Table
    stream: str
    number: int
    batch: int
    location: TableLocation

    def files(self, shares: Shares, number: int) -> list[DataFile]:
        """Reads a share of the table's rows by this process."""
        schema = arrow_schema(self.table)
        changes = self._changes(shares.read(numbers_of([number])), schema)
        return write_rows(changes, location=self.location, schema=schema, batch=self.batch)

    def files_by_one_task(self, shares: Shares, runner: TaskRunner | None) -> list[DataFile]:
        """Reads the first share by one task, or by this process where nothing runs tasks."""
        task = partial(self.files, shares, 0)
        return task() if runner is None else runner.call(task, what=f"read {self.stream}")

    def files_by_tasks(self, spark: SparkSession, shares: Shares) -> list[DataFile]:
        """Reads all shares, each by a task of Spark."""
        tasks = [partial(self.files, shares, number) for number in range(shares.count)]
        return files_by_tasks(spark, tasks, what=f"read {self.stream}")

    def _changes(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        first, now = 0, pa.scalar(datetime.now(UTC), schema.field(rows.TIMESTAMP).type)
        for batch in batches:
            count = batch.num_rows
            given: dict[str, Any] = {
                rows.KIND: pa.repeat(pa.scalar(rows.KIND_UPDATE_AFTER), count),
                rows.OFFSET: pa.repeat(pa.scalar(self.number, pa.int64()), count),
                rows.ROW: pa.array(range(first, first + count), pa.int32()),
                rows.TIMESTAMP: pa.repeat(now, count),
            }
            values = {name: batch.column(name) for name in batch.schema.names}
            yield change_rows(schema, values, stream=self.stream, lane=_LANE, given=given)
            first += count
