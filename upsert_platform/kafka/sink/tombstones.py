"""Finds the records of one key in the topics of a table, and sends tombstones for them. For commands: no Spark.

Brokers compact by the bytes of a key, within a partition. One key may have been written in several spellings, or from
another partition before the topic was widened: each of them gets a tombstone of its own, where it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.core.errors import TopicError
from upsert_platform.kafka.source.fetch import close_consumers, fetch_range
from upsert_platform.kafka.source.offsets import discover
from upsert_platform.kafka.table import KafkaTable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class KeyBytes:
    """A spelling of a key in a partition.

    Attributes:
        records: of it, tombstones included.
        deleted: whether the last of them is a tombstone.
    """

    topic: str
    partition: int
    key: bytes
    records: int
    deleted: bool


def find_key(table: KafkaTable, of_record: Callable[[pa.Array], pa.Array]) -> list[KeyBytes]:
    """Reads the whole topics of a table for the records of a key.

    Args:
        of_record: which raw keys (binary) are the key.

    Raises:
        TopicError: a topic does not exist.
        EndpointError: the brokers cannot be reached, or refuse the login or the request.
    """
    import pyarrow as pa

    found: list[KeyBytes] = []
    try:
        for topic in discover(table):
            for item in topic.partitions:
                seen: dict[bytes, tuple[int, bool]] = {}
                span = OffsetRange(topic.name, item.partition, item.low, item.end)
                for messages in fetch_range(table.endpoint, span, skip_deleted=True):
                    new = list(dict.fromkeys(key for one in messages if (key := one.key()) is not None))
                    spellings = dict(zip(new, of_record(pa.array(new, pa.binary())).to_pylist(), strict=True))
                    _count(messages, seen, spellings)
                found += [KeyBytes(topic.name, item.partition, key, *told) for key, told in seen.items()]
    finally:
        close_consumers()
    return found


def _count(messages: list[Any], seen: dict[bytes, tuple[int, bool]], spellings: dict[bytes, bool]) -> None:
    for one in messages:
        key = one.key()
        if key is not None and spellings[key]:
            seen[key] = (seen.get(key, (0, False))[0] + 1, one.value() is None)


def send_tombstones(table: KafkaTable, keys: list[KeyBytes]) -> int:
    """Sends a tombstone for each spelling whose last record is none; how many.

    Raises:
        TopicError: the brokers did not take one of them.
    """
    from upsert_platform.kafka.sink.send import send

    wanted = [item for item in keys if not item.deleted]
    if not wanted:
        return 0
    failed: list[str] = []
    producer = table.endpoint.open_producer()

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error.str())

    for item in wanted:
        send(
            producer,
            item.topic,
            [(item.key, None)],
            partition=item.partition,
            on_delivery=delivered,
            while_waiting=lambda: None,
        )
    while producer.flush(1):
        pass
    if failed:
        raise TopicError(f"table '{table.name}': a tombstone was not taken by the brokers: {failed[0]}")
    return len(wanted)
