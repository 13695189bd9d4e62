"""The writing task for encoded rows: send them, count every source row, set rejected ones aside."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from upsert_platform.core.destination import RefusedRow
from upsert_platform.core.errors import DestinationError, RecordError
from upsert_platform.core.masking import Mask
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.control import ControlTable
from upsert_platform.tablestore.encoder import RowOperation
from upsert_platform.tablestore.lines import give_back, take_line
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform.tablestore.rows import Block, Creations, requests_of
from upsert_platform.tablestore.sender import Delivery, Sender
from upsert_platform.tablestore.transport import Endpoint
from upsert_platform.writing.lease import LeaseGuard, Terms
from upsert_platform.writing.outcomes import TaskStats as Counts
from upsert_platform.writing.refused_output import OpenFile, RefusedOutput


@dataclass(slots=True)
class TaskStats(Counts):
    """Counts of one task; every source row is in exactly one of the first seven."""

    puts: int = 0
    updates: int = 0
    deletes: int = 0
    superseded: int = 0
    merged: int = 0
    filtered: int = 0
    requests: int = 0
    retried_rows: int = 0
    throttled: int = 0
    bytes: int = 0
    seconds: float = 0.0


class WritingTask:
    """Writes blocks to one table under a lease. Runs in a Spark worker; whoever opens it closes it."""

    def __init__(
        self,
        settings: TablestoreSettings,
        *,
        name: str,
        table_name: str,
        mask: Mask,
        terms: Terms,
        open_file: OpenFile | None = None,
    ) -> None:
        """Takes a line.

        Args:
            name: of the declared table, for messages.
            mask: what messages do not show.
            terms: of the lease.
            open_file: opens a file for refused rows; without it the task yields them.
        """
        self._settings = settings
        self._name = name
        self._mask = mask
        self._client = Client.of(settings)
        control = ControlTable(self._client, settings, table_name)
        self._line = take_line(Endpoint.of(settings), requests=settings.max_concurrency)
        guard = LeaseGuard(terms, control.tenure, longest=settings.request_timeout.total_seconds())
        self._sender = Sender(
            self._line,
            table=table_name,
            guard=guard,
            retry_deadline=settings.retry_deadline,
            concurrency=settings.max_concurrency,
        )
        self._stats = TaskStats()
        self._output = RefusedOutput(f"table '{name}'", open_file=open_file, most=settings.max_refused_rows, mask=mask)

    def close(self) -> None:
        """Ends what is under way; connections and threads are left to the next task."""
        self._output.close()
        self._sender.close()
        give_back(self._line)
        self._client.close()

    def run(self, blocks: Iterable[Block | None]) -> Iterator[pa.RecordBatch]:
        """Writes blocks and yields outcomes; None between two blocks waits until all before it is written.

        Raises:
            DestinationError: the write failed for good.
            LeaseHeldError: the lease ends or was lost.
            RecordError: a row is refused, and ``on-error`` is ``fail``.
        """
        started = time.monotonic()
        rows = 0
        settings = self._settings
        for block in blocks:
            if block is None:
                yield from self._drain()
                continue
            rows += block.source_rows
            self._stats.merged += block.merged
            self._stats.filtered += block.filtered
            if block.refused:
                yield from self._refused(block, block.refused)
            for chosen in requests_of(block.encoded, max_rows=settings.flush_rows, max_bytes=settings.flush_bytes):
                self._count_operations(block, chosen)
                for tag, delivery in self._sender.submit(block, block.encoded, chosen):
                    yield from self._account(tag, delivery)
            if block.creations is not None:
                yield from self._create(block, block.creations)
        yield from self._drain()
        self._stats.seconds = time.monotonic() - started
        self._check(rows)
        yield self._output.end(self._stats.to_json())

    def _create(self, block: Block, creations: Creations) -> Iterator[pa.RecordBatch]:
        """Puts rows whose updates have been taken and may have made none."""
        yield from self._drain()
        settings, creations = self._settings, creations.without(block.refused)
        for chosen in requests_of(creations.encoded, max_rows=settings.flush_rows, max_bytes=settings.flush_bytes):
            for tag, delivery in self._sender.submit((block, creations), creations.encoded, chosen):
                yield from self._account(tag, delivery)

    def _drain(self) -> Iterator[pa.RecordBatch]:
        for tag, delivery in self._sender.drain():
            yield from self._account(tag, delivery)

    def _count_operations(self, block: Block, chosen: range) -> None:
        counts = np.bincount(block.operations[chosen.start : chosen.stop], minlength=4)
        self._stats.puts += int(counts[RowOperation.PUT])
        self._stats.updates += int(counts[RowOperation.UPDATE])
        self._stats.deletes += int(counts[RowOperation.DELETE])

    def _account(self, tag: object, delivery: Delivery) -> Iterator[pa.RecordBatch]:
        stats = self._stats
        stats.requests += delivery.requests
        stats.retried_rows += delivery.retried
        stats.throttled += delivery.throttled
        stats.bytes += delivery.bytes
        if isinstance(tag, Block):
            block, rows = tag, tag.rows
            stats.superseded += len(delivery.superseded)
            for position in (*delivery.superseded, *delivery.refused):
                self._uncount(RowOperation(int(tag.operations[position])))
        else:
            assert isinstance(tag, tuple)
            # Rows that were there all along are what was wanted: the update is what counts.
            block, rows = tag[0], tag[1].rows
            stats.updates -= len(delivery.refused)
        if delivery.refused:
            reasons = {int(rows[row]): reason for row, reason in delivery.refused.items()}
            block.refused.update(reasons)
            yield from self._refused(block, reasons)

    def _uncount(self, operation: RowOperation) -> None:
        match operation:
            case RowOperation.PUT:
                self._stats.puts -= 1
            case RowOperation.UPDATE:
                self._stats.updates -= 1
            case RowOperation.DELETE:
                self._stats.deletes -= 1

    def _refused(self, block: Block, reasons: dict[int, str]) -> Iterator[pa.RecordBatch]:
        rows: list[RefusedRow] = []
        for row, reason in sorted(reasons.items()):
            described = block.describe(row, reason)
            self._stats.merged -= len(described) - 1
            rows.extend(described)
        if self._settings.on_error == "fail":
            raise RecordError(
                f"table '{self._name}': Tablestore does not take the row {self._mask.told(rows[0])}."
                " Mend the row or its source, or set 'on-error' = 'quarantine'"
            )
        self._stats.refused += len(rows)
        yield from self._output.add(rows)

    def _check(self, rows: int) -> None:
        stats = self._stats
        counted = stats.puts + stats.updates + stats.deletes + stats.superseded + stats.refused + stats.merged
        counted += stats.filtered
        if counted != rows:
            raise DestinationError(
                f"table '{self._name}': {rows} changes came in and {counted} are accounted for; nothing was"
                " recorded as applied. This is a defect of the writer"
            )
