"""Records after their converters and transforms: what rows and points are made of."""

from __future__ import annotations

from dataclasses import dataclass, replace

from upsert_platform.tablestore.connect.data import NOTHING
from upsert_platform.tablestore.connect.record import ConnectRecord, Side, SideFormat, read_data, read_side, side_of
from upsert_platform.tablestore.connect.transforms.chain import Chain
from upsert_platform.tablestore.connect.transforms.record import SinkRecord


@dataclass(frozen=True, slots=True)
class Converted:
    """A record as the connector gets it.

    Attributes:
        record: with the topic that it was routed to.
    """

    record: ConnectRecord
    key: Side
    value: Side


def read_record(
    record: ConnectRecord, key: SideFormat | None, value: SideFormat, transforms: Chain
) -> Converted | None:
    """Reads a record; None when a transform drops it.

    Args:
        key: None where nobody needs the key.

    Raises:
        UndecodableError: a converter or a transform would fail.
        DirtyRecordError: a side is neither text nor an object with fields.
    """
    if not transforms.steps:
        read = None if key is None else read_side(record.key, key, "key")
        return Converted(record, read, read_side(record.value, value, "value"))
    found = transforms.apply(
        SinkRecord(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            NOTHING if key is None else read_data(record.key, key, "key"),
            read_data(record.value, value, "value"),
            tuple(name for name, _ in record.headers),
        )
    )
    if found is None:
        return None
    routed = record if found.topic == record.topic else replace(record, topic=found.topic)
    return Converted(routed, None if key is None else side_of(found.key, "key"), side_of(found.value, "value"))
