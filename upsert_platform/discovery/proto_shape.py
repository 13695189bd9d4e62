"""Columns of protobuf messages whose files a registry has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from upsert_platform.core.types import LogicalType, RowField, TypeName
from upsert_platform.discovery.shape import BIGINT, BOOLEAN, BYTES, DOUBLE, STRING, FoundColumn, apart
from upsert_platform.formats.protobuf.schema import inner, is_map, is_repeated, kind_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_INT: Final = LogicalType(TypeName.INT)
_SCALARS: Final[Mapping[str, LogicalType]] = {
    "string": STRING,
    "bytes": BYTES,
    "bool": BOOLEAN,
    "enum": STRING,
    "float": LogicalType(TypeName.FLOAT),
    "double": DOUBLE,
    **dict.fromkeys(("int32", "sint32", "sfixed32", "uint32", "fixed32"), _INT),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint64", "fixed64"), BIGINT),
}
_UNSIGNED: Final = ("uint32", "fixed32", "uint64", "fixed64")
_DEEPEST: Final = 20


def proto_columns(message: Descriptor) -> tuple[tuple[FoundColumn, ...], list[str]]:
    """Return the columns of a message, and doubts."""
    found, doubts = [], []
    for field in message.fields:
        logical = _type(field, 0)
        if logical is None:
            doubts.append(f"field '{field.name}' is left out: its message holds itself, or nothing")
            continue
        doubt = "an unsigned number: from half of its range on it is negative" if kind_of(field) in _UNSIGNED else ""
        found.append(FoundColumn(field.name, logical, doubt))
    columns, more = apart(found)
    return columns, doubts + more


def _type(field: FieldDescriptor, depth: int) -> LogicalType | None:
    if is_map(field):
        entry = inner(field).fields_by_name
        key, value = _single(entry["key"], depth), _single(entry["value"], depth)
        return None if key is None or value is None else LogicalType(TypeName.MAP, key=key, element=value)
    single = _single(field, depth)
    if is_repeated(field):
        return None if single is None else LogicalType(TypeName.ARRAY, element=single)
    return single


def _single(field: FieldDescriptor, depth: int) -> LogicalType | None:
    kind = kind_of(field)
    if kind in _SCALARS:
        return _SCALARS[kind]
    if depth > _DEEPEST or kind != "message":
        return None
    parts = [(item.name, _type(item, depth + 1)) for item in inner(field).fields]
    fields = tuple(RowField(name, logical) for name, logical in parts if logical is not None)
    return LogicalType(TypeName.ROW, fields=fields) if fields and len(fields) == len(parts) else None
