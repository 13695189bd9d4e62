"""Format ``protobuf``: one message of a declared type, without any frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.formats.base import Columns, Decoded
from upsert_platform.formats.blocks import decode_blocks
from upsert_platform.formats.columns import schema_of
from upsert_platform.formats.protobuf.schema import (
    TEXTS,
    enum_of,
    inner,
    is_map,
    is_repeated,
    kind_of,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_SIGNED: Final = {"uint32": 32, "uint64": 64}
_EMPTY: Final = {"string": "", "bytes": b"", "bool": False, "enum": 0, "float": 0.0, "double": 0.0}
_AT_ONCE: Final = 500
"""Messages that are open at a time: more of them leave the processor's cache, and cost up to twice as much."""
Convert = Callable[[Any], Any]


class ProtobufDecoder:
    """Decodes messages into rows. A column that the message has no field for is null.

    Args:
        message: class of the messages.
        read_default_values: absent fields are read as their defaults, not as null.
    """

    def __init__(self, columns: Columns, message: Any, *, read_default_values: bool) -> None:
        self._schema = schema_of(columns)
        self._class = message
        self._fields = _readers(message.DESCRIPTOR, columns, read_default_values)

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decodes a block; see `upsert_platform.formats.base.Decoder`."""
        return decode_blocks(messages, self._schema, self._read_block, self._read)

    def _read_block(self, messages: Sequence[bytes]) -> tuple[pa.RecordBatch, None] | None:
        from google.protobuf.message import DecodeError

        columns: list[list[Any]] = [[] for _ in self._fields]
        try:
            for start in range(0, len(messages), _AT_ONCE):
                found = list(map(self._class.FromString, messages[start : start + _AT_ONCE]))
                for column, (_, read) in zip(columns, self._fields, strict=True):
                    column += map(read, found)
        except DecodeError:
            return None
        try:
            arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        except pa.ArrowException:  # a text of an older syntax may be bytes that are no UTF-8
            return None
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), None

    def _read(self, message: bytes) -> list[list[Any]]:
        from google.protobuf.message import DecodeError

        found = self._class()
        try:
            found.ParseFromString(message)
        except DecodeError as error:
            raise ValueError(f"not a message {self._class.DESCRIPTOR.full_name}: {error}") from None
        return [[read(found) for _, read in self._fields]]


def _readers(descriptor: Descriptor, columns: Columns, defaults: bool) -> list[tuple[str, Convert]]:
    known = descriptor.fields_by_name
    return [
        (name, _field_reader(known[name], logical, defaults) if name in known else _nothing)
        for name, logical in columns
    ]


def _nothing(message: Any) -> None:
    """The value of a field that the writer did not have."""


def _field_reader(field: FieldDescriptor, logical: LogicalType, defaults: bool) -> Convert:
    name = field.name
    if is_map(field):
        entry = inner(field).fields_by_name
        assert logical.key is not None
        assert logical.element is not None
        key, value = _reader(entry["key"], logical.key, defaults), _reader(entry["value"], logical.element, defaults)

        def read_map(message: Any) -> Any:
            found = getattr(message, name)
            return [(key(one), value(found[one])) for one in found] if found or defaults else None

        return read_map
    if is_repeated(field):
        assert logical.element is not None
        element = _reader(field, logical.element, defaults)

        def read_array(message: Any) -> Any:
            found = getattr(message, name)
            return [element(one) for one in found] if found or defaults else None

        return read_array
    convert = _reader(field, logical, defaults)
    if defaults or not field.has_presence:
        if convert is _same:
            return attrgetter(name)
        return lambda message: convert(getattr(message, name))
    return lambda message: convert(getattr(message, name)) if message.HasField(name) else None


def _reader(field: FieldDescriptor, logical: LogicalType, defaults: bool) -> Convert:
    kind = kind_of(field)
    if kind == "message":
        parts = _readers(inner(field), [(item.name, item.type) for item in logical.fields], defaults)
        return lambda message: {name: read(message) for name, read in parts}
    if kind == "enum" and logical.name in TEXTS:
        names = {number: name for name, number in reversed(enum_of(field).items())}  # of aliases the first
        return lambda number: names.get(number, "UNRECOGNIZED")
    if kind in _SIGNED:
        bits = _SIGNED[kind]
        return lambda number: number - (1 << bits) if number >> (bits - 1) else number
    return _same


def _same(value: Any) -> Any:
    return value


class ProtobufEncoder:
    """Encodes rows into messages; null columns are absent fields.

    Args:
        message: class of the messages.
        null_text: written for a null text in an array or a map.
    """

    def __init__(self, columns: Columns, message: Any, *, null_text: str) -> None:
        self._class = message
        fields = self._class.DESCRIPTOR.fields_by_name
        self._plain = [name for name, kind in columns if _is_plain(fields[name], kind)]
        others = [(name, kind) for name, kind in columns if name not in self._plain]
        self._others = _writers(self._class.DESCRIPTOR, others, null_text)

    def encode(self, rows: pa.RecordBatch) -> tuple[pa.Array, dict[int, str]]:
        """Encodes a block; see `upsert_platform.formats.base.Encoder`."""
        made: list[bytes | None] = []
        errors: dict[int, str] = {}
        plain = rows.select(self._plain).to_pylist()
        others = rows.select([name for name, _ in self._others]).to_pylist() if self._others else plain
        for place, (row, rest) in enumerate(zip(plain, others, strict=True)):
            try:
                message = self._class(**row)  # None is an absent field to it
                _fill(message, rest, self._others)
                made.append(message.SerializeToString(deterministic=True))
            except ValueError as error:
                errors[place] = str(error)
                made.append(None)
        return pa.array(made, pa.binary()), errors


def _is_plain(field: FieldDescriptor, logical: LogicalType) -> bool:
    """Return whether the library takes the column's values as they are."""
    return not is_repeated(field) and kind_of(field) != "message" and _scalar_writer(field, logical) is _same


Writers = list[tuple[str, Callable[[Any, Any], None]]]


def _fill(message: Any, row: dict[str, Any], fields: Writers) -> None:
    for name, write in fields:
        value = row[name]
        if value is not None:
            write(message, value)


def _writers(descriptor: Descriptor, columns: Columns, null_text: str) -> Writers:
    return [(name, _field_writer(descriptor.fields_by_name[name], logical, null_text)) for name, logical in columns]


def _field_writer(field: FieldDescriptor, logical: LogicalType, null_text: str) -> Callable[[Any, Any], None]:
    name = field.name
    if is_map(field):
        return _map_writer(field, logical, null_text)
    if kind_of(field) == "message":
        row = logical.element if is_repeated(field) else logical
        assert row is not None
        parts = _writers(inner(field), [(item.name, item.type) for item in row.fields], null_text)
        if is_repeated(field):

            def write_rows(message: Any, value: Any) -> None:
                for one in value:
                    _fill(getattr(message, name).add(), one or dict.fromkeys(part for part, _ in parts), parts)

            return write_rows

        def write_row(message: Any, value: Any) -> None:
            part = getattr(message, name)
            part.SetInParent()
            _fill(part, value, parts)

        return write_row
    if is_repeated(field):
        assert logical.element is not None
        convert = _element_writer(field, logical.element, null_text)
        return lambda message, value: getattr(message, name).extend([convert(one) for one in value])
    scalar = _scalar_writer(field, logical)
    return lambda message, value: setattr(message, name, scalar(value))


def _map_writer(field: FieldDescriptor, logical: LogicalType, null_text: str) -> Callable[[Any, Any], None]:
    name, entry = field.name, inner(field).fields_by_name
    assert logical.key is not None
    assert logical.element is not None
    key = _element_writer(entry["key"], logical.key, null_text)
    if logical.element.name is TypeName.ROW:
        columns = [(item.name, item.type) for item in logical.element.fields]
        parts = _writers(inner(entry["value"]), columns, null_text)

        def write_rows(message: Any, value: Any) -> None:
            for one, row in value:
                made = getattr(message, name)[key(one)]  # by looking at it
                _fill(made, row or dict.fromkeys(part for part, _ in parts), parts)

        return write_rows
    convert = _element_writer(entry["value"], logical.element, null_text)

    def write_map(message: Any, value: Any) -> None:
        for one, content in value:
            getattr(message, name)[key(one)] = convert(content)

    return write_map


def _element_writer(field: FieldDescriptor, logical: LogicalType, null_text: str) -> Convert:
    """Return the writer of elements of arrays and maps; null, which protobuf does not hold, becomes the default of the
    type.
    """
    convert, kind = _scalar_writer(field, logical), kind_of(field)
    empty = null_text if kind == "string" else _EMPTY.get(kind, 0)
    return lambda value: empty if value is None else convert(value)


def _scalar_writer(field: FieldDescriptor, logical: LogicalType) -> Convert:
    kind = kind_of(field)
    if kind == "enum" and logical.name in TEXTS:
        numbers = enum_of(field)

        def number_of(text: str) -> int:
            if text not in numbers:
                raise ValueError(f"field '{field.full_name}' has no value {text!r}: {', '.join(numbers)}")
            return numbers[text]

        return number_of
    if kind in _SIGNED:
        mask = (1 << _SIGNED[kind]) - 1
        return lambda value: value & mask
    return _same
