"""Format ``avro-confluent``: Avro data behind a zero byte and the four bytes of a schema's id in a registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.errors import DeclarationError, EndpointError, Problem
from upsert_platform.formats.avro.bulk import AvroBulk, has_bulk_form
from upsert_platform.formats.avro.encoder import row_type
from upsert_platform.formats.avro.options import AvroConfluentSettings
from upsert_platform.formats.avro.plan import read_schema, resolve
from upsert_platform.formats.avro.reader import row_reader
from upsert_platform.formats.avro.schema import derive_schema
from upsert_platform.formats.avro.writer import write_row
from upsert_platform.formats.base import Columns, Decoded
from upsert_platform.formats.blocks import ReadBulk, decode_blocks
from upsert_platform.formats.columns import schema_of
from upsert_platform.formats.fragments import Refusals, drop_refused, without_bad_times
from upsert_platform.formats.registered.framing import FramedDecoder, frame
from upsert_platform.formats.registered.registry import SchemaRegistry
from upsert_platform.formats.registered.subjects import Destination, subject_of, written_schema


class AvroConfluentDecoder(FramedDecoder):
    """Decodes messages of any number of writers' schemas; each is asked for once."""

    def __init__(self, columns: Columns, registry: SchemaRegistry) -> None:
        self._columns = list(columns)
        self._registry = registry
        super().__init__(columns, self._of_schema)

    def _of_schema(self, schema_id: int, _: bytes) -> _WrittenDecoder:
        found = self._registry.schema(schema_id)
        known = [read_schema(text) for text in found.references]
        node = resolve(read_schema(found.text), self._columns, known=known)
        schema = schema_of(self._columns)
        return _WrittenDecoder(schema, AvroBulk(node, schema).read if has_bulk_form(node) else None, row_reader(node))


class _WrittenDecoder:
    """Decodes data of one writer's schema."""

    def __init__(self, schema: pa.Schema, read_bulk: ReadBulk | None, read: Callable[[bytes], list[Any]]) -> None:
        self._schema = schema
        self._read_bulk = read_bulk
        self._read = read

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        return decode_blocks(messages, self._schema, self._read_bulk, self._read_one)

    def _read_one(self, message: bytes) -> list[list[Any]]:
        return [self._read(message)]


class AvroConfluentEncoder:
    """Encodes rows with the derived schema, which is registered when the first row is written."""

    def __init__(
        self, columns: Columns, registry: SchemaRegistry, *, settings: AvroConfluentSettings, written: Destination
    ) -> None:
        self._columns = list(columns)
        self._row = row_type(columns)
        self._derived = derive_schema(columns, legacy=True)
        self._text = json.dumps(self._derived)
        if settings.declared_schema is not None:
            self._text = _same_schema(settings.declared_schema, self._derived)
        self._registry = registry
        self._settings = settings
        self._subject = subject_of(settings, written, record=_full_name(json.loads(self._text)))
        self._header: bytes | None = None

    def encode(self, rows: pa.RecordBatch) -> tuple[pa.Array, Refusals]:
        """Encodes a block; see `upsert_platform.formats.base.Encoder`.

        Raises:
            EndpointError: the registry did not answer, or refused the schema.
        """
        refusals: Refusals = {}
        if rows.num_rows == 0:
            return pa.array([], pa.binary()), refusals
        if self._header is None:
            schema_id, found = written_schema(self._registry, self._settings, self._subject, self._text, kind="AVRO")
            if self._settings.use_latest and not _is_same(found.text, self._derived):
                raise EndpointError(
                    f"the newest schema of subject '{self._subject}' is not one of the declared columns, whose schema"
                    f" is {self._text}"
                )
            self._header = frame(schema_id)
        data = write_row(without_bad_times(rows.columns, self._columns, refusals), self._row, refusals)
        messages = pc.binary_join_element_wise(pa.scalar(self._header), data, b"")
        return drop_refused(messages, refusals), refusals


def _full_name(schema: dict[str, Any]) -> str:
    namespace = schema.get("namespace", "")
    return schema["name"] if "." in schema["name"] or not namespace else f"{namespace}.{schema['name']}"


def _same_schema(declared: str, derived: dict[str, Any]) -> str:
    """The declared schema, when it writes the same bytes as the derived one: names of records and docs may differ."""
    if not _is_same(declared, derived):
        text = "option 'avro-confluent.schema' is not a schema of the declared columns; their schema is"
        raise DeclarationError([Problem(f"{text} {json.dumps(derived)}")])
    return declared


def _is_same(declared: str, derived: dict[str, Any]) -> bool:
    try:
        return bool(_shape(json.loads(declared)) == _shape(derived))
    except (ValueError, KeyError, TypeError):
        return False


def _shape(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_shape(branch) for branch in schema]
    if isinstance(schema, str):
        return {"type": schema}
    if isinstance(schema["type"], (dict, list)):
        return _shape(schema["type"])
    shape: dict[str, Any] = {"type": schema["type"]}
    for name in ("logicalType", "precision", "scale", "size", "symbols"):
        if name in schema:
            shape[name] = schema[name]
    for name in ("items", "values"):
        if name in schema:
            shape[name] = _shape(schema[name])
    if schema["type"] == "record":
        shape["fields"] = [(item["name"], _shape(item["type"])) for item in schema["fields"]]
    return shape
