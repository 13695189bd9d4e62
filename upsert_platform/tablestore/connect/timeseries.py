"""Records to rows of the time-series model (specification section 4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from upsert_platform.tablestore import limits
from upsert_platform.tablestore.connect.converted import read_record
from upsert_platform.tablestore.connect.record import ConnectRecord, Fields
from upsert_platform.tablestore.connect.timeseries_options import TOPIC, TimeseriesTable
from upsert_platform.tablestore.connect.values import (
    DirtyRecordError,
    Value,
    automatic,
    converted,
    fate_of_record,
    text_of,
)

_MICROSECONDS: Final = {
    "SECONDS": (1_000_000, 1),
    "MILLISECONDS": (1_000, 1),
    "MICROSECONDS": (1, 1),
    "NANOSECONDS": (1, 1_000),
}
_MAX_MEASUREMENT, _MAX_SOURCE, _MAX_TAGS, _MAX_FIELD_NAME = 128, 256, 512, 128
_FIELD_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_RESERVED = {"_m_name", "_data_source", "_tags", "_time", "_meta_update_time", "_attributes"}
_PRINTABLE = re.compile(r"[\x20-\x7e]+")


@dataclass(frozen=True, slots=True)
class TimeseriesPoint:
    """A row of a time-series table.

    Attributes:
        time: microseconds since 1970.
        fields: at least one.
    """

    measurement: str
    source: str
    tags: Mapping[str, str]
    time: int
    fields: Mapping[str, Value]


@fate_of_record
def timeseries_point(record: ConnectRecord, table: TimeseriesTable) -> TimeseriesPoint | None:
    """Turns a record into a row; None when a transform drops it. The key is read for transforms alone.

    Raises:
        DirtyRecordError: the record cannot become one; the message is the reason.
    """
    key_side = table.key_side if table.transforms.reads_keys else None
    found = read_record(record, key_side, table.value_side, table.transforms)
    if found is None:
        return None
    record, side = found.record, found.value
    if not isinstance(side, Fields) or side.schema is not None:
        raise DirtyRecordError("the value is null, or has a schema; a time-series row is made of a plain JSON object")
    values = side.values
    return TimeseriesPoint(
        measurement=_measurement(record, values, table),
        source=_source(values, table),
        tags=_tags(values, table),
        time=_time(values, table),
        fields=_fields(values, table),
    )


def _measurement(record: ConnectRecord, values: Mapping[str, Any], table: TimeseriesTable) -> str:
    by_topic = table.measurement == TOPIC
    name = record.topic if by_topic else text_of(_required(values, table.measurement, "measurement"))
    if not 1 <= len(name.encode()) <= _MAX_MEASUREMENT or "#" in name or any(letter.isspace() for letter in name):
        raise DirtyRecordError(f"measurement '{name[:200]}' is not 1 to 128 bytes without blanks and '#'")
    return name


def _source(values: Mapping[str, Any], table: TimeseriesTable) -> str:
    if table.source is None:
        return ""
    if table.source not in values:
        raise DirtyRecordError(f"data source field '{table.source}' is absent")
    found = values[table.source]
    source = "" if found is None else text_of(found)
    if len(source.encode()) > _MAX_SOURCE:
        raise DirtyRecordError(f"the data source has {len(source.encode())} bytes; Tablestore takes {_MAX_SOURCE}")
    return source


def _tags(values: Mapping[str, Any], table: TimeseriesTable) -> dict[str, str]:
    texts = {name: text_of(values[name]) for name in table.tags if values.get(name) is not None}
    # An empty value is a tag that the timeline does not have, as null is: the SDKs take no tag without a value.
    tags = {name: text for name, text in texts.items() if text}
    for name, value in tags.items():
        for part in (name, value):
            if '"' in part or "=" in part:
                raise DirtyRecordError(f"tag '{name}' holds a quotation mark or '=', which Tablestore does not take")
        if not _PRINTABLE.fullmatch(name):
            raise DirtyRecordError(f"tag name '{name}' is not printable ASCII")
    size = len(("[" + ",".join(f'"{name}={value}"' for name, value in tags.items()) + "]").encode())
    if size > _MAX_TAGS:
        raise DirtyRecordError(f"the tags have {size} bytes; Tablestore takes {_MAX_TAGS}")
    return tags


def _time(values: Mapping[str, Any], table: TimeseriesTable) -> int:
    found = _required(values, table.time, "time")
    if isinstance(found, bool) or not isinstance(found, int):
        raise DirtyRecordError(f"time field '{table.time}' is not a JSON integer")
    times, divisor = _MICROSECONDS[table.unit]
    time = found * times // divisor
    # A range of times is read up to a time that is left out, so the last of 64 bits could not be read back.
    if not 0 <= time < limits.MAX_INTEGER:
        raise DirtyRecordError(f"time field '{table.time}': {found} {table.unit} is before 1970 or beyond 64 bits")
    return time


def _fields(values: Mapping[str, Any], table: TimeseriesTable) -> dict[str, Value]:
    taken = {table.measurement, table.source, table.time, *table.tags}
    listed = {name.lower(): kind for name, kind in table.fields}
    fields: dict[str, Value] = {}
    for original, value in values.items():
        if original in taken or value is None:
            continue
        wanted = listed.get(original.lower())
        if wanted is None and not table.map_all:
            continue
        name = original.lower() if table.lower_case else original
        if name in fields:
            raise DirtyRecordError(f"two fields are named '{name}' in lower case; rename one")
        fields[name] = _field(name, value, wanted)
    if not fields:
        raise DirtyRecordError("the record has no data field that is not null")
    if len(fields) > limits.MAX_COLUMNS_PER_ROW:
        raise DirtyRecordError(f"the row has {len(fields)} fields; Tablestore takes {limits.MAX_COLUMNS_PER_ROW}")
    return fields


def _field(name: str, value: Any, wanted: str | None) -> Value:
    if not _FIELD_NAME.fullmatch(name) or len(name) > _MAX_FIELD_NAME or name in _RESERVED:
        raise DirtyRecordError(
            f"field '{name[:200]}': Tablestore takes 1 to {_MAX_FIELD_NAME} lower case letters, digits and '_', not"
            " starting with a digit, and none of its own names"
        )
    try:
        cell = automatic(value) if wanted is None else converted(value, wanted)
    except DirtyRecordError as error:
        raise DirtyRecordError(f"field '{name}': {error}") from None
    size = len(cell.encode() if isinstance(cell, str) else cell) if isinstance(cell, str | bytes) else 0
    if size > limits.MAX_VALUE_BYTES:
        raise DirtyRecordError(f"field '{name}' has {size} bytes; Tablestore takes 2 MB")
    return cell


def _required(values: Mapping[str, Any], name: str, role: str) -> Any:
    found = values.get(name)
    if found is None:
        raise DirtyRecordError(f"{role} field '{name}' is {'null' if name in values else 'absent'}")
    return found
