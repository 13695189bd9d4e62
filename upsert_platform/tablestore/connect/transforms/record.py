"""Records as transforms see them, and what every transform is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from upsert_platform.tablestore.connect.data import Data, Schema
from upsert_platform.tablestore.connect.values import UndecodableError


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """A record after its converters.

    Attributes:
        timestamp: milliseconds since 1970; None when the record has none.
        headers: names alone.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: Data
    value: Data
    headers: tuple[str, ...] = ()


class Transform(Protocol):
    """A transform. Picklable, without state."""

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        """The record that takes the place of this one; None drops it.

        Raises:
            UndecodableError: Kafka's transform would fail.
        """


class Part(StrEnum):
    """The subject of a transform: the part of its class name after ``$``."""

    KEY = "Key"
    VALUE = "Value"

    def of(self, record: SinkRecord) -> Data:
        """The key or the value."""
        return record.key if self is Part.KEY else record.value

    def put(self, record: SinkRecord, data: Data) -> SinkRecord:
        """The record with another key or value."""
        return replace(record, key=data) if self is Part.KEY else replace(record, value=data)


def failed(name: str, reason: str) -> UndecodableError:
    """The error of a record that a transform cannot take.

    Args:
        name: of the transform's class.
    """
    return UndecodableError(f"transform {name}: {reason}")


def fields_of(data: Data, name: str) -> dict[str, Any]:
    """Fields of a struct, or of a map without schema.

    Raises:
        UndecodableError: it is neither.
    """
    struct = data.schema is None or data.schema.type == "struct"
    if not struct or not isinstance(data.value, dict):
        found = "null" if data.value is None else data.schema.type if data.schema else type(data.value).__name__
        raise failed(name, f"it takes a struct, or a map without schema, not {found}")
    return data.value


def struct_of(data: Data, name: str) -> Schema:
    """The schema of a struct, which may be null.

    Raises:
        UndecodableError: it is another one.
    """
    assert data.schema is not None
    if data.schema.type != "struct":
        raise failed(name, f"it takes a struct, not {data.schema.type}")
    return data.schema


def with_fields(data: Data, values: dict[str, Any], schemas: Mapping[str, Schema]) -> Data:
    """Data with other fields.

    Args:
        schemas: of the fields; not used where the data has no schema.
    """
    return Data(None if data.schema is None else replace(data.schema, fields=dict(schemas), default=None), values)
