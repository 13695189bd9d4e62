"""The newest records of a table's topics, decoded as they are declared. For looking at them: no Spark, no position."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.kafka.source.decode import RecordDecoder
from upsert_platform.kafka.source.fetch import close_consumers, fetch_range
from upsert_platform.kafka.source.offsets import discover
from upsert_platform.kafka.source.read_range import REASON_NO_KEY
from upsert_platform.kafka.source.records import RecordBlock
from upsert_platform.kafka.table import KafkaTable

if TYPE_CHECKING:
    from upsert_platform.kafka.endpoint import KafkaEndpoint

_WIDER: Final = 8
"""By how much a span is widened whose offsets turned out to hold too few records (compaction, transactions)."""


@dataclass(frozen=True, slots=True)
class NewestRecords:
    """The newest records of some topics.

    Attributes:
        rows: in the schema of a changelog without `_batch`, the newest last; a record that gives no row is there as
            quarantined, with the reason.
        offsets: that all partitions span, records or not.
    """

    rows: pa.Table
    topics: tuple[str, ...]
    partitions: int
    offsets: int


def newest_records(table: KafkaTable, limit: int) -> NewestRecords:
    """The newest records of a table's topics.

    Within a partition the offset tells what is newer, between partitions the record's time.

    Args:
        limit: how many, at least 1.

    Raises:
        TopicError: a topic does not exist.
        EndpointError: the brokers cannot be reached, or refuse the login or the request.
    """
    topics = discover(table)
    spans = [
        OffsetRange(topic.name, item.partition, item.low, item.end) for topic in topics for item in topic.partitions
    ]
    try:
        found = [_dated(_last_of(table.endpoint, span, limit)) for span in spans]
    finally:
        close_consumers()
    ages = np.array([at for records in found for at, _ in records], np.int64)
    chosen = set(np.argsort(ages, kind="stable")[-limit:].tolist())
    decoder = RecordDecoder(table)
    dated: list[tuple[int, pa.RecordBatch]] = []
    place = 0
    for records in found:
        kept = [item for index, item in enumerate(records, place) if index in chosen]
        place += len(records)
        dated += [(at, batch) for at, message in kept for batch in _rows(decoder, table, message)]
    dated.sort(key=lambda item: item[0])
    rows = pa.Table.from_batches([batch for _, batch in dated], schema=decoder.schema)
    return NewestRecords(rows, tuple(topic.name for topic in topics), len(spans), sum(span.offsets for span in spans))


def _last_of(endpoint: KafkaEndpoint, span: OffsetRange, limit: int) -> list[Any]:
    """The last records of a partition; offsets without a record are passed over by looking further back."""
    wanted = limit
    while True:
        start = max(span.start, span.end - wanted)
        last: deque[Any] = deque(maxlen=limit)
        part = OffsetRange(span.topic, span.partition, start, span.end)
        for messages in fetch_range(endpoint, part, skip_deleted=True):
            last.extend(messages)
        if len(last) == limit or start == span.start:
            return list(last)
        wanted *= _WIDER


def _dated(records: Sequence[Any]) -> list[tuple[int, Any]]:
    """Records with a time to order them by among other partitions: never before that of an earlier offset."""
    latest, found = -1, []
    for record in records:
        latest = max(latest, record.timestamp()[1])
        found.append((latest, record))
    return found


def _rows(decoder: RecordDecoder, table: KafkaTable, message: Any) -> list[pa.RecordBatch]:
    """The rows of one record, or the record as it is, with the reason why it gives none."""
    block = RecordBlock.of([message], keep=True)
    if table.is_upsert and message.key() is None:
        return [decoder.quarantine(block, [REASON_NO_KEY])]
    decoded = decoder.decode(block)
    told = {**decoded.verdicts.refused, **{at: f"no row: {why}" for at, why in decoded.verdicts.skipped.items()}}
    return [decoder.quarantine(block, [told[0]])] if told else [decoded.batch]
