"""Keys and values of Kafka records as the connector's converters give them: text, fields, or nothing."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from upsert_platform.tablestore.connect.data import (
    DECIMAL,
    NOTHING,
    TEXT,
    Data,
    Schema,
    WrittenFloat,
    convert,
    read_schema,
)
from upsert_platform.tablestore.connect.values import DirtyRecordError, UndecodableError


class MessageFormat(StrEnum):
    """Format of one side of a message: ``StringConverter`` or ``JsonConverter``."""

    STRING = "string"
    JSON = "json"


class Envelope(StrEnum):
    """The envelope of JSON: its schema, as ``{"schema": ..., "payload": ...}`` (``schemas.enable``), or without."""

    REQUIRED = "required"
    NEVER = "never"
    DETECTED = "detected"
    """An object with just these two fields is one: for configurations that leave the question to Connect's worker."""


@dataclass(frozen=True, slots=True)
class SideFormat:
    """The format of one side of a message.

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
        schema: of JSON with an envelope of schema and payload; None without one.
    """

    values: dict[str, Any]
    schema: Schema | None = None


Side = Text | Fields | None
"""None is a null key or value, JSON ``null``, or an envelope with a null payload."""

_ENVELOPE: Final = {"schema", "payload"}
_DEEPEST: Final = 500
"""Nesting of JSON. The decoder's own bound depends on how deep its caller stands, so one task would read what another
refuses."""
_STRINGS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"')
_BRACKETS: Final = re.compile(r"[][{}]")


def read_side(data: bytes | None, side_format: SideFormat, side: str) -> Side:
    """Reads a key or a value.

    Args:
        side: ``key`` or ``value``, for messages.

    Raises:
        UndecodableError: Connect's converter would fail; see `read_data`.
        DirtyRecordError: JSON that is not an object.
    """
    return side_of(read_data(data, side_format, side), side)


def read_data(data: bytes | None, side_format: SideFormat, side: str) -> Data:
    """Reads a key or a value as Connect's converter does.

    Raises:
        UndecodableError: broken UTF-8 or JSON, no envelope where one is required, or a payload that does not fit its
            schema.
    """
    if data is None:
        return NOTHING
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UndecodableError(f"the {side} is not UTF-8: {error}") from None
    if side_format.format is MessageFormat.STRING:
        return Data(TEXT, text)
    try:
        _check_depth(text, side)
        found = (_EXACT if DECIMAL in text else _DECODER).decode(text)
        _check_surrogates(text, found, side)
        enveloped = isinstance(found, dict) and found.keys() == _ENVELOPE
        match side_format.envelope:
            case Envelope.NEVER:
                return Data(None, found)
            case Envelope.REQUIRED if not enveloped:
                raise UndecodableError(
                    f"the {side} is not a JSON object of 'schema' and 'payload', as '{side}.converter.schemas.enable' ="
                    " 'true' says; set it to 'false' for plain JSON"
                )
        if not enveloped or found["schema"] is None:
            return Data(None, found["payload"] if enveloped else found)
        schema = read_schema(found["schema"], f"the {side}")
        return Data(schema, convert(schema, found["payload"], f"the {side}"))
    except DirtyRecordError:
        raise
    except (ValueError, RecursionError) as error:
        raise UndecodableError(f"the {side} is not JSON: {error}") from None


def side_of(data: Data, side: str) -> Side:
    """Return the connector's view of a key or a value.

    Raises:
        DirtyRecordError: it is neither text nor an object with fields.
    """
    if data.value is None:
        return None
    if data.schema is None:
        if not isinstance(data.value, dict):
            kind = "array" if isinstance(data.value, list) else "single value"
            raise DirtyRecordError(f"the {side} is a JSON {kind}; an object with fields is needed")
        return Fields(data.value)
    if data.schema.type == "string":
        return Text(data.value)
    if not isinstance(data.value, dict):
        raise DirtyRecordError(f"the {side} is of Connect type {data.schema.type}; a struct with fields is needed")
    return Fields(data.value, data.schema)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)
_EXACT: Final = json.JSONDecoder(parse_constant=_no_constant, parse_float=WrittenFloat)


def _check_depth(text: str, side: str) -> None:
    if text.count("{") + text.count("[") <= _DEEPEST:
        return
    depth = 0
    for bracket in _BRACKETS.finditer(_STRINGS.sub("", text)):
        depth += 1 if bracket.group() in "[{" else -1
        if depth > _DEEPEST:
            raise UndecodableError(f"the {side} is JSON nested more than {_DEEPEST} deep")


def _check_surrogates(text: str, found: Any, side: str) -> None:
    """Refuses escapes such as ``\\ud800`` alone: they are JSON, and no text that could be stored."""
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise DirtyRecordError(f"the {side} holds half of a surrogate pair, which is not text") from None
