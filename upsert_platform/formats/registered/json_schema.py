"""The JSON Schema of a table's columns, as format ``json`` writes them."""

from __future__ import annotations

from typing import Any, Final

from upsert_platform.core.types import BYTES, LogicalType, TypeName
from upsert_platform.formats.base import Columns

TITLE: Final = "Record"
_WHOLE: Final = {TypeName.TINYINT: "int8", TypeName.SMALLINT: "int16", TypeName.INT: "int32", TypeName.BIGINT: "int64"}
_REAL: Final = {TypeName.FLOAT: "float32", TypeName.DOUBLE: "float64"}


def derive_json_schema(columns: Columns) -> dict[str, Any]:
    """The schema of a row (draft 7), as JSON data. Kafka Connect's names of types are given beside those of JSON."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": TITLE,
        **_object([(name, logical) for name, logical in columns]),
    }


def _object(fields: list[tuple[str, LogicalType]]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {name: _type(logical) for name, logical in fields}}
    required = [name for name, logical in fields if not logical.nullable]
    return {**schema, "required": required} if required else schema


def _type(logical: LogicalType) -> dict[str, Any]:
    bare = _bare(logical)
    return {"oneOf": [{"type": "null"}, bare]} if logical.nullable else bare


def _bare(logical: LogicalType) -> dict[str, Any]:
    name = logical.name
    if name in _WHOLE:
        return {"type": "integer", "connect.type": _WHOLE[name]}
    if name in _REAL:
        # A number that JSON does not have (NaN, an infinity) is written as a text.
        return {"type": ["number", "string"], "connect.type": _REAL[name]}
    match name:
        case TypeName.BOOLEAN:
            return {"type": "boolean"}
        case TypeName.DECIMAL:
            return {"type": "number"}
        case TypeName.ARRAY:
            assert logical.element is not None
            return {"type": "array", "items": _type(logical.element)}
        case TypeName.MAP:
            assert logical.element is not None
            return {"type": "object", "connect.type": "map", "additionalProperties": _type(logical.element)}
        case TypeName.MULTISET:
            return {"type": "object", "connect.type": "map", "additionalProperties": {"type": "integer"}}
        case TypeName.ROW:
            return _object([(item.name, item.type) for item in logical.fields])
    if name in BYTES:
        return {"type": "string", "contentEncoding": "base64", "connect.type": "bytes"}
    return {"type": "string"}
