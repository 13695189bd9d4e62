"""The times of the first records of offset ranges, for telling how long they wait: one consumer, a record per range."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.errors import EndpointError
from upsert_platform.kafka.endpoint import REQUEST_SECONDS
from upsert_platform.kafka.refusals import raise_if_refused

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from upsert_platform.changelog.accounting import OffsetRange
    from upsert_platform.kafka.table import KafkaTable

_LITTLE: Final = {"queued.min.messages": 1, "fetch.message.max.bytes": 64 << 10, "queued.max.messages.kbytes": 1024}
"""One record of each partition is wanted; the client would fetch ahead."""
_NO_TIME: Final = 0
"""`TIMESTAMP_NOT_AVAILABLE` of the client."""


def first_times(table: KafkaTable, ranges: Sequence[OffsetRange]) -> list[datetime | None]:
    """Return the time (UTC) of the first record of each range, or None if it has none or was deleted meanwhile.

    Ranges that hold no record (transaction markers, what was aborted or compacted away) are left out.

    Raises:
        EndpointError: the brokers refuse, or do not answer within REQUEST_SECONDS.
    """
    from confluent_kafka import TopicPartition

    left = {(item.topic, item.partition): item for item in ranges if item.offsets}
    if not left:
        return []
    found: list[datetime | None] = []
    errors: list[KafkaError] = []
    endpoint = table.endpoint
    deadline = time.monotonic() + REQUEST_SECONDS
    with closing(endpoint.open_consumer(errors.append, **_LITTLE)) as consumer:
        consumer.assign([TopicPartition(item.topic, item.partition, item.start) for item in left.values()])
        while left:
            for message in consumer.consume(100, timeout=0.1):
                place = (message.topic(), message.partition())
                item = left.get(place)
                if item is not None and (times := _told(message, item)) is not None:
                    found += times
                    del left[place]
                    consumer.pause([TopicPartition(*place)])
            raise_if_refused(
                errors, servers=endpoint.servers, secrets=tuple(endpoint.properties.secrets()), connected=True
            )
            if left and time.monotonic() > deadline:
                topic, partition = next(iter(left))
                raise EndpointError(
                    f"Kafka {endpoint.servers}: the first record that waits in {topic}-{partition} did not come within"
                    f" {REQUEST_SECONDS:.0f} s"
                )
    return found


def _told(message: Any, item: OffsetRange) -> list[datetime | None] | None:
    """Return the times that a message implies for a range: a time, that there is no record, or None for nothing yet."""
    error = message.error()
    if error is None:
        if message.offset() >= item.end:
            return []
        kind, milliseconds = message.timestamp()
        return [None if kind == _NO_TIME else datetime.fromtimestamp(milliseconds / 1000, UTC)]
    if error.name() == "_PARTITION_EOF":
        return []
    return [None] if error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE") else None
