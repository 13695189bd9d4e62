"""Format ``avro-confluent``: Avro data behind a zero byte and the four bytes of a schema's id in a registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.errors import DeclarationError, Problem
from upsert_platform.formats.avro.bulk import AvroBulk, has_bulk_form
from upsert_platform.formats.avro.encoder import row_type
from upsert_platform.formats.avro.plan import resolve
from upsert_platform.formats.avro.reader import row_reader
from upsert_platform.formats.avro.schema import derive_schema
from upsert_platform.formats.avro.writer import write_row
from upsert_platform.formats.base import Columns, Decoded
from upsert_platform.formats.blocks import ReadBulk, decode_blocks
from upsert_platform.formats.columns import join, schema_of
from upsert_platform.formats.fragments import Refusals, drop_refused, without_bad_times
from upsert_platform.formats.registry import SchemaRegistry

HEADER: Final = 5
"""Bytes before the data: the magic byte 0 and the id, big-endian."""


class AvroConfluentDecoder:
    """Decodes messages of any number of writers' schemas; each is asked for once."""

    def __init__(self, columns: Columns, registry: SchemaRegistry) -> None:
        self._columns = list(columns)
        self._schema = schema_of(columns)
        self._registry = registry
        self._plans: dict[int, _Plan | str] = {}

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decodes a block; see `upsert_platform.formats.base.Decoder`.

        Raises:
            EndpointError: the registry did not answer; the messages are neither decoded nor refused then.
        """
        errors: dict[int, str] = {}
        groups: dict[bytes, list[int]] = {}
        for place, message in enumerate(messages):
            if message[:1] != b"\0" or len(message) < HEADER:
                errors[place] = "not framed by a schema registry: a zero byte and a schema id expected first"
            else:
                groups.setdefault(message[1:HEADER], []).append(place)
        parts: list[tuple[pa.RecordBatch, pa.Array]] = []
        for header, places in groups.items():
            plan = self._plan(int.from_bytes(header, "big", signed=True))
            if isinstance(plan, str):
                errors.update(dict.fromkeys(places, plan))
                continue
            found = decode_blocks(
                [messages[place][HEADER:] for place in places], self._schema, plan.read_bulk, plan.read_one
            )
            origin = pa.array(places, pa.int32())
            parts.append((found.rows, origin.take(found.message)))
            errors.update({places[at]: reason for at, reason in found.errors.items()})
        return join(self._schema, parts, errors)

    def _plan(self, schema_id: int) -> _Plan | str:
        if schema_id not in self._plans:
            try:
                self._plans[schema_id] = self._make_plan(schema_id)
            except ValueError as error:
                return f"schema id {schema_id}: {error}"
        return self._plans[schema_id]

    def _make_plan(self, schema_id: int) -> _Plan:
        found = self._registry.schema(schema_id)
        known = [json.loads(text) for text in found.references]
        node = resolve(json.loads(found.text), self._columns, known=known)
        return _Plan(AvroBulk(node, self._schema).read if has_bulk_form(node) else None, row_reader(node))


class _Plan:
    def __init__(self, read_bulk: ReadBulk | None, read: Callable[[bytes], list[Any]]) -> None:
        self.read_bulk = read_bulk
        self._read = read

    def read_one(self, message: bytes) -> list[list[Any]]:
        return [self._read(message)]


class AvroConfluentEncoder:
    """Encodes rows with the derived schema, which is registered when the first row is written."""

    def __init__(
        self, columns: Columns, registry: SchemaRegistry, *, subject: str, declared_schema: str | None = None
    ) -> None:
        self._columns = list(columns)
        self._row = row_type(columns)
        derived = derive_schema(columns, legacy=True)
        self._text = json.dumps(derived)
        if declared_schema is not None:
            self._text = _same_schema(declared_schema, derived)
        self._registry = registry
        self._subject = subject
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
            schema_id = self._registry.register(self._subject, self._text)
            self._header = b"\0" + schema_id.to_bytes(4, "big", signed=True)
        data = write_row(without_bad_times(rows.columns, self._columns, refusals), self._row, refusals)
        messages = pc.binary_join_element_wise(pa.scalar(self._header), data, b"")
        return drop_refused(messages, refusals), refusals


def _same_schema(declared: str, derived: dict[str, Any]) -> str:
    """The declared schema, when it writes the same bytes as the derived one: names of records and docs may differ."""
    try:
        same = _shape(json.loads(declared)) == _shape(derived)
    except (ValueError, KeyError, TypeError):
        same = False
    if not same:
        text = "option 'avro-confluent.schema' is not a schema of the declared columns; their schema is"
        raise DeclarationError([Problem(f"{text} {json.dumps(derived)}")])
    return declared


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
