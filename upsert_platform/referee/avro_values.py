"""Avro messages: a datum by its schema, which follows from the columns or comes from a registry."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal, localcontext
from typing import Any

from upsert_platform.referee.errors import RefereeError, UndecodableError, UnjudgedError
from upsert_platform.referee.kinds import BINARIES, TEXTS, Kind, rounded_decimal
from upsert_platform.referee.registries import number_of, registry

Schema = Any
"""A schema as `json` reads it, with named types in place of their names."""


def avro_decoder(columns: Mapping[str, Kind], options: Mapping[str, str]) -> Callable[[bytes], list[Any]]:
    """A function from a datum of the schema that the columns give, to their values.

    Raises:
        RefereeError: an option or type that the referee does not follow.
    """
    for name, text in options.items():
        if (name, text) not in (("avro.encoding", "binary"), ("avro.timestamp_mapping.legacy", "true")):
            raise RefereeError(f"option '{name}' = '{text}' is beyond the referee")
    kinds = list(columns.values())
    schema = {"type": "record", "fields": [{"name": name, "type": _schema(kind)} for name, kind in columns.items()]}

    def decode(message: bytes) -> list[Any]:
        values = _Datum(message).read(schema).values()
        return [_fit(value, kind) for value, kind in zip(values, kinds, strict=True)]

    return decode


def registered_decoder(columns: Mapping[str, Kind], options: Mapping[str, str]) -> Callable[[bytes], list[Any]]:
    """A function from a message with a schema's number before its datum, to the values of the columns by name.

    Raises:
        RefereeError: an option is set that the referee does not follow.
    """
    schema_of = registry(options, "avro-confluent")
    schemas: dict[int, Schema] = {}

    def decode(message: bytes) -> list[Any]:
        number = number_of(message)
        if number not in schemas:
            found = schema_of(number)
            if found.kind != "AVRO":
                raise UndecodableError(f"schema {number} is not of Avro")
            if found.imports:
                raise UnjudgedError("a schema that refers to others")
            schemas[number] = _resolved(json.loads(found.text), {})
        found = _Datum(message[5:]).read(schemas[number])
        if not isinstance(found, dict):
            raise UnjudgedError("a schema that is not a record")
        return [_fit(found.get(name), kind) for name, kind in columns.items()]

    return decode


def _schema(kind: Kind) -> Schema:
    """The schema of a type; what may be null is a union with null first."""
    if kind.root in TEXTS:
        bare: Schema = "string"
    elif kind.root in BINARIES:
        bare = "bytes"
    elif kind.root in ("TINYINT", "SMALLINT", "INT", "DATE", "TIME"):
        bare = "int"
    elif kind.root == "DECIMAL":
        bare = "bytes"
    elif kind.root == "TIMESTAMP" and kind.digits <= 3:
        bare = "long"
    elif kind.root in ("BIGINT", "BOOLEAN", "FLOAT", "DOUBLE"):
        bare = {"BIGINT": "long"}.get(kind.root, kind.root.lower())
    elif kind.root == "ARRAY":
        bare = {"type": "array", "items": _schema(kind.parts[0][1])}
    elif kind.root == "MAP" and kind.parts[0][1].root in TEXTS:
        bare = {"type": "map", "values": _schema(kind.parts[1][1])}
    elif kind.root == "ROW":
        bare = {"type": "record", "fields": [{"name": name, "type": _schema(part)} for name, part in kind.parts]}
    else:
        raise RefereeError(f"a {kind.root} in Avro is beyond the referee")
    return ["null", bare] if kind.nullable else bare


def _resolved(schema: Schema, named: dict[str, Schema]) -> Schema:
    """A schema with named types put in the place of their names."""
    if isinstance(schema, str):
        return named.get(schema, schema)
    if isinstance(schema, list):
        return [_resolved(item, named) for item in schema]
    made = dict(schema)
    if "name" in schema:
        named[schema["name"]] = made
        named[f"{schema.get('namespace', '')}.{schema['name']}"] = made
    if "fields" in schema:
        made["fields"] = [{**item, "type": _resolved(item["type"], named)} for item in schema["fields"]]
    for inner in ("items", "values"):
        if inner in schema:
            made[inner] = _resolved(schema[inner], named)
    return made


class _Datum:
    """Bytes that are read from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, schema: Schema) -> Any:
        if isinstance(schema, list):
            branch = self._long()
            if not 0 <= branch < len(schema):
                raise UndecodableError(f"branch {branch} of a union of {len(schema)}")
            return self.read(schema[branch])
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(schema, dict) and isinstance(kind, (dict, list)):
            return self.read(kind)
        match kind:
            case "null":
                return None
            case "boolean":
                return self._take(1) == b"\1"
            case "int" | "long":
                return _logical(self._long(), schema)
            case "float":
                return struct.unpack("<f", self._take(4))[0]
            case "double":
                return struct.unpack("<d", self._take(8))[0]
            case "bytes":
                return _logical(self._take(self._long()), schema)
            case "string":
                return self._text()
            case "fixed":
                return _logical(self._take(schema["size"]), schema)
            case "enum":
                return self._symbol(schema["symbols"])
            case "record":
                return {item["name"]: self.read(item["type"]) for item in schema["fields"]}
            case "array":
                return [self.read(schema["items"]) for _ in self._blocks()]
            case "map":
                return [(self._text(), self.read(schema["values"])) for _ in self._blocks()]
        raise UnjudgedError(f"the Avro type '{kind}'")

    def _symbol(self, symbols: list[str]) -> str:
        index = self._long()
        if not 0 <= index < len(symbols):
            raise UndecodableError(f"symbol {index} of {len(symbols)}")
        return symbols[index]

    def _text(self) -> str:
        data = self._take(self._long())
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise UnjudgedError("a text that is not UTF-8") from None

    def _blocks(self) -> Any:
        while count := self._long():
            if count < 0:
                count = -count
                self._long()
            if count > len(self._data):
                raise UnjudgedError("more items than bytes")
            yield from range(count)

    def _long(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 28:
                return self._longer(value, shift)

    def _longer(self, value: int, shift: int) -> int:
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 63:
                raise UnjudgedError("a number of more bytes than a long has")
        if value >= 1 << 64:
            raise UnjudgedError("a number beyond a long")
        return (value >> 1) ^ -(value & 1)

    def _take(self, size: int) -> bytes:
        if size < 0:
            raise UnjudgedError("a negative length")
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise UndecodableError("the datum ends too early")
        self._at += size
        return taken


def _logical(value: Any, schema: Schema) -> Any:
    """A value in the unit of its logical type, with the type's name."""
    if not isinstance(schema, dict) or "logicalType" not in schema:
        return value
    return (schema["logicalType"], value, schema.get("scale", 0))


_FARTHEST = (1 << 63) * 1_000
"""Nanoseconds; beyond, microseconds do not fit a long."""
_UNITS = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}


def _fit(value: Any, kind: Kind) -> Any:
    """A value of a datum in the form of a type."""
    name, scale = "", kind.scale
    if isinstance(value, tuple):
        name, value, scale = value
    if value is None:
        return None
    match kind.root:
        case "DECIMAL":
            with localcontext() as context:
                context.prec = 400
                found = rounded_decimal(Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale), kind)
            if found is None:
                raise UnjudgedError("a decimal with more digits than its type")
            return found
        case "TIMESTAMP" | "TIMESTAMP_LTZ" | "TIME":
            nanos = value * _UNITS[name.rpartition("-")[2] or "millis"]
            if abs(nanos) >= _FARTHEST:
                raise UnjudgedError("a time that not every reader has room for")
            return nanos
        case "INT" | "DATE" | "TINYINT" | "SMALLINT":
            bits = {"TINYINT": 7, "SMALLINT": 15}.get(kind.root, 31)
            if not -(1 << bits) <= value < 1 << bits:
                raise UnjudgedError(f"{value} for a {kind.root}")
            return value
        case "ARRAY":
            return [_fit(item, kind.parts[0][1]) for item in value]
        case "MAP":
            return list({key: _fit(item, kind.parts[1][1]) for key, item in value}.items())
        case "ROW":
            return [_fit(value.get(part), inner) for part, inner in kind.parts]
    return value
