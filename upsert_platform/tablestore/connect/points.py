"""The task that writes Kafka records as time-series rows. Runs in Spark workers, through ``mapInArrow``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

from upsert_platform.core.destination import RefusedRow
from upsert_platform.core.masking import NO_MASK, Mask
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.connect.frame import Batches, records_of
from upsert_platform.tablestore.connect.record import ConnectRecord
from upsert_platform.tablestore.connect.refusals import REFUSED, RefusedRecord, to_row
from upsert_platform.tablestore.connect.timeseries import TimeseriesPoint, timeseries_point
from upsert_platform.tablestore.connect.timeseries_options import TimeseriesTable
from upsert_platform.tablestore.connect.timeseries_writer import TimeseriesWriter
from upsert_platform.tablestore.connect.values import DirtyRecordError
from upsert_platform.tablestore.control import ControlTable
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform.tablestore.task import TaskStats
from upsert_platform.tablestore.transport import Endpoint, Transport
from upsert_platform.writing.lease import LeaseGuard, Terms
from upsert_platform.writing.refused_output import OpenFile, RefusedOutput

_BLOCK_RECORDS = 2_000
_BLOCK_BYTES = 16 * 1024 * 1024


def point_key(record: ConnectRecord, table: TimeseriesTable) -> bytes | None:
    """The same bytes for records of one timeline and time, which are one row; None for one that is dropped.

    Raises:
        DirtyRecordError: the record cannot become a row.
    """
    point = timeseries_point(record, table)
    if point is None:
        return None
    parts = [point.measurement, point.source, sorted(point.tags.items()), point.time]
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()


def points_task(
    table: TimeseriesTable,
    settings: TablestoreSettings,
    *,
    name: str,
    terms: Terms,
    mask: Mask = NO_MASK,
    open_file: OpenFile | None = None,
) -> Callable[[Batches], Batches]:
    """The function for ``mapInArrow`` that writes records to one time-series table under a lease.

    Records of one row must be in one partition and in order (`frame.in_order`); they are in blocks of their own, which
    are written one after the other, so that the last one counts. The requests of a block are in flight together.

    Args:
        name: of the declared table, for messages.
        terms: of the lease.
        mask: what messages do not show.
        open_file: opens a file for refused records; without it the task yields them.
    """

    def write(batches: Batches) -> Batches:
        started = time.monotonic()
        client = Client.of(settings)
        transport = Transport(Endpoint.of(settings), connections=settings.max_concurrency)
        guard = LeaseGuard(
            terms, ControlTable(client, settings, table.name).tenure, longest=settings.request_timeout.total_seconds()
        )
        writer = TimeseriesWriter(
            transport,
            table.name,
            time_for_request=guard.time_for_request,
            retry_deadline=settings.retry_deadline,
            rows_per_request=min(table.rows_per_batch, settings.flush_rows),
            bytes_per_request=settings.flush_bytes,
            concurrency=settings.max_concurrency,
        )
        stats = TaskStats()
        output = RefusedOutput(f"table '{name}'", open_file=open_file, most=settings.max_refused_rows, mask=mask)
        try:
            for block in _blocks(batches, table):
                refused = _write(block, writer)
                stats.puts += len(block.records) - len(refused)
                stats.refused += len(refused)
                stats.filtered += block.filtered
                if refused:
                    yield from output.add(refused)
            stats.requests = writer.requests
            stats.seconds = time.monotonic() - started
            yield output.end(stats.to_json())
        finally:
            output.close()
            writer.close()
            transport.close()
            client.close()

    return write


class _Block:
    """Records that become different rows, or none."""

    def __init__(self) -> None:
        self.records: list[ConnectRecord] = []
        self.points: dict[int, TimeseriesPoint] = {}
        self.dirty: dict[int, DirtyRecordError] = {}
        self.filtered = 0
        self._rows: set[tuple[object, ...]] = set()
        self._bytes = 0

    def add(self, record: ConnectRecord, table: TimeseriesTable) -> bool:
        """Adds a record; False when the block is full or has its row already."""
        if len(self.records) >= _BLOCK_RECORDS or self._bytes >= _BLOCK_BYTES:
            return False
        position = len(self.records)
        try:
            point = timeseries_point(record, table)
        except DirtyRecordError as error:
            self.dirty[position] = error
        else:
            if point is None:
                self.filtered += 1
                return True
            row = (point.measurement, point.source, tuple(sorted(point.tags.items())), point.time)
            if row in self._rows:
                return False
            self._rows.add(row)
            self.points[position] = point
        self.records.append(record)
        self._bytes += len(record.key or b"") + len(record.value or b"")
        return True


def _blocks(batches: Batches, table: TimeseriesTable) -> Iterator[_Block]:
    block = _Block()
    for batch in batches:
        for record in records_of(batch):
            if not block.add(record, table):
                yield block
                block = _Block()
                block.add(record, table)
    if block.records or block.filtered:
        yield block


def _write(block: _Block, writer: TimeseriesWriter) -> list[RefusedRow]:
    places = list(block.points)
    refused = {
        places[index]: RefusedRecord(block.records[places[index]], REFUSED, reason)
        for index, reason in writer.put(list(block.points.values())).items()
    }
    for place, error in block.dirty.items():
        refused[place] = RefusedRecord(block.records[place], type(error).__name__, str(error))
    return [to_row(refused[place]) for place in sorted(refused)]
