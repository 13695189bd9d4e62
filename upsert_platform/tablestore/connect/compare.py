"""Compares a connector's table with the records that were written to it. Runs in Spark workers, through ``mapInArrow``.

The records of a row tell what must be in it: all of its cells after one that puts or deletes the row; only the cells
that they name where all of them merge into what was there before.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa

from upsert_platform.core.capabilities import EXPIRY_MARGIN
from upsert_platform.core.masking import MASKED
from upsert_platform.tablestore.connect.change import RowChange, row_change
from upsert_platform.tablestore.connect.coalesce import same_row
from upsert_platform.tablestore.connect.frame import BATCH, Batches, records_of
from upsert_platform.tablestore.connect.options import KeyMode
from upsert_platform.tablestore.connect.point_reading import Timeline, fetch_points
from upsert_platform.tablestore.connect.reading import Key, cells_text, fetch_rows, open_transport
from upsert_platform.tablestore.connect.record import ConnectRecord
from upsert_platform.tablestore.connect.refusals import place_text
from upsert_platform.tablestore.connect.table import ConnectSink
from upsert_platform.tablestore.connect.timeseries import timeseries_point
from upsert_platform.tablestore.connect.values import AutoIncrement, DirtyRecordError, Value
from upsert_platform.tablestore.encoder import RowOperation
from upsert_platform.tablestore.sdk import silence_sdk
from upsert_platform.tablestore.transport import Transport

COMPARED_DDL: Final = "status STRING, count BIGINT, key STRING, difference STRING"
_SCHEMA: Final = pa.schema(
    [("status", pa.string()), ("count", pa.int64()), ("key", pa.string()), ("difference", pa.string())]
)
_ROWS: Final = 100
_EXAMPLES: Final = 20
MISSING, EXTRA, STALE, REFUSED, EXPIRED = "missing", "extra", "stale", "refused", "expired"


class Expired:
    """The values that may have expired.

    Args:
        batch: of a changelog, up to which cells were written so long ago; 0 if none.
        seconds: that points are kept after the time which is part of them; None for ever.
    """

    def __init__(self, batch: int = 0, seconds: int | None = None) -> None:
        self.batch = batch
        now = datetime.now(UTC) + EXPIRY_MARGIN
        self.time = None if seconds is None else int((now.timestamp() - seconds) * 1_000_000)


NOTHING: Final = Expired()


@dataclass(slots=True)
class Expected:
    """The expected content of a row.

    Attributes:
        key: primary key values; of time series name, source, tags as text and time.
        exists: None when the records do not tell.
        cells: that it must have.
        absent: cells that it must not have.
        whole: whether it must have no other cells.
        refused: whether Tablestore refused one of its records.
        batches: the last batch that wrote a cell, or the row, whose name is then empty.
    """

    key: Key
    exists: bool | None = None
    cells: dict[str, Value] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    whole: bool = False
    refused: bool = False
    batches: dict[str, int] = field(default_factory=dict)

    def apply(self, change: RowChange, batch: int) -> None:
        """Apply the service's semantics of a change (specification section 5.3).

        Args:
            batch: of the changelog, in which the record came.
        """
        self.batches.update(dict.fromkeys(("", *change.cells), batch))
        if change.operation is not RowOperation.UPDATE:
            self.cells = dict(change.cells)
            self.absent, self.whole = set(), True
            self.exists = change.operation is RowOperation.PUT
            return
        for name in change.removed:
            self.cells.pop(name, None)
            self.absent.add(name)
        self.cells.update(change.cells)
        self.absent -= set(change.cells)
        self.exists = True if change.cells else self.exists

    def judge(self, found: Mapping[str, Value] | None, expired: Expired) -> tuple[str | None, str]:
        """Status, None when the row is as it must be, and the cells that differ."""
        if self.refused:
            return REFUSED, ""
        if found is None:
            if not self.exists:
                return None, ""
            kept = any(not self._may_be_gone(name, expired) for name in ("", *self.cells))
            return (MISSING if kept else EXPIRED), ""
        if self.exists is False:
            return EXTRA, ""
        differing = [
            f"{name}: expected {self.cells.get(name)!r}, found {found.get(name)!r}"
            for name in sorted({*self.cells, *(self.absent & set(found)), *(found if self.whole else ())})
            if not _equal(self.cells.get(name), found.get(name))
            and (name in found or not self._may_be_gone(name, expired))
        ]
        return (STALE, "; ".join(differing)) if differing else (None, "")

    def _may_be_gone(self, name: str, expired: Expired) -> bool:
        """Return whether a cell is so old that the table may have dropped it; cells expire one by one."""
        if expired.time is not None:
            return int(str(self.key[-1])) <= expired.time
        return self.batches.get(name, expired.batch + 1) <= expired.batch


def _equal(expected: Value | None, found: Value | None) -> bool:
    return type(expected) is type(found) and expected == found


def comparing_task(
    sink: ConnectSink, refused: Collection[str], expired: Expired = NOTHING
) -> Callable[[Batches], Batches]:
    """The function for ``mapInArrow`` that compares the rows of records, in the order in which they were written.

    It yields how many rows have a status (null when they are right), rows that differ apart as long as there are few:
    with their key as JSON and what differs.

    Args:
        refused: places, as `upsert_platform.tablestore.connect.refusals.place_text` gives them.
        expired: what may be gone by itself.
    """
    known = frozenset(refused)

    def compare(batches: Batches) -> Batches:
        silence_sdk()
        expected = (
            _expected_points(batches, sink, known) if sink.points is not None else _expected(batches, sink, known)
        )
        with closing(open_transport(sink)) as transport:
            counts: Counter[str | None] = Counter()
            examples: list[dict[str, object]] = []
            for block in _blocks(expected):
                if sink.points is not None:
                    found = _found_points(transport, sink, block)
                else:
                    found = fetch_rows(transport, sink, [item.key for item in block])
                for item in block:
                    status, difference = item.judge(found.get(item.key), expired)
                    if status in (None, REFUSED, EXPIRED) or len(examples) == _EXAMPLES:
                        counts[status] += 1
                    else:
                        key = cells_text({str(index): value for index, value in enumerate(item.key)})
                        if sink.mask:
                            key, difference = MASKED, ""
                        examples.append({"status": status, "count": 1, "key": key, "difference": difference})
            summed = [{"status": status, "count": count} for status, count in counts.items()]
            yield pa.RecordBatch.from_pylist([*examples, *summed], schema=_SCHEMA)

    return compare


def _expected(batches: Batches, sink: ConnectSink, refused: frozenset[str]) -> Iterator[Expected]:
    waiting: Expected | None = None
    last: RowChange | None = None
    for record, change, at in _changes(batches, sink):
        if any(isinstance(value, AutoIncrement) for _, value in change.key):
            continue  # nobody knows which row it became
        if waiting is None or last is None or not same_row(last, change):
            if waiting is not None:
                yield waiting
            waiting = Expected(tuple(value for _, value in change.key))
        waiting.apply(change, at)
        waiting.refused = waiting.refused or place_text(record) in refused
        last = change
    if waiting is not None:
        yield waiting


def _changes(batches: Batches, sink: ConnectSink) -> Iterator[tuple[ConnectRecord, RowChange, int]]:
    for batch in batches:
        for record, at in zip(records_of(batch), batch.column(BATCH).to_pylist(), strict=True):
            table = sink.tables[record.topic]
            try:
                change = row_change(record, table)
            except DirtyRecordError:
                continue
            if change is None:
                continue
            if table.key_mode is KeyMode.SEARCH and table.search_timestamp == "local":
                cells = {name: value for name, value in change.cells.items() if name != "timestamp"}
                change = RowChange(RowOperation.UPDATE, change.key, cells)
            yield record, change, at


def _expected_points(batches: Batches, sink: ConnectSink, refused: frozenset[str]) -> Iterator[Expected]:
    assert sink.points is not None
    waiting: Expected | None = None
    for batch in batches:
        for record in records_of(batch):
            try:
                point = timeseries_point(record, sink.points)
            except DirtyRecordError:
                continue
            if point is None:
                continue
            tags = json.dumps(dict(point.tags), ensure_ascii=False, sort_keys=True)
            key = (point.measurement, point.source, tags, point.time)
            if waiting is not None and waiting.key != key:
                yield waiting
            waiting = Expected(key, exists=True, cells=dict(point.fields))
            waiting.refused = place_text(record) in refused
    if waiting is not None:
        yield waiting


def _found_points(transport: Transport, sink: ConnectSink, block: list[Expected]) -> dict[Key, dict[str, Value]]:
    times: dict[tuple[str, str, str], list[int]] = {}
    for item in block:
        measurement, source, tags, time = item.key
        times.setdefault((str(measurement), str(source), str(tags)), []).append(int(str(time)))
    found: dict[Key, dict[str, Value]] = {}
    for (measurement, source, tags), wanted in times.items():
        timeline = Timeline(measurement, source, json.loads(tags))
        for time, fields in fetch_points(transport, sink, timeline, wanted).items():
            found[(measurement, source, tags, time)] = fields
    return found


def _blocks(expected: Iterable[Expected]) -> Iterator[list[Expected]]:
    block: list[Expected] = []
    for item in expected:
        block.append(item)
        if len(block) == _ROWS:
            yield block
            block = []
    if block:
        yield block
