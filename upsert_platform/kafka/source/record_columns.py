"""Arrow columns of what a Kafka record carries besides key and value. Runs in Spark workers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from upsert_platform.changelog import rows
from upsert_platform.core.model import Column
from upsert_platform.core.types import arrow_type
from upsert_platform.kafka.metadata import metadata_key
from upsert_platform.kafka.source.records import NO_TIME, RecordBlock

_LAST_ORDERED: Final = 253_402_300_799_999
"""Milliseconds of the last moment of year 9999: a later time orders records as this one does."""
_LAST_HELD: Final = (2**63 - 1) // 1000
"""Milliseconds of the last moment that microseconds can tell."""
_TIMESTAMP_TYPES: Final = {0: "NoTimestampType", 1: "CreateTime", 2: "LogAppendTime"}


def place_columns(block: RecordBlock) -> dict[str, pa.Array]:
    """Topic, partition, offset and time of records, by changelog column."""
    return {
        rows.TOPIC: pa.repeat(pa.scalar(block.topic, pa.string()), len(block)),
        rows.PARTITION: pa.repeat(pa.scalar(block.partition, pa.int32()), len(block)),
        rows.OFFSET: pa.array(block.offsets),
        rows.TIMESTAMP: _stamps(block.times, pa.timestamp("us", tz="UTC"), last=_LAST_ORDERED),
    }


def _stamps(times: np.ndarray, kind: pa.DataType, *, last: int) -> pa.Array:
    missing = times == NO_TIME
    return pa.array(np.minimum(times, last) * 1000, mask=missing if missing.any() else None).cast(kind)


def unheld_times(block: RecordBlock, column: Column) -> dict[int, str]:
    """Records whose time a declared metadata column cannot hold, each with the reason.

    Producers set times, and some of them in nanoseconds.
    """
    if metadata_key(column) != "timestamp":
        return {}
    return {
        row: f"timestamp: {block.times[row]} ms since 1970 are more than column '{column.name}' holds"
        for row in np.flatnonzero(block.times > _LAST_HELD).tolist()
    }


def needs_record(column: Column) -> bool:
    """Return whether a metadata column reads something of a record that its block has no column for."""
    return metadata_key(column) not in ("topic", "partition", "offset", "timestamp")


def metadata_column(block: RecordBlock, column: Column) -> pa.Array:
    """A declared metadata column, one value per record, in the column's own type."""
    assert column.type is not None
    kind = arrow_type(column.type)
    match metadata_key(column):
        case "timestamp":
            return _stamps(block.times, kind, last=_LAST_HELD)
        case "topic":
            return pa.repeat(pa.scalar(block.topic, kind), len(block))
        case "partition":
            return pa.repeat(pa.scalar(block.partition, kind), len(block))
        case "offset":
            return pa.array(block.offsets)
        case "header-list":
            assert column.type.element is not None
            names = tuple(item.name for item in column.type.element.fields)
            return pa.array([header_rows(record, names) for record in objects_of(block)], kind)
        case key:
            return pa.array([_READERS[key](record) for record in objects_of(block)], kind)


def objects_of(block: RecordBlock) -> np.ndarray:
    """The client's records of a block that was made with them."""
    assert block.records is not None
    return block.records


def header_rows(record: Any, names: tuple[str, ...] = ("key", "value")) -> list[dict[str, Any]]:
    """Headers in order, repeated ones included, as rows of a name and a value."""
    return [dict(zip(names, header, strict=True)) for header in record.headers() or ()]


def _header_map(record: Any) -> list[tuple[str, bytes | None]]:
    return list(dict(record.headers() or ()).items())  # of a repeated name the last one counts


_READERS: Final[dict[str, Any]] = {
    "leader-epoch": lambda record: record.leader_epoch(),
    "timestamp-type": lambda record: _TIMESTAMP_TYPES[record.timestamp()[0]],
    "headers": _header_map,
}
