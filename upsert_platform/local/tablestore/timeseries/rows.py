"""Rows of PutTimeseriesData: read from flatbuffers, checked, and put into the form in which they are stored and read.

A stored row is a PlainBuffer row: primary key ``_#h``, the timeseries key, ``_time`` and further key fields; one cell
``name:type`` per field.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastcrc.crc32 import iscsi as crc32c

from upsert_platform.local.tablestore import keys, limits, plainbuffer
from upsert_platform.local.tablestore.errors import invalid
from upsert_platform.local.tablestore.plainbuffer import KeyCell

LONG, BOOLEAN, DOUBLE, STRING, BINARY = 1, 2, 3, 4, 5
TYPE_NAMES = {LONG: "long", BOOLEAN: "boolean", DOUBLE: "double", STRING: "string", BINARY: "binary"}
DEFAULT_KEY = ("_m_name", "_data_source", "_tags")
_FIELD_NAME = re.compile(r"[a-z_][a-z0-9_]{0,127}")
_RESERVED = frozenset(("_m_name", "_data_source", "_tags", "_time", "_meta_update_time", "_attributes"))
_TAG_NAME = re.compile(r"[ !#-<>-~]+")
_BAD_IN_NAME = re.compile(r"[\s#]")
# Neither part holds a quotation mark, and no tag an equals sign; commas may stand in a value.
_TAG_TEXT = re.compile(r'\s*"([^"=]+)=([^"]*)"\s*')
_TAGS_TEXT = re.compile(rf"\[(?:{_TAG_TEXT.pattern}(?:,{_TAG_TEXT.pattern})*)?\s*\]", re.DOTALL)

Tags = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """A timeline: measurement, data source and tags in order of name."""

    measurement: str = ""
    source: str = ""
    tags: Tags = ()


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """One point of a timeline; fields as name to (type, Python value); time in microseconds."""

    key: SeriesKey
    time: int
    fields: dict[str, tuple[int, Any]]


def read_rows(data: bytes, checksum: int | None) -> Iterator[SeriesRow]:
    """Reads the flatbuffers of a request; ``checksum`` is its CRC-32C as a signed 32-bit integer."""
    from tablestore.flatbuffer.timeseries.FlatBufferRows import FlatBufferRows

    if checksum is not None and crc32c(data) != checksum & 0xFFFFFFFF:
        raise invalid("Flatbuffer crc32c check failed.")
    try:
        rows = FlatBufferRows.GetRootAs(data)
        for group_index in range(rows.RowGroupsLength()):
            group = rows.RowGroups(group_index)
            names = [group.FieldNames(i).decode() for i in range(group.FieldNamesLength())]
            types = [group.FieldTypes(i) for i in range(group.FieldTypesLength())]
            measurement = (group.MeasurementName() or b"").decode()
            for row_index in range(group.RowsLength()):
                yield _read_row(measurement, names, types, group.Rows(row_index))
    except (struct.error, IndexError, TypeError, AttributeError, UnicodeDecodeError, OverflowError):
        raise invalid("Deserialize the flatbuffer rows failed.") from None


def _read_row(measurement: str, names: list[str], types: list[int], row: Any) -> SeriesRow:
    if row.TagListLength():
        tags = [(row.TagList(i).Name().decode(), row.TagList(i).Value().decode()) for i in range(row.TagListLength())]
    else:
        tags = list(read_tags((row.Tags() or b"").decode()))
    values = row.FieldValues()
    taken = dict.fromkeys(TYPE_NAMES, 0)
    fields: dict[str, tuple[int, Any]] = {}
    for name, type_ in zip(names, types, strict=False):
        if type_ not in TYPE_NAMES:
            raise invalid(f"Unknown type {type_} of field '{name}'.")
        index = taken[type_]
        taken[type_] += 1
        fields[name] = (type_, _value(values, type_, index))
    key = SeriesKey(measurement, (row.DataSource() or b"").decode(), tuple(sorted(tags)))
    return SeriesRow(key, row.Time(), fields)


def _value(values: Any, type_: int, index: int) -> Any:
    if type_ == LONG:
        return values.LongValues(index)
    if type_ == BOOLEAN:
        return bool(values.BoolValues(index))
    if type_ == DOUBLE:
        return values.DoubleValues(index)
    if type_ == STRING:
        return values.StringValues(index).decode()
    item = values.BinaryValues(index)
    return bytes(item.Value(i) & 0xFF for i in range(item.ValueLength()))


def read_tags(text: str) -> Tags:
    """Reads tags or attributes in their text form, ``["name=value","name=value"]``."""
    if not text:
        return ()
    if _TAGS_TEXT.fullmatch(text) is None:
        raise invalid(f"Invalid tags: '{text}'.")
    return tuple(sorted(_TAG_TEXT.findall(text)))


def write_tags(tags: Tags) -> str:
    """The text form of tags, in order of name."""
    return "[" + ",".join(f'"{name}={value}"' for name, value in tags) + "]"


def check_key(key: SeriesKey, schema: tuple[str, ...]) -> None:
    """Refuses a timeline outside the limits of the model."""
    name = key.measurement.encode()
    if "_m_name" in schema and not 1 <= len(name) <= limits.TIMESERIES_NAME:
        raise invalid(f"The length of measurement name must be in range: [1, {limits.TIMESERIES_NAME}].")
    if _BAD_IN_NAME.search(key.measurement):
        raise invalid("The measurement name must have no whitespace and no '#'.")
    if len(key.source.encode()) > limits.TIMESERIES_SOURCE:
        raise invalid(f"The length of data source must be in range: [0, {limits.TIMESERIES_SOURCE}].")
    if len(write_tags(key.tags).encode()) > limits.TIMESERIES_TAGS:
        raise invalid(f"The length of tags exceeds the limit: {limits.TIMESERIES_TAGS}.")
    for tag, value in key.tags:
        if _TAG_NAME.fullmatch(tag) is None:
            raise invalid(f"Invalid tag name: '{tag}'.")
        if '"' in value or "=" in value or not value:
            raise invalid(f"Invalid value of tag '{tag}'.")


def check_row(row: SeriesRow, schema: tuple[str, ...]) -> None:
    """Refuses a row outside the limits of the model; the error is that row's own."""
    check_key(row.key, schema)
    if row.time < 0:
        raise invalid("The time must be greater than or equal to 0.")
    if not 1 <= len(row.fields) <= limits.TIMESERIES_FIELDS:
        raise invalid(f"The number of fields must be in range: [1, {limits.TIMESERIES_FIELDS}].")
    for name, (type_, value) in row.fields.items():
        if _FIELD_NAME.fullmatch(name) is None or name in _RESERVED:
            raise invalid(f"Invalid field name: '{name}'.")
        size = len(value.encode()) if type_ == STRING else len(value) if type_ == BINARY else 0
        if size > limits.VALUE:
            raise invalid(f"The length of field '{name}' exceeds the limit: {limits.VALUE}.")
        if type_ == DOUBLE:
            plainbuffer.check_value(name.encode(), plainbuffer.encode_value(value))


def key_cells(key: SeriesKey, schema: tuple[str, ...]) -> list[KeyCell]:
    """The timeline's primary key columns after ``_#h``.

    Raises:
        ServiceError: the table's own key columns lack a tag, or a tag has no place in them.
    """
    rest = dict(key.tags)
    named = {name: rest.pop(name, None) for name in schema if name not in DEFAULT_KEY}
    missing = [name for name, value in named.items() if value is None]
    if missing:
        raise invalid(f"The timeseries key lacks '{missing[0]}'.")
    if rest and "_tags" not in schema:
        raise invalid(f"The table's timeseries key has no place for tag '{min(rest)}'.")
    parts = {
        "_m_name": key.measurement,
        "_data_source": key.source,
        "_tags": write_tags(tuple(sorted(rest.items()))),
        **{name: value or "" for name, value in named.items()},
    }
    return [plainbuffer.encode_key_cell(name.encode(), plainbuffer.encode_value(parts[name])) for name in schema]


def sortable_key(cells: list[KeyCell]) -> bytes:
    return b"".join([keys.encode_component(cell.value) for cell in cells])


def hash_cell(sortable: bytes) -> KeyCell:
    """``_#h``, by which the service spreads timelines."""
    return plainbuffer.encode_key_cell(b"_#h", plainbuffer.encode_value(crc32c(sortable)))


def time_cell(time: int) -> KeyCell:
    return plainbuffer.encode_key_cell(b"_time", plainbuffer.encode_value(time))
