"""The task that writes Kafka records by the connector's semantics. Runs in Spark workers, through ``mapInArrow``."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from upsert_platform.destination import RefusedRow
from upsert_platform.tablestore.connect.change import RowChange, row_change
from upsert_platform.tablestore.connect.coalesce import merge
from upsert_platform.tablestore.connect.encode import encode_changes
from upsert_platform.tablestore.connect.record import ConnectRecord
from upsert_platform.tablestore.connect.settings import ConnectTable
from upsert_platform.tablestore.connect.values import AUTO_INCREMENT, DirtyRecordError
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform.tablestore.rows import Block, without_oversized
from upsert_platform.tablestore.task import WritingTask

RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")
"""Of a frame of records: STRING, INT, BIGINT, BIGINT (milliseconds, or null), BINARY, BINARY."""
KEY_COLUMN = "_key"
"""Added by `key_task`: BINARY, the same for records of one row; null for records without a key of their own."""
_BLOCK_RECORDS = 2_000
_BLOCK_BYTES = 16 * 1024 * 1024

Batches = Iterator[pa.RecordBatch]


def key_task(tables: Mapping[str, ConnectTable]) -> Callable[[Batches], Batches]:
    """The function for ``mapInArrow`` that adds `KEY_COLUMN`, to bring the records of a row together in order.

    Args:
        tables: topic to table.
    """

    def add_keys(batches: Batches) -> Batches:
        for batch in batches:
            keys = [_key_bytes(record, tables[record.topic]) for record in _records(batch)]
            yield batch.append_column(KEY_COLUMN, pa.array(keys, pa.binary()))

    return add_keys


def records_task(
    tables: Mapping[str, ConnectTable], settings: TablestoreSettings, *, table_name: str, epoch: int, expires: float
) -> Callable[[Batches], Batches]:
    """The function for ``mapInArrow`` that writes records to one table under a lease.

    Records of one row must be in one partition, next to each other and in order: those that `key_task` gave one key,
    by offset. In the key modes ``kafka`` and ``search`` every record is a row, so any order will do.

    Args:
        tables: topic to table; several topics may share one.
        epoch: of the lease.
        expires: of the lease as known now, seconds since 1970.
    """

    def write(batches: Batches) -> Batches:
        task = WritingTask(settings, name=table_name, table_name=table_name, epoch=epoch, expires=expires)
        try:
            yield from task.run(blocks_of_records(batches, tables))
        finally:
            task.close()

    return write


@dataclass(slots=True)
class _Gathered:
    """Records of a block under construction.

    Attributes:
        changes: each with the positions in `records` whose effect it holds.
        dirty: position in `records` to reason.
    """

    records: list[ConnectRecord] = field(default_factory=list)
    changes: list[tuple[RowChange, list[int]]] = field(default_factory=list)
    dirty: dict[int, str] = field(default_factory=dict)
    bytes: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.records) >= _BLOCK_RECORDS or self.bytes >= _BLOCK_BYTES

    def follows_last(self, change: RowChange) -> bool:
        """Whether the change is one of the same row as the last one."""
        return bool(self.changes) and _same_row(self.changes[-1][0], change)

    def add(self, record: ConnectRecord, change: RowChange | str, merged: RowChange | None) -> None:
        """Adds a record with its change, or why it has none; `merged` replaces the last change."""
        position = len(self.records)
        self.records.append(record)
        self.bytes += len(record.key or b"") + len(record.value or b"")
        if isinstance(change, str):
            self.dirty[position] = change
        elif merged is not None:
            self.changes[-1] = (merged, [*self.changes[-1][1], position])
        else:
            self.changes.append((change, [position]))


def blocks_of_records(batches: Batches, tables: Mapping[str, ConnectTable]) -> Iterator[Block | None]:
    """Encodes records in bounded blocks that hold every row once; None where the next must wait for the last."""
    gathered = _Gathered()
    for batch in batches:
        for record in _records(batch):
            change = _change(record, tables[record.topic])
            same = not isinstance(change, str) and gathered.follows_last(change)
            merged = merge(gathered.changes[-1][0], change) if same and not isinstance(change, str) else None
            if gathered.is_full or (same and merged is None):
                yield _block(gathered)
                if same:
                    yield None
                gathered, merged = _Gathered(), None
            gathered.add(record, change, merged)
    if gathered.records:
        yield _block(gathered)


def _change(record: ConnectRecord, table: ConnectTable) -> RowChange | str:
    try:
        return row_change(record, table)
    except DirtyRecordError as error:
        return str(error)


def _same_row(earlier: RowChange, later: RowChange) -> bool:
    values = [value for _, value in later.key]
    if any(value is AUTO_INCREMENT for value in values):
        return False
    found = [value for _, value in earlier.key]
    return found == values and [type(value) for value in found] == [type(value) for value in values]


def _block(gathered: _Gathered) -> Block:
    records = gathered.records
    held = {positions[-1]: positions for _, positions in gathered.changes}
    changes = [change for change, _ in gathered.changes]
    return without_oversized(
        Block(
            source_rows=len(records),
            encoded=encode_changes(changes),
            rows=np.fromiter(held, np.int64, len(held)),
            operations=np.fromiter((change.operation for change in changes), np.uint8, len(changes)),
            refused=gathered.dirty,
            describe=lambda row, reason: [refused_record(records[at], reason) for at in held.get(row, [row])],
            merged=sum(len(positions) - 1 for positions in held.values()),
        )
    )


def refused_record(record: ConnectRecord, reason: str) -> RefusedRow:
    """A record as text: JSON with its coordinates, key and value (base64), so that it can be replayed."""
    place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    sides = {
        name: None if data is None else base64.b64encode(data).decode()
        for name, data in (("key", record.key), ("value", record.value))
    }
    return RefusedRow(
        key=json.dumps(place, separators=(",", ":")),
        row=json.dumps({**place, "timestamp": record.timestamp, **sides}, separators=(",", ":")),
        reason=reason,
    )


def _records(batch: pa.RecordBatch) -> Iterator[ConnectRecord]:
    topic, partition, offset, timestamp, key, value = (batch.column(name).to_pylist() for name in RECORD_COLUMNS)
    for index in range(batch.num_rows):
        yield ConnectRecord(topic[index], partition[index], offset[index], key[index], value[index], timestamp[index])


def _key_bytes(record: ConnectRecord, table: ConnectTable) -> bytes | None:
    try:
        change = row_change(record, table)
    except DirtyRecordError:
        return None
    if any(value is AUTO_INCREMENT for _, value in change.key):
        return None
    parts = [value.hex() if isinstance(value, bytes) else value for _, value in change.key]
    return json.dumps([table.name, *parts], ensure_ascii=False, separators=(",", ":")).encode()
