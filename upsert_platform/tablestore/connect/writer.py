"""The task that writes Kafka records by the connector's semantics. Runs in Spark workers, through ``mapInArrow``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from upsert_platform.core.destination import RefusedRow
from upsert_platform.core.masking import NO_MASK, Mask
from upsert_platform.tablestore.connect.change import RowChange, row_change
from upsert_platform.tablestore.connect.coalesce import merge, same_row
from upsert_platform.tablestore.connect.encode import encode_changes
from upsert_platform.tablestore.connect.frame import Batches, records_of
from upsert_platform.tablestore.connect.options import ConnectTable
from upsert_platform.tablestore.connect.record import ConnectRecord
from upsert_platform.tablestore.connect.refusals import REFUSED, RefusedRecord, to_row
from upsert_platform.tablestore.connect.values import DirtyRecordError
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform.tablestore.rows import Block, without_oversized
from upsert_platform.tablestore.task import WritingTask
from upsert_platform.writing.lease import Terms
from upsert_platform.writing.refused_output import OpenFile

_BLOCK_RECORDS = 2_000
_BLOCK_BYTES = 16 * 1024 * 1024
_MERGED_BYTES = 1024 * 1024
"""Records of one row are merged up to this size: a merged row must fit into a request."""


def records_task(
    tables: Mapping[str, ConnectTable],
    settings: TablestoreSettings,
    *,
    name: str,
    table_name: str,
    terms: Terms,
    mask: Mask = NO_MASK,
    open_file: OpenFile | None = None,
) -> Callable[[Batches], Batches]:
    """The function for ``mapInArrow`` that writes records to one table under a lease.

    Records of one row must be in one partition, next to each other and in order (`frame.in_order`). In the key modes
    ``kafka`` and ``search`` every record is a row, so any order will do.

    Args:
        tables: topic to table; several topics may share one.
        name: of the declared table, for messages.
        terms: of the lease.
        mask: what messages do not show.
        open_file: opens a file for refused records; without it the task yields them.
    """

    def write(batches: Batches) -> Batches:
        task = WritingTask(settings, name=name, table_name=table_name, mask=mask, terms=terms, open_file=open_file)
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
        dirty: position in `records` to the error.
        filtered: how many more were dropped by a transform.
        last_bytes: of the records that the last change holds.
    """

    records: list[ConnectRecord] = field(default_factory=list)
    changes: list[tuple[RowChange, list[int]]] = field(default_factory=list)
    dirty: dict[int, DirtyRecordError] = field(default_factory=dict)
    filtered: int = 0
    bytes: int = 0
    last_bytes: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.records) >= _BLOCK_RECORDS or self.bytes >= _BLOCK_BYTES

    def follows_last(self, change: RowChange) -> bool:
        """Return whether the change is one of the same row as the last one."""
        return bool(self.changes) and same_row(self.changes[-1][0], change)

    def merged(self, change: RowChange) -> RowChange | None:
        """The last change with this one; None where they must be sent in turn."""
        return merge(self.changes[-1][0], change) if self.last_bytes < _MERGED_BYTES else None

    def add(self, record: ConnectRecord, change: RowChange | DirtyRecordError, merged: RowChange | None) -> None:
        """Adds a record with its change, or why it has none; `merged` replaces the last change."""
        position = len(self.records)
        self.records.append(record)
        size = len(record.key or b"") + len(record.value or b"")
        self.bytes += size
        if isinstance(change, DirtyRecordError):
            self.dirty[position] = change
        elif merged is not None:
            self.changes[-1] = (merged, [*self.changes[-1][1], position])
            self.last_bytes += size
        else:
            self.changes.append((change, [position]))
            self.last_bytes = size


def blocks_of_records(batches: Batches, tables: Mapping[str, ConnectTable]) -> Iterator[Block | None]:
    """Encodes records in bounded blocks that hold every row once; None where the next must wait for the last."""
    gathered = _Gathered()
    for batch in batches:
        for record in records_of(batch):
            change = _change(record, tables[record.topic])
            if change is None:
                gathered.filtered += 1
                continue
            same, merged = False, None
            if isinstance(change, RowChange) and gathered.follows_last(change):
                same, merged = True, gathered.merged(change)
            if gathered.is_full or (same and merged is None):
                yield _block(gathered)
                if same:
                    yield None
                gathered, merged = _Gathered(), None
            gathered.add(record, change, merged)
    if gathered.records or gathered.filtered:
        yield _block(gathered)


def _change(record: ConnectRecord, table: ConnectTable) -> RowChange | DirtyRecordError | None:
    try:
        return row_change(record, table)
    except DirtyRecordError as error:
        return error


def _block(gathered: _Gathered) -> Block:
    records = gathered.records
    held = {positions[-1]: positions for _, positions in gathered.changes}
    changes = [change for change, _ in gathered.changes]
    dirty = gathered.dirty

    def describe(row: int, reason: str) -> list[RefusedRow]:
        error = type(dirty[row]).__name__ if row in dirty else REFUSED
        return [to_row(RefusedRecord(records[at], error, reason)) for at in held.get(row, [row])]

    return without_oversized(
        Block(
            source_rows=len(records) + gathered.filtered,
            encoded=encode_changes(changes),
            rows=np.fromiter(held, np.int64, len(held)),
            operations=np.fromiter((change.operation for change in changes), np.uint8, len(changes)),
            refused={row: str(error) for row, error in dirty.items()},
            describe=describe,
            merged=sum(len(positions) - 1 for positions in held.values()),
            filtered=gathered.filtered,
        )
    )
