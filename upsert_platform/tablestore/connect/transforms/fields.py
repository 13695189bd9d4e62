"""Transforms that choose, wrap, rename and copy fields: ExtractField, HoistField, ReplaceField, ValueToKey."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from upsert_platform.tablestore.connect.data import Data, Schema
from upsert_platform.tablestore.connect.transforms.record import (
    Part,
    SinkRecord,
    failed,
    fields_of,
    struct_of,
    with_fields,
)


@dataclass(frozen=True)
class ExtractField:
    """The field takes the place of the whole; null stays null."""

    part: Part
    field: str

    def apply(self, record: SinkRecord) -> SinkRecord:
        data = self.part.of(record)
        if data.schema is None:
            found = None if data.value is None else fields_of(data, "ExtractField").get(self.field)
            return self.part.put(record, Data(None, found))
        schema = struct_of(data, "ExtractField").fields.get(self.field)
        if schema is None:
            raise failed("ExtractField", f"unknown field '{self.field}'")
        return self.part.put(record, Data(schema, None if data.value is None else data.value[self.field]))


@dataclass(frozen=True)
class HoistField:
    """The whole becomes a field; null too."""

    part: Part
    field: str

    def apply(self, record: SinkRecord) -> SinkRecord:
        data = self.part.of(record)
        schema = None if data.schema is None else Schema("struct", fields={self.field: data.schema})
        return self.part.put(record, Data(schema, {self.field: data.value}))


@dataclass(frozen=True)
class ReplaceField:
    """Fields are left out and renamed; names are those before renaming.

    Attributes:
        include: fields that stay; all where it is empty.
        renames: old name to new one.
    """

    part: Part
    include: frozenset[str]
    exclude: frozenset[str]
    renames: Mapping[str, str]

    def apply(self, record: SinkRecord) -> SinkRecord:
        data = self.part.of(record)
        if data.value is None:
            return record
        found = fields_of(data, "ReplaceField")
        values = {self.renames.get(name, name): value for name, value in found.items() if self._stays(name)}
        known = data.schema.fields.items() if data.schema else ()
        schemas = {self.renames.get(name, name): schema for name, schema in known if self._stays(name)}
        return self.part.put(record, with_fields(data, values, schemas))

    def _stays(self, name: str) -> bool:
        return name not in self.exclude and (not self.include or name in self.include)


@dataclass(frozen=True)
class ValueToKey:
    """Fields of the value become the key."""

    fields: tuple[str, ...]

    def apply(self, record: SinkRecord) -> SinkRecord:
        found = fields_of(record.value, "ValueToKey")
        schema = record.value.schema
        if schema is None:
            return replace(record, key=Data(None, {name: found.get(name) for name in self.fields}))
        for name in self.fields:
            if name not in schema.fields:
                raise failed("ValueToKey", f"field '{name}' does not exist in the value")
        key = Schema("struct", fields={name: schema.fields[name] for name in self.fields})
        return replace(record, key=Data(key, {name: found[name] for name in self.fields}))
