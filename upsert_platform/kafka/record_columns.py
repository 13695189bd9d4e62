"""Arrow columns of what a Kafka record carries besides key and value. Runs in Spark workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from upsert_platform.changelog import rows
from upsert_platform.kafka.metadata import metadata_key
from upsert_platform.model import Column
from upsert_platform.types import arrow_type

_TIMESTAMP_TYPES: Final = {0: "NoTimestampType", 1: "CreateTime", 2: "LogAppendTime"}


def place_columns(records: Sequence[Any]) -> dict[str, pa.Array]:
    """Topic, partition, offset and time of records of one partition, by changelog column."""
    count = len(records)
    stamps = pa.array([_microseconds(record) for record in records], pa.timestamp("us", tz="UTC"))
    return {
        rows.TOPIC: pa.repeat(pa.scalar(records[0].topic() if count else "", pa.string()), count),
        rows.PARTITION: pa.repeat(pa.scalar(records[0].partition() if count else 0, pa.int32()), count),
        rows.OFFSET: pa.array([record.offset() for record in records], pa.int64()),
        rows.TIMESTAMP: stamps,
    }


def metadata_column(records: Sequence[Any], column: Column) -> pa.Array:
    """A declared metadata column, one value per record, in the column's own type."""
    assert column.type is not None
    kind = arrow_type(column.type)
    match metadata_key(column):
        case "timestamp":
            return pa.array([_microseconds(record) for record in records], kind)
        case "header-list":
            assert column.type.element is not None
            names = tuple(item.name for item in column.type.element.fields)
            return pa.array([header_rows(record, names) for record in records], kind)
        case key:
            return pa.array([_READERS[key](record) for record in records], kind)


def header_rows(record: Any, names: tuple[str, ...] = ("key", "value")) -> list[dict[str, Any]]:
    """Headers in order, repeated ones included, as rows of a name and a value."""
    return [dict(zip(names, header, strict=True)) for header in record.headers() or ()]


def _header_map(record: Any) -> list[tuple[str, bytes | None]]:
    return list(dict(record.headers() or ()).items())  # of a repeated name the last one counts


def _microseconds(record: Any) -> int | None:
    kind, milliseconds = record.timestamp()
    return milliseconds * 1000 if kind else None


_READERS: Final[dict[str, Any]] = {
    "topic": lambda record: record.topic(),
    "partition": lambda record: record.partition(),
    "offset": lambda record: record.offset(),
    "leader-epoch": lambda record: record.leader_epoch(),
    "timestamp-type": lambda record: _TIMESTAMP_TYPES[record.timestamp()[0]],
    "headers": _header_map,
}
