"""The task that writes a partition of a change frame. Runs in Spark workers, through ``mapInArrow``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from upsert_platform.destination import RefusedRow
from upsert_platform.errors import DestinationError, RecordError
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.control import ControlTable
from upsert_platform.tablestore.encoder import RowOperation
from upsert_platform.tablestore.guard import LeaseGuard
from upsert_platform.tablestore.refused import refused_row
from upsert_platform.tablestore.rows import Block, blocks_of, encode_block, requests_of
from upsert_platform.tablestore.sender import Delivery, Sender
from upsert_platform.tablestore.settings import TablestoreTable
from upsert_platform.tablestore.transport import Endpoint, Transport

OUTCOME_SCHEMA = pa.schema(
    [("stats", pa.string()), ("key", pa.string()), ("row", pa.string()), ("reason", pa.string())]
)
"""What a task yields: refused rows (key, row, reason), and one row with its `TaskStats` as JSON."""
OUTCOME_DDL = "stats STRING, key STRING, row STRING, reason STRING"
_REFUSED_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class TaskStats:
    """Counts of one task; every row of its partition is in exactly one of the first four, or refused."""

    puts: int = 0
    updates: int = 0
    deletes: int = 0
    superseded: int = 0
    refused: int = 0
    requests: int = 0
    retried_rows: int = 0
    throttled: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def to_json(self) -> str:
        """The form that a task yields."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> TaskStats:
        """The inverse of to_json."""
        return TaskStats(**json.loads(text))

    def add(self, other: TaskStats) -> None:
        """Sums up tasks."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


def writing_task(
    table: TablestoreTable, *, epoch: int, expires: float
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` that writes a change frame under a lease.

    Args:
        epoch: of the lease.
        expires: of the lease as known now, seconds since 1970.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = _Task(table, epoch=epoch, expires=expires)
        try:
            yield from task.run(batches)
        finally:
            task.close()

    return write


class _Task:
    def __init__(self, table: TablestoreTable, *, epoch: int, expires: float) -> None:
        settings = table.settings
        self._table = table
        self._client = Client.of(settings)
        control = ControlTable(self._client, settings, table.table_name)
        self._transport = Transport(Endpoint.of(settings), connections=settings.max_concurrency)
        guard = LeaseGuard(
            table=table.name,
            epoch=epoch,
            expires=expires,
            request_timeout=settings.request_timeout.total_seconds(),
            read_tenure=control.tenure,
        )
        self._sender = Sender(
            self._transport,
            table=table.table_name,
            guard=guard,
            retry_deadline=settings.retry_deadline,
            concurrency=settings.max_concurrency,
        )
        self._stats = TaskStats()
        self._refused_bytes = 0

    def close(self) -> None:
        self._sender.close()
        self._transport.close()
        self._client.close()

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        started = time.monotonic()
        rows = 0
        settings = self._table.settings
        for batch in batches:
            rows += batch.num_rows
            for part in blocks_of(batch):
                block = encode_block(part, self._table)
                if block.refused:
                    yield self._refused(block, block.refused)
                for chosen in requests_of(block, max_rows=settings.flush_rows, max_bytes=settings.flush_bytes):
                    self._count_operations(block, chosen)
                    for tag, delivery in self._sender.submit(block, block.encoded, chosen):
                        yield from self._account(tag, delivery)
        for tag, delivery in self._sender.drain():
            yield from self._account(tag, delivery)
        self._stats.seconds = time.monotonic() - started
        self._check(rows)
        yield _outcome([self._stats.to_json()], [])

    def _count_operations(self, block: Block, chosen: range) -> None:
        counts = np.bincount(block.operations[chosen.start : chosen.stop], minlength=4)
        self._stats.puts += int(counts[RowOperation.PUT])
        self._stats.updates += int(counts[RowOperation.UPDATE])
        self._stats.deletes += int(counts[RowOperation.DELETE])

    def _account(self, tag: object, delivery: Delivery) -> Iterator[pa.RecordBatch]:
        assert isinstance(tag, Block)
        stats = self._stats
        stats.requests += delivery.requests
        stats.retried_rows += delivery.retried
        stats.throttled += delivery.throttled
        stats.bytes += delivery.bytes
        stats.superseded += len(delivery.superseded)
        for position in (*delivery.superseded, *delivery.refused):
            self._uncount(RowOperation(int(tag.operations[position])))
        if delivery.refused:
            yield self._refused(tag, {int(tag.rows[row]): reason for row, reason in delivery.refused.items()})

    def _uncount(self, operation: RowOperation) -> None:
        match operation:
            case RowOperation.PUT:
                self._stats.puts -= 1
            case RowOperation.UPDATE:
                self._stats.updates -= 1
            case RowOperation.DELETE:
                self._stats.deletes -= 1

    def _refused(self, block: Block, reasons: dict[int, str]) -> pa.RecordBatch:
        settings = self._table.settings
        rows = [refused_row(block.changes, row, self._table, reason) for row, reason in sorted(reasons.items())]
        if settings.on_error == "fail":
            raise RecordError(
                f"table '{self._table.name}': Tablestore does not take the row {rows[0].key}: {rows[0].reason}."
                " Mend the row or its source, or set 'on-error' = 'quarantine'"
            )
        self._stats.refused += len(rows)
        self._refused_bytes += sum(len(row.row) for row in rows)
        if self._stats.refused > settings.max_refused_rows or self._refused_bytes > _REFUSED_BYTES:
            raise too_many_refused(self._table, self._stats.refused, rows[0])
        return _outcome([], rows)

    def _check(self, rows: int) -> None:
        stats = self._stats
        counted = stats.puts + stats.updates + stats.deletes + stats.superseded + stats.refused
        if counted != rows:
            raise DestinationError(
                f"table '{self._table.name}': {rows} changes came in and {counted} are accounted for; nothing was"
                " recorded as applied. This is a defect of the writer"
            )


def too_many_refused(table: TablestoreTable, count: int, example: RefusedRow) -> DestinationError:
    """The write is stopped, because so many refused rows say that the declaration is wrong."""
    return DestinationError(
        f"table '{table.name}': {count} rows were refused, more than 'max.refused.rows' ="
        f" {table.settings.max_refused_rows} or 64 MB of them; for example {example.key}: {example.reason}. Mend the"
        " declaration or the source, or raise the option; nothing was recorded as applied"
    )


def _outcome(stats: list[str], refused: list[RefusedRow]) -> pa.RecordBatch:
    empty = [None] * len(stats)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(stats + [None] * len(refused), pa.string()),
            pa.array(empty + [row.key for row in refused], pa.string()),
            pa.array(empty + [row.row for row in refused], pa.string()),
            pa.array(empty + [row.reason for row in refused], pa.string()),
        ],
        schema=OUTCOME_SCHEMA,
    )
