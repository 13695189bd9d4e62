"""Reads one offset range into changelog rows: fetch, reduce, decode, account. Runs in Spark workers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from upsert_platform.changelog.accounting import OffsetRange, RangeAccount
from upsert_platform.core.collections_off import collections_off
from upsert_platform.core.errors import RecordError
from upsert_platform.core.masking import Mask
from upsert_platform.kafka.modes import OnDataLoss, OnError
from upsert_platform.kafka.source.decode import RecordDecoder
from upsert_platform.kafka.source.fetch import borrow_consumer, fetch_range, first_offset
from upsert_platform.kafka.source.records import RecordBlock
from upsert_platform.kafka.source.reduce import (
    LatestByKey,
    Verdicts,
    between_older_and_refused,
    find_older,
)
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
        with collections_off():
            yield from self._read_reduced(wanted, counts) if self._reduces else self._read_all(wanted, counts)
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
        """Mode append: no record replaces another, so one that cannot be decoded needs no older one."""
        pending: list[Any] = []
        blocks: list[RecordBlock] = []
        size = 0
        for records in self._fetch(wanted):
            # At once, while what the client handed over is in the processor's cache.
            blocks.append(RecordBlock.of(records, keep=self._decoder.needs_records))
            pending += records
            size += blocks[-1].payload
            if len(pending) >= BLOCK_RECORDS or size >= BLOCK_BYTES:
                yield from self._decode_every(RecordBlock.concat(blocks), pending, counts)
                pending, blocks, size = [], [], 0
        if pending:
            yield from self._decode_every(RecordBlock.concat(blocks), pending, counts)

    def _decode_every(self, block: RecordBlock, records: list[Any], counts: _Counts) -> Iterator[pa.RecordBatch]:
        """Changes and quarantined records of a block, of which the client's objects are kept for the latter."""
        counts.records += len(block)
        counts.bytes += block.payload
        refused: list[tuple[Any, str]] = []
        if self._table.is_upsert and block.keys.null_count:
            null = block.keys.is_null().to_numpy(zero_copy_only=False)
            refused = [(records[row], REASON_NO_KEY) for row in np.flatnonzero(null).tolist()]
            present = np.flatnonzero(~null)
            block, records = block.take(present), [records[row] for row in present.tolist()]
        if len(block):
            verdicts = yield from self._decode(block, counts)
            refused += [(records[row], reason) for row, reason in verdicts.refused.items()]
        yield from self._quarantine(refused, counts)

    def _read_reduced(self, wanted: OffsetRange, counts: _Counts) -> Iterator[pa.RecordBatch]:
        buffer = self._new_buffer()
        start = wanted.start
        for records in self._fetch(wanted):
            end = records[-1].offset() + 1
            buffer.add(records)
            if buffer.is_full():
                yield from self._flush(OffsetRange(wanted.topic, wanted.partition, start, end), buffer, counts)
                buffer, start = self._new_buffer(), end
        yield from self._flush(OffsetRange(wanted.topic, wanted.partition, start, wanted.end), buffer, counts)

    def _new_buffer(self) -> LatestByKey:
        return LatestByKey(budget=self._table.settings.buffer_bytes, keep=self._decoder.needs_records)

    def _flush(self, part: OffsetRange, buffer: LatestByKey, counts: _Counts) -> Iterator[pa.RecordBatch]:
        """Turns what was reduced into rows. `part` is where the value that a key had before may be looked for."""
        survivors = buffer.survivors()
        counts.records += buffer.records
        counts.bytes += buffer.bytes
        counts.superseded += buffer.superseded(survivors)
        before: dict[bytes, int] = {}
        reasons: dict[int, str] = {}
        pieces = survivors.slices(most_records=BLOCK_RECORDS, most_bytes=BLOCK_BYTES) if survivors is not None else ()
        for block in pieces:
            verdicts: Verdicts = yield from self._decode(block, counts)
            for row in (*verdicts.refused, *verdicts.skipped):
                before[block.keys[row].as_py()] = int(block.offsets[row])
            reasons.update((int(block.offsets[row]), reason) for row, reason in verdicts.refused.items())
        if self._fails and (reasons or buffer.without_key):
            bad = {**{record.offset(): REASON_NO_KEY for record in buffer.without_key}, **reasons}
            raise self._record_error(part, min(bad), bad[min(bad)])
        yield from self._quarantine([(record, REASON_NO_KEY) for record in buffer.without_key], counts)
        if before:
            yield from self._decode_older(part, before, reasons, counts)

    def _decode_older(
        self, part: OffsetRange, before: dict[bytes, int], reasons: dict[int, str], counts: _Counts
    ) -> Iterator[pa.RecordBatch]:
        """For keys whose last record gave nothing: the highest record of the part that does, in its place.

        The part is fetched again, since replaced records were not kept, and neither were the headers that quarantine
        wants. Records between the two give nothing as well, so nothing replaced them: they go to quarantine (or are
        skipped by name) instead of counting as superseded.

        Args:
            reasons: offsets of the refused records, of the whole part.
        """
        upto = OffsetRange(part.topic, part.partition, part.start, max(before.values()) + 1)
        refused: list[tuple[Any, str]] = []

        def tapped() -> Iterator[list[Any]]:
            for records in self._fetch(upto):
                refused.extend((record, reasons[record.offset()]) for record in records if record.offset() in reasons)
                yield records

        older = find_older(tapped(), before, self._judge)
        yield from self._quarantine(refused, counts)
        found = sorted(older.found.values(), key=lambda record: record.offset())
        for start in range(0, len(found), BLOCK_RECORDS):
            block = RecordBlock.of(found[start : start + BLOCK_RECORDS], keep=True)
            counts.superseded -= len(block)
            yield from self._decode(block, counts)
        if older.passed_over:
            counts.superseded -= older.passed_over
            for records in between_older_and_refused(self._fetch(upto), before, older.found):
                verdicts: Verdicts = yield from self._decode(RecordBlock.of(records, keep=True), counts)
                passed = [(records[row], reason) for row, reason in verdicts.refused.items()]
                yield from self._quarantine(passed, counts)

    def _judge(self, records: Sequence[Any]) -> Verdicts:
        return self._decoder.decode(RecordBlock.of(records, keep=True)).verdicts

    def _decode(self, block: RecordBlock, counts: _Counts) -> Generator[pa.RecordBatch, None, Verdicts]:
        """Yields the changes of a block, counts them, and returns which records gave none."""
        decoded = self._decoder.decode(block)
        verdicts = decoded.verdicts
        counts.kept += len(block) - len(verdicts.refused) - len(verdicts.skipped)
        counts.rows += decoded.batch.num_rows
        counts.tombstones += decoded.tombstones
        for rule in verdicts.skipped.values():
            counts.skipped[rule] = counts.skipped.get(rule, 0) + 1
        if decoded.batch.num_rows:
            yield decoded.batch
        return verdicts

    def _quarantine(self, refused: list[tuple[Any, str]], counts: _Counts) -> Iterator[pa.RecordBatch]:
        """Rows that keep refused records, lowest offset first."""
        if not refused:
            return
        refused.sort(key=lambda item: item[0].offset())
        records = [record for record, _ in refused]
        if self._fails:
            wanted = OffsetRange(records[0].topic(), records[0].partition(), 0, 0)
            raise self._record_error(wanted, records[0].offset(), refused[0][1])
        counts.quarantined += len(refused)
        start = 0
        for block in RecordBlock.of(records, keep=True).slices(most_records=BLOCK_RECORDS, most_bytes=BLOCK_BYTES):
            reasons = [reason for _, reason in refused[start : start + len(block)]]
            start += len(block)
            yield self._decoder.quarantine(block, reasons)

    def _record_error(self, place: OffsetRange, offset: int, reason: str) -> RecordError:
        told = Mask.of(self._table.table).reason(reason)
        return RecordError(
            f"table '{self._table.name}': record {place.topic}-{place.partition} at offset {offset} cannot be decoded:"
            f" {told}; mend its producer, or set 'on-error' = 'quarantine' to keep it aside"
        )
