"""Keys and values of Kafka records as the connector's converters give them: text, fields, or nothing."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from upsert_platform.tablestore.connect.values import DirtyRecordError, Struct, UndecodableError


class MessageFormat(StrEnum):
    """Format of one side of a message: ``StringConverter`` or ``JsonConverter``."""

    STRING = "string"
    JSON = "json"


class Envelope(StrEnum):
    """Whether JSON comes with its schema, as ``{"schema": ..., "payload": ...}`` (``schemas.enable``)."""

    REQUIRED = "required"
    NEVER = "never"
    DETECTED = "detected"
    """An object with just these two fields is one: for configurations that leave the question to Connect's worker."""


@dataclass(frozen=True, slots=True)
class SideFormat:
    """How one side of a message is read.

    Attributes:
        envelope: of JSON.
    """

    format: MessageFormat = MessageFormat.JSON
    envelope: Envelope = Envelope.DETECTED


JSON_SIDE: Final = SideFormat()


@dataclass(frozen=True, slots=True)
class ConnectRecord:
    """A Kafka record.

    Attributes:
        timestamp: milliseconds since 1970; None when the record has none.
        headers: in order, repeated names included; empty where nobody needs them.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def place(self) -> str:
        """``topic-partition@offset``, for messages."""
        return f"{self.topic}-{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Text:
    """A side read as a string."""

    text: str


@dataclass(frozen=True, slots=True)
class Fields:
    """A side read as a JSON object.

    Attributes:
        schema: field to Connect type, for JSON with an envelope of schema and payload; None without one.
    """

    values: dict[str, Any]
    schema: dict[str, str] | None = None


Side = Text | Fields | None
"""None is a null key or value, JSON ``null``, or an envelope with a null payload."""

_ENVELOPE: Final = {"schema", "payload"}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_NESTED: Final = ("struct", "array", "map")


def read_side(data: bytes | None, side_format: SideFormat, side: str) -> Side:
    """Reads a key or a value.

    Args:
        side: ``key`` or ``value``, for messages.

    Raises:
        UndecodableError: broken UTF-8 or JSON, or no envelope where one is required; Connect's converter would fail.
        DirtyRecordError: JSON that is no object, or a payload that does not fit its schema.
    """
    if data is None:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UndecodableError(f"the {side} is not UTF-8: {error}") from None
    if side_format.format is MessageFormat.STRING:
        return Text(text)
    try:
        found = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise UndecodableError(f"the {side} is not JSON: {error}") from None
    _check_surrogates(text, found, side)
    enveloped = isinstance(found, dict) and found.keys() == _ENVELOPE
    match side_format.envelope:
        case Envelope.NEVER:
            return _fields(found, side)
        case Envelope.REQUIRED if not enveloped and found is not None:
            raise UndecodableError(
                f"the {side} is no JSON object of 'schema' and 'payload', as '{side}.converter.schemas.enable' ="
                " 'true' says; set it to 'false' for plain JSON"
            )
    if enveloped:
        return _read_envelope(found["schema"], found["payload"], side)
    return _fields(found, side)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def _check_surrogates(text: str, found: Any, side: str) -> None:
    """Refuses escapes such as ``\\ud800`` alone: they are JSON, and no text that could be stored."""
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise DirtyRecordError(f"the {side} holds half of a surrogate pair, which is no text") from None


def _fields(found: Any, side: str) -> Fields | None:
    if found is None:
        return None
    if not isinstance(found, dict):
        kind = "array" if isinstance(found, list) else "single value"
        raise DirtyRecordError(f"the {side} is a JSON {kind}; an object with fields is needed")
    return Fields(found)


def _read_envelope(schema: Any, payload: Any, side: str) -> Side:
    if payload is None:
        return None
    if schema is None:
        return _fields(payload, side)
    if not isinstance(schema, dict) or not isinstance(schema.get("type"), str):
        raise UndecodableError(f"the {side} has an envelope, and its schema names no type")
    if schema["type"] == "string" and isinstance(payload, str):
        return Text(payload)
    if schema["type"] == "map" and isinstance(payload, dict):
        item_schema = schema.get("values")
        kind = item_schema.get("type") if isinstance(item_schema, dict) else None
        return Fields(
            {name: _typed(item, item_schema, f"{side} field '{name}'") for name, item in payload.items()},
            dict.fromkeys(payload, str(kind)),
        )
    if schema["type"] != "struct" or not isinstance(payload, dict):
        raise DirtyRecordError(f"the {side} is of Connect type {schema['type']}; a struct with fields is needed")
    values: dict[str, Any] = {}
    kinds: dict[str, str] = {}
    described = schema.get("fields")
    for field in described if isinstance(described, list) else ():
        if not isinstance(field, dict) or not isinstance(field.get("field"), str):
            raise UndecodableError(f"the {side} has a schema with a field that has no name")
        name = field["field"]
        values[name] = _typed(payload.get(name, field.get("default")), field, f"{side} field '{name}'")
        kinds[name] = str(field.get("type"))
    return Fields(values, kinds)


def _typed(value: Any, field: Any, where: str) -> Any:
    """A payload value of a Connect type: bytes decoded, logical types in their own form."""
    kind = field.get("type") if isinstance(field, dict) else None
    if value is None:
        return None
    if kind in _NESTED:
        return Struct(value)
    wrong = UndecodableError(f"{where} is not of Connect type {kind}")
    match kind:
        case "int8" | "int16" | "int32" | "int64":
            if isinstance(value, bool) or not isinstance(value, int):
                raise wrong
            return value
        case "float" | "double" | "float32" | "float64":
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise wrong
            return float(value)
        case "boolean":
            if not isinstance(value, bool):
                raise wrong
            return value
        case "string":
            if not isinstance(value, str):
                raise wrong
            return value
        case "bytes":
            if not isinstance(value, str):
                raise wrong
            try:
                data = base64.b64decode(value, validate=True)
            except ValueError:
                raise wrong from None
            if field.get("name") == _DECIMAL:
                sign, digits, _ = Decimal(int.from_bytes(data, "big", signed=True)).as_tuple()
                return format(Decimal((sign, digits, -_scale(field, wrong))), "f").encode()
            return data
    raise UndecodableError(f"{where} has the unknown Connect type {kind}")


def _scale(field: dict[str, Any], wrong: UndecodableError) -> int:
    parameters = field.get("parameters")
    text = str(parameters.get("scale", "")) if isinstance(parameters, dict) else ""
    if not text.isdecimal() or len(text) > 4:
        raise wrong
    return int(text)
