"""Flatten: nested fields become fields with the names on the way to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from upsert_platform.tablestore.connect.data import Schema
from upsert_platform.tablestore.connect.transforms.record import Part, SinkRecord, failed, fields_of, with_fields


@dataclass(frozen=True)
class Flatten:
    """Arrays stay as they are, and so does null in the place of a map; a null struct gives nulls for its fields."""

    part: Part
    delimiter: str

    def apply(self, record: SinkRecord) -> SinkRecord:
        data = self.part.of(record)
        if data.value is None:
            return record
        values: dict[str, Any] = {}
        schemas: dict[str, Schema] = {}
        found = fields_of(data, "Flatten")
        if data.schema is None:
            self._map(found, "", values)
        else:
            self._struct(found, data.schema, "", values, schemas, optional=data.schema.optional)
        return self.part.put(record, with_fields(data, values, schemas))

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self.delimiter}{name}" if prefix else name

    def _map(self, found: Mapping[str, Any], prefix: str, values: dict[str, Any]) -> None:
        for name, value in found.items():
            full = self._name(prefix, name)
            if isinstance(value, dict):
                self._map(value, full, values)
            else:
                values[full] = value

    def _struct(
        self,
        found: Mapping[str, Any] | None,
        schema: Schema,
        prefix: str,
        values: dict[str, Any],
        schemas: dict[str, Schema],
        *,
        optional: bool,
    ) -> None:
        for name, field in schema.fields.items():
            full = self._name(prefix, name)
            value = None if found is None else found[name]
            may_be_null = optional or field.optional
            if field.type == "struct":
                self._struct(value, field, full, values, schemas, optional=may_be_null)
            elif field.type == "map":
                raise failed("Flatten", f"field '{full}' is a map, which is not supported with a schema")
            else:
                values[full] = field.default if value is None else value
                schemas[full] = replace(field, optional=may_be_null)
