"""Reads one offset range into changelog rows: fetch, reduce, decode, account. Runs in Spark workers."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog.accounting import OffsetRange, RangeAccount
from upsert_platform.changelog.reduce import LatestByKey, Verdicts, between_older_and_refused, find_older
from upsert_platform.errors import RecordError
from upsert_platform.kafka.decode import RecordDecoder
from upsert_platform.kafka.fetch import borrow_consumer, fetch_range, first_offset
from upsert_platform.kafka.settings import OnDataLoss, OnError
from upsert_platform.kafka.table import KafkaTable

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_RECORDS: Final = 50_000
BLOCK_BYTES: Final = 16 << 20
"""Decoding takes some times the size of its input, so blocks are bounded by bytes as well."""
REASON_NO_KEY: Final = "key: it is null, so the record belongs to no row"


@dataclass(slots=True)
class _Counts:
    records: int = 0
    bytes: int = 0
    kept: int = 0
    superseded: int = 0
    quarantined: int = 0
    rows: int = 0
    tombstones: int = 0
    skipped: dict[str, int] = field(default_factory=dict)


class RangeReader:
    """Reads ranges of one table.

    Args:
        reduces: keep only the last record per raw key (mode ``upsert``), or every record (mode ``append``).
        fetch: gives the records of a range, in lists; from the brokers unless it is given.
    """

    def __init__(
        self, table: KafkaTable, *, reduces: bool, fetch: Callable[[OffsetRange], Iterator[list[Any]]] | None = None
    ) -> None:
        self._table = table
        self._endpoint = table.endpoint
        self._decoder = RecordDecoder(table)
        self._reduces = reduces
        self._fails = table.settings.on_error is OnError.FAIL
        self._skip_deleted = table.settings.on_data_loss is OnDataLoss.CONTINUE
        self._fetch = fetch or self._fetch_from_brokers

    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Batches of changes, then quarantined records, per part of the range that fits the buffer; last the account.

        Raises:
            RecordError: a record cannot be decoded and ``on-error`` is ``fail``; names the lowest offset.
            TopicError: records are gone.
            EndpointError: the brokers do not answer.
        """
        counts = _Counts()
        collecting = gc.isenabled()
        gc.disable()  # hundreds of thousands of records are alive, none in a cycle: collections only cost
        try:
            yield from self._read_reduced(wanted, counts) if self._reduces else self._read_all(wanted, counts)
        finally:
            if collecting:
                gc.enable()
        lost = self._lost(wanted) if self._skip_deleted and counts.records < wanted.offsets else 0
        account = RangeAccount(
            wanted.topic,
            wanted.partition,
            wanted.start,
            wanted.end,
            records=counts.records,
            gaps=wanted.offsets - counts.records,
            kept=counts.kept,
            superseded=counts.superseded,
            quarantined=counts.quarantined,
            skipped=tuple(sorted(counts.skipped.items())),
            rows=counts.rows,
            tombstones=counts.tombstones,
            bytes=counts.bytes,
            lost=lost,
        )
        yield self._decoder.accounting(wanted.topic, wanted.partition, wanted.start, account.to_json())

    def _lost(self, wanted: OffsetRange) -> int:
        with borrow_consumer(self._endpoint) as consumer:
            return max(0, min(first_offset(consumer, wanted), wanted.end) - wanted.start)

    def _fetch_from_brokers(self, wanted: OffsetRange) -> Iterator[list[Any]]:
        return fetch_range(self._endpoint, wanted, skip_deleted=self._skip_deleted)

    def _read_all(self, wanted: OffsetRange, counts: _Counts) -> Iterator[pa.RecordBatch]:
        block: list[Any] = []
        size = 0
        for records in self._fetch(wanted):
            block += records
            added = sum(map(len, records)) + sum(len(record.key() or b"") for record in records)
            counts.records += len(records)
            counts.bytes += added
            size += added
            if len(block) >= BLOCK_RECORDS or size >= BLOCK_BYTES:
                yield from self._decode_every(block, counts)
                block, size = [], 0
        if block:
            yield from self._decode_every(block, counts)

    def _decode_every(self, block: list[Any], counts: _Counts) -> Iterator[pa.RecordBatch]:
        """Mode append: no record replaces another, so one that cannot be decoded needs no older one."""
        without_key = [record for record in block if record.key() is None] if self._table.is_upsert else []
        if without_key:
            block = [record for record in block if record.key() is not None]
        refused = [(record, REASON_NO_KEY) for record in without_key]
        refused += yield from self._decode(block, counts)
        yield from self._quarantine(refused, counts)

    def _read_reduced(self, wanted: OffsetRange, counts: _Counts) -> Iterator[pa.RecordBatch]:
        buffer = LatestByKey(budget=self._table.settings.buffer_bytes)
        start = wanted.start
        for records in self._fetch(wanted):
            end = records[-1].offset() + 1
            buffer.add(records)
            if buffer.is_full():
                part = OffsetRange(wanted.topic, wanted.partition, start, end)
                yield from self._flush(part, buffer, counts)
                buffer = LatestByKey(budget=self._table.settings.buffer_bytes)
                start = end
        yield from self._flush(OffsetRange(wanted.topic, wanted.partition, start, wanted.end), buffer, counts)

    def _flush(self, part: OffsetRange, buffer: LatestByKey, counts: _Counts) -> Iterator[pa.RecordBatch]:
        """Turns what was reduced into rows. `part` is where the value that a key had before may be looked for."""
        counts.records += buffer.records
        counts.bytes += buffer.bytes
        counts.superseded += buffer.superseded
        refused: list[tuple[Any, str]] = [(record, REASON_NO_KEY) for record in buffer.without_key]
        before: dict[bytes, int] = {}
        for block in _blocks(buffer.survivors()):
            passed_over: list[tuple[Any, str]] = yield from self._decode(block, counts, before=before)
            refused += passed_over
        if self._fails and refused:
            record, reason = min(refused, key=lambda item: item[0].offset())
            raise self._record_error(record, reason)
        yield from self._quarantine(refused, counts)
        if before:
            yield from self._decode_older(part, before, counts)

    def _decode_older(self, part: OffsetRange, before: dict[bytes, int], counts: _Counts) -> Iterator[pa.RecordBatch]:
        """For keys whose last record gave nothing: the highest record of the part that does, in its place.

        The part is fetched again, since replaced records were not kept. Those between the two are undecodable as well,
        so they were not replaced by anything: they go to quarantine instead of counting as superseded.
        """
        below = OffsetRange(part.topic, part.partition, part.start, max(before.values()))
        older = find_older(self._fetch(below), before, self._judge)
        for block in _blocks(list(older.found.values())):
            counts.superseded -= len(block)
            yield from self._decode(block, counts)
        if older.passed_over:
            counts.superseded -= older.passed_over
            for block in between_older_and_refused(self._fetch(below), before, older.found):
                refused: list[tuple[Any, str]] = yield from self._decode(block, counts)
                yield from self._quarantine(refused, counts)

    def _judge(self, records: Sequence[Any]) -> Verdicts:
        return self._decoder.decode(records).verdicts

    def _decode(self, block: Sequence[Any], counts: _Counts, *, before: dict[bytes, int] | None = None) -> Any:
        """Yields the changes of a block and returns the records refused, with reasons.

        Args:
            before: gets the raw keys of records that gave nothing, with their offsets.
        """
        if not block:
            return []
        decoded = self._decoder.decode(block)
        verdicts = decoded.verdicts
        counts.kept += len(block) - len(verdicts.refused) - len(verdicts.skipped)
        counts.rows += decoded.batch.num_rows
        counts.tombstones += decoded.tombstones
        for rule in verdicts.skipped.values():
            counts.skipped[rule] = counts.skipped.get(rule, 0) + 1
        if before is not None:
            before.update(
                (block[index].key(), block[index].offset()) for index in (*verdicts.refused, *verdicts.skipped)
            )
        if decoded.batch.num_rows:
            yield decoded.batch
        return [(block[index], reason) for index, reason in verdicts.refused.items()]

    def _quarantine(self, refused: list[tuple[Any, str]], counts: _Counts) -> Iterator[pa.RecordBatch]:
        if not refused:
            return
        if self._fails:
            raise self._record_error(*min(refused, key=lambda item: item[0].offset()))
        counts.quarantined += len(refused)
        refused.sort(key=lambda item: item[0].offset())
        for block in _blocks([record for record, _ in refused]):
            reasons = [reason for _, reason in refused[: len(block)]]
            del refused[: len(block)]
            yield self._decoder.quarantine(block, reasons)

    def _record_error(self, record: Any, reason: str) -> RecordError:
        return RecordError(
            f"table '{self._table.name}': record {record.topic()}-{record.partition()} at offset {record.offset()}"
            f" cannot be decoded: {reason}; mend its producer, or set 'on-error' = 'quarantine' to keep it aside"
        )


def _blocks(records: list[Any]) -> Iterator[list[Any]]:
    """Splits records into blocks bounded by number and bytes."""
    block: list[Any] = []
    size = 0
    for start in range(0, len(records), 1_000):
        piece = records[start : start + 1_000]
        size += sum(map(len, piece))
        block += piece
        if len(block) >= BLOCK_RECORDS or size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block
