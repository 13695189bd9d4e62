"""Format ``json-registry``: a JSON object behind the frame of a registry, which has a JSON Schema for it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.errors import DeclarationError, Problem
from upsert_platform.formats.base import Columns
from upsert_platform.formats.fragments import Refusals
from upsert_platform.formats.json.decoder import JsonDecoder
from upsert_platform.formats.json.encoder import JsonEncoder
from upsert_platform.formats.registered.format_options import JsonRegistrySettings
from upsert_platform.formats.registered.framing import FramedDecoder, frame
from upsert_platform.formats.registered.json_schema import derive_json_schema
from upsert_platform.formats.registered.registry import SchemaRegistry
from upsert_platform.formats.registered.subjects import Destination, subject_of, written_schema


class JsonRegistryDecoder(FramedDecoder):
    """Decodes objects by the declared columns; the registry has to know the schema of each as a JSON Schema."""

    def __init__(self, columns: Columns, settings: JsonRegistrySettings, registry: SchemaRegistry) -> None:
        self._objects = JsonDecoder(columns, settings.json_settings())
        self._registry = registry
        super().__init__(columns, self._of_schema)

    def _of_schema(self, schema_id: int, _: bytes) -> JsonDecoder:
        self._registry.schema(schema_id, kind="JSON")
        return self._objects


class JsonRegistryEncoder:
    """Encodes rows as format ``json`` does, with a schema that is registered when the first row is written."""

    def __init__(
        self, columns: Columns, settings: JsonRegistrySettings, registry: SchemaRegistry, *, written: Destination
    ) -> None:
        self._objects = JsonEncoder(columns, settings.json_settings())
        self._settings = settings
        self._registry = registry
        self._text = declared_or_derived(settings, columns)
        self._subject = subject_of(settings, written, record=str(json.loads(self._text).get("title", "")))
        self._header: bytes | None = None

    def encode(self, rows: pa.RecordBatch) -> tuple[pa.Array, Refusals]:
        """Encodes a block; see `upsert_platform.formats.base.Encoder`.

        Raises:
            EndpointError: the registry did not answer, or refused the schema.
        """
        if rows.num_rows == 0:
            return pa.array([], pa.binary()), {}
        if self._header is None:
            self._header = frame(
                written_schema(self._registry, self._settings, self._subject, self._text, kind="JSON")[0]
            )
        data, refusals = self._objects.encode(rows)
        return pc.binary_join_element_wise(pa.scalar(self._header), data, b""), refusals


def declared_or_derived(settings: JsonRegistrySettings, columns: Columns) -> str:
    """The JSON Schema that is registered.

    Raises:
        DeclarationError: the declared one is not a JSON Schema of an object with the columns, or has no name where the
            subject is named after it.
    """
    if settings.declared_schema is None:
        return json.dumps(derive_json_schema(columns))
    problem = _problem(settings, columns)
    if problem is not None:
        raise DeclarationError([Problem(f"option 'json-registry.schema' {problem}")])
    return settings.declared_schema


def _problem(settings: JsonRegistrySettings, columns: Columns) -> str | None:
    try:
        schema: Any = json.loads(settings.declared_schema or "")
    except ValueError as error:
        return f"is not JSON: {error}"
    if not isinstance(schema, dict):
        return "is not a JSON Schema: an object expected"
    told = schema.get("properties")
    if schema.get("additionalProperties") is False and isinstance(told, dict):
        absent = [name for name, _ in columns if name not in told]
        if absent:
            return f"allows no property but its own, and has none for column '{absent[0]}'"
    if not schema.get("title") and "RecordNameStrategy" in f"{settings.key_strategy} {settings.value_strategy}":
        return "has no 'title', after which the subject is named; add one, or set 'json-registry.subject'"
    return None
