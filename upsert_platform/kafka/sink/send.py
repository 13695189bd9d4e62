"""Hands encoded records to a producer, as many at a time as its queue takes. Runs in Spark workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from upsert_platform.kafka.sink.written_metadata import NO_TIMESTAMP, Header

if TYPE_CHECKING:
    from confluent_kafka import Producer


def send(
    producer: Producer,
    topic: str,
    records: Sequence[tuple[bytes, bytes | None]],
    *,
    timestamps: Sequence[int] | None = None,
    headers: Sequence[list[Header]] | None = None,
    partition: int | None = None,
    on_delivery: Callable[[Any, Any], None] | None = None,
    while_waiting: Callable[[], None],
) -> None:
    """Queues records in order; returns when all are queued, not when they are delivered.

    Args:
        records: keys and values.
        partition: that all go to; the one that follows from the key if None.
        timestamps: ms since 1970, NO_TIMESTAMP for the client's clock; None when that is meant of all.
        on_delivery: the producer's own if None, which takes less time per record.
        while_waiting: called whenever the queue is full.
    """
    more = {
        name: value for name, value in (("partition", partition), ("on_delivery", on_delivery)) if value is not None
    }
    produce = partial(producer.produce, **more) if more else producer.produce
    if timestamps is None and headers is None:
        for key, value in records:
            while True:
                try:
                    produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
                    while_waiting()
        return
    carried = zip(
        records,
        timestamps if timestamps is not None else repeat(NO_TIMESTAMP),
        headers if headers is not None else repeat(None),
        strict=False,  # what repeats has no end
    )
    for (key, value), timestamp, of_record in carried:
        while True:
            try:
                produce(topic, value, key, timestamp=timestamp, headers=of_record or None)
                break
            except BufferError:
                producer.poll(0.1)
                while_waiting()
