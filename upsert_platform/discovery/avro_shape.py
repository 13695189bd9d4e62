"""Columns of Avro schemas that a registry has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from upsert_platform.core.types import LogicalType, RowField, TypeName
from upsert_platform.discovery.shape import BIGINT, BOOLEAN, BYTES, DOUBLE, STRING, FoundColumn, apart
from upsert_platform.formats.registered.registry import RegisteredSchema

_PLAIN: Final[Mapping[str, LogicalType]] = {
    "string": STRING,
    "bytes": BYTES,
    "fixed": BYTES,
    "enum": STRING,
    "boolean": BOOLEAN,
    "int": LogicalType(TypeName.INT),
    "long": BIGINT,
    "float": LogicalType(TypeName.FLOAT),
    "double": DOUBLE,
}
_LOGICAL: Final[Mapping[str, LogicalType]] = {
    "date": LogicalType(TypeName.DATE),
    "time-millis": LogicalType(TypeName.TIME, precision=3),
    "time-micros": LogicalType(TypeName.TIME, precision=3),
    "timestamp-millis": LogicalType(TypeName.TIMESTAMP, precision=3),
    "timestamp-micros": LogicalType(TypeName.TIMESTAMP, precision=3),
    "local-timestamp-millis": LogicalType(TypeName.TIMESTAMP, precision=3),
    "local-timestamp-micros": LogicalType(TypeName.TIMESTAMP, precision=3),
}
_DEEPEST: Final = 20


class NoTypeError(ValueError):
    """An Avro type has no type of a column; the text says why."""


def avro_columns(schema: RegisteredSchema, *, image: str = "") -> tuple[tuple[FoundColumn, ...], list[str]]:
    """Return the columns of a record's schema, or of the record in one of its fields, and doubts.

    Args:
        image: the field; the record itself if empty.

    Raises:
        NoTypeError: the schema is no record.
    """
    reader = _Reader()
    for text in schema.references:
        reader.learn(json.loads(text), "")
    root = reader.resolved(json.loads(schema.text), "")
    if image:
        inner = next((item["type"] for item in root.get("fields", ()) if item["name"] == image), None)
        if inner is None:
            raise NoTypeError(f"the schema has no field '{image}'")
        root = reader.resolved(inner, root.get("namespace", ""))
    if root.get("type") != "record":
        raise NoTypeError("the schema is no record")
    found, doubts = [], []
    for item in root["fields"]:
        try:
            logical, doubt = reader.type_of(item["type"], root.get("namespace", ""), 0)
        except NoTypeError as error:
            doubts.append(f"field '{item['name']}' is left out: {error}")
            continue
        found.append(FoundColumn(item["name"], logical, doubt))
    columns, more = apart(found)
    return columns, doubts + more


class _Reader:
    """Reads types; knows those that were named before."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def learn(self, schema: Any, space: str) -> None:
        """Take in the named types of a schema."""
        if isinstance(schema, list):
            for item in schema:
                self.learn(item, space)
        elif isinstance(schema, dict):
            own = schema.get("namespace", space)
            name = schema.get("name")
            if name is not None and schema.get("type") in ("record", "enum", "fixed"):
                own = name.rpartition(".")[0] or own
                self._named[name if "." in name else f"{own}.{name}".lstrip(".")] = {**schema, "namespace": own}
            for item in schema.get("fields", ()):
                self.learn(item["type"], own)
            for inner in ("items", "values", "type"):
                if isinstance(schema.get(inner), (dict, list)):
                    self.learn(schema[inner], own)

    def resolved(self, schema: Any, space: str) -> dict[str, Any]:
        """Return a type as an object; of a union with null the other branch.

        Raises:
            NoTypeError: a name is unknown, or a union has several branches.
        """
        self.learn(schema, space)
        if isinstance(schema, list):
            some = [item for item in schema if item != "null"]
            if len(some) != 1:
                raise NoTypeError(f"a union of {len(some)} types")
            return self.resolved(some[0], space)
        if isinstance(schema, dict):
            kind = schema.get("type")
            return self.resolved(kind, space) if isinstance(kind, (dict, list)) else dict(schema)
        if schema in _PLAIN or schema == "null":
            return {"type": schema}
        for name in (schema, f"{space}.{schema}"):
            if name in self._named:
                return dict(self._named[name])
        raise NoTypeError(f"its type '{schema}' is not in the schema")

    def type_of(self, schema: Any, space: str, depth: int) -> tuple[LogicalType, str]:
        """Return a type and a doubt.

        Raises:
            NoTypeError: it has none.
        """
        if depth > _DEEPEST:
            raise NoTypeError("its type holds itself")
        found = self.resolved(schema, space)
        kind, logical = found["type"], str(found.get("logicalType", ""))
        own = found.get("namespace", space)
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return LogicalType(TypeName.DECIMAL, precision=found["precision"], scale=found.get("scale", 0)), ""
        if logical in _LOGICAL:
            doubt = "microseconds are cut to milliseconds" if logical.endswith("timestamp-micros") else ""
            return _LOGICAL[logical], doubt
        if kind in _PLAIN:
            return _PLAIN[kind], ""
        if kind in ("array", "map"):
            element, doubt = self.type_of(found["items" if kind == "array" else "values"], own, depth + 1)
            if kind == "array":
                return LogicalType(TypeName.ARRAY, element=element), doubt
            return LogicalType(TypeName.MAP, key=STRING, element=element), doubt
        if kind == "record" and found["fields"]:
            parts = [(item["name"], *self.type_of(item["type"], own, depth + 1)) for item in found["fields"]]
            fields = tuple(RowField(name, inner) for name, inner, _ in parts)
            told = "; ".join(f"{name}: {doubt}" for name, _, doubt in parts if doubt)
            return LogicalType(TypeName.ROW, fields=fields), told
        raise NoTypeError(f"of type {kind}")
