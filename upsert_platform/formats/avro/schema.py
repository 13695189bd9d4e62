"""The Avro schema that Flink derives from a table's columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from upsert_platform.core.types import TEXTS, LogicalType, RowField, TypeName
from upsert_platform.formats.base import Columns

RECORD_NAME: Final = "record"
NAMESPACE: Final = "org.apache.flink.avro.generated"
_PLAIN: Final[Mapping[TypeName, str]] = {
    TypeName.CHAR: "string",
    TypeName.VARCHAR: "string",
    TypeName.STRING: "string",
    TypeName.BOOLEAN: "boolean",
    TypeName.BINARY: "bytes",
    TypeName.VARBINARY: "bytes",
    TypeName.BYTES: "bytes",
    TypeName.TINYINT: "int",
    TypeName.SMALLINT: "int",
    TypeName.INT: "int",
    TypeName.BIGINT: "long",
    TypeName.FLOAT: "float",
    TypeName.DOUBLE: "double",
}


_NEEDS_NEW_MAPPING: Final = (
    "set 'avro.timestamp_mapping.legacy' = 'false' (it does not reach into ARRAY, MAP and MULTISET)"
)


class AvroTypeError(ValueError):
    """A type that Flink's Avro format does not hold."""


def derive_schema(columns: Columns, *, legacy: bool) -> dict[str, Any]:
    """The schema of a row, as JSON data.

    Args:
        legacy: the timestamp mapping of columns; inside containers it is always the legacy one, as in Flink.

    Raises:
        AvroTypeError: a column does not fit.
    """
    row = LogicalType(TypeName.ROW, fields=tuple(RowField(name, logical) for name, logical in columns), nullable=False)
    schema: dict[str, Any] = _record(row, RECORD_NAME, legacy=legacy)
    return {"type": "record", "name": schema["name"], "namespace": NAMESPACE, "fields": schema["fields"]}


def _record(row: LogicalType, name: str, *, legacy: bool) -> dict[str, Any]:
    fields = []
    for item in row.fields:
        field: dict[str, Any] = {
            "name": item.name,
            "type": schema_of_type(item.type, f"{name}_{item.name}", legacy=legacy),
        }
        if item.type.nullable:
            field["default"] = None
        fields.append(field)
    return {"type": "record", "name": name, "fields": fields}


def schema_of_type(logical: LogicalType, name: str, *, legacy: bool) -> Any:
    """The schema of one type; a record in it is called `name`."""
    bare = _bare(logical, name, legacy=legacy)
    return ["null", bare] if logical.nullable else bare


def _bare(logical: LogicalType, name: str, *, legacy: bool) -> Any:
    match logical.name:
        case TypeName.DECIMAL:
            return {
                "type": "bytes", "logicalType": "decimal", "precision": logical.precision, "scale": logical.scale
            }  # fmt: skip
        case TypeName.DATE:
            return {"type": "int", "logicalType": "date"}
        case TypeName.TIME:
            if (logical.precision or 0) > 3:
                raise AvroTypeError(f"is {logical}: Avro holds a TIME of at most 3 fraction digits")
            return {"type": "int", "logicalType": "time-millis"}
        case TypeName.TIMESTAMP | TypeName.TIMESTAMP_LTZ:
            return {"type": "long", "logicalType": _timestamp(logical, legacy=legacy)}
        case TypeName.ROW:
            return _record(logical, name, legacy=legacy)
        case TypeName.ARRAY:
            assert logical.element is not None
            return {"type": "array", "items": schema_of_type(logical.element, name, legacy=True)}
        case TypeName.MAP | TypeName.MULTISET:
            key, value = key_and_value(logical)
            if key.name not in TEXTS:
                raise AvroTypeError(f"is {logical}: the key of an Avro map is text")
            return {"type": "map", "values": schema_of_type(value, name, legacy=True)}
    return _PLAIN[logical.name]


def _timestamp(logical: LogicalType, *, legacy: bool) -> str:
    precision = logical.precision or 0
    if legacy:
        if logical.name is TypeName.TIMESTAMP_LTZ:
            raise AvroTypeError(f"is {logical}: {_NEEDS_NEW_MAPPING}")
        if precision > 3:
            raise AvroTypeError(f"is {logical}: more than 3 fraction digits need the new mapping; {_NEEDS_NEW_MAPPING}")
        return "timestamp-millis"
    if precision > 6:
        raise AvroTypeError(f"is {logical}: Avro holds a timestamp of at most 6 fraction digits")
    local = "local-" if logical.name is TypeName.TIMESTAMP else ""
    return f"{local}timestamp-{'millis' if precision <= 3 else 'micros'}"


def key_and_value(logical: LogicalType) -> tuple[LogicalType, LogicalType]:
    """Key and value types of a MAP, or of a MULTISET as the map from element to count."""
    assert logical.element is not None
    if logical.name is TypeName.MULTISET:
        return logical.element, LogicalType(TypeName.INT)
    assert logical.key is not None
    return logical.key, logical.element
