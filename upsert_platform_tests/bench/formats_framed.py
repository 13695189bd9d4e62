"""Formats whose messages are framed or described elsewhere: raw, avro-confluent, debezium-avro-confluent, protobuf."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from upsert_platform.core.types import arrow_type
from upsert_platform.formats import build_decoder, build_encoder
from upsert_platform.formats.avro.schema import derive_schema
from upsert_platform.formats.protobuf.schema import message_class
from upsert_platform.formats.registered.registry import RegisteredSchema
from upsert_platform_tests.bench.formats import (
    SIMPLE,
    Columns,
    batch_of,
    columns_of,
    measure_decoder,
    measure_encoder,
    seconds_of,
)
from upsert_platform_tests.bench.measure import row
from upsert_platform_tests.formats.proto import add_field, write_set

_READER, _WRITER = "fastavro.schemaless_reader", "fastavro.schemaless_writer"
_FRAME = b"\0\0\0\0\1"


class _Registry:
    """Keeps one schema."""

    def __init__(self, text: str = "") -> None:
        self._text = text

    def schema(self, schema_id: int, *, kind: str = "AVRO") -> RegisteredSchema:
        return RegisteredSchema(self._text, ())

    def register(self, subject: str, schema: str, *, kind: str = "AVRO") -> int:
        self._text = schema
        return 1

    def lookup(self, subject: str, schema: str, *, kind: str = "AVRO") -> int:
        return 1

    def latest(self, subject: str, *, kind: str = "AVRO") -> tuple[int, RegisteredSchema]:
        return 1, self.schema(1)


def run_framed(rows: int) -> Iterator[dict[str, Any]]:
    """Measures each format in the directions that it has."""
    yield from _raw(rows)
    yield from _avro_confluent(rows)
    yield _debezium_avro(rows)
    yield from _protobuf(rows)


def _raw(rows: int) -> Iterator[dict[str, Any]]:
    columns = columns_of({"name": "STRING"})
    batch = pa.record_batch([pa.array([f"name of user {at}" for at in range(rows)])], names=["name"])
    encoder = build_encoder("raw", columns, {})
    messages: list[bytes] = encoder.encode(batch)[0].to_pylist()
    peer = "bytes.decode and pa.array"
    yield measure_decoder(
        "raw_decode",
        build_decoder("raw", columns, {}),
        columns,
        messages,
        lambda given, _: pa.array([message.decode() for message in given]),
        peer,
    )
    yield measure_encoder(
        "raw_encode",
        encoder,
        columns,
        batch,
        lambda given, _: [text.encode() for text in given.column(0).to_pylist()],
        "to_pylist and str.encode",
    )


def _avro_confluent(rows: int) -> Iterator[dict[str, Any]]:
    columns, batch, registry = columns_of(SIMPLE), batch_of(SIMPLE, rows), _Registry()
    options = {"avro-confluent.url": "http://127.0.0.1:1"}
    encoder = build_encoder("avro-confluent", columns, options, registry=registry, topic="bench")
    messages: list[bytes] = encoder.encode(batch)[0].to_pylist()
    schema = fastavro.parse_schema(derive_schema(columns, legacy=False))

    def by_fastavro(given: list[bytes], _: Columns) -> list[pa.Array]:
        found = [fastavro.schemaless_reader(io.BytesIO(message[5:]), schema) for message in given]
        return [pa.array([item[name] for item in found], arrow_type(kind)) for name, kind in columns]

    def to_fastavro(given: pa.RecordBatch, _: Columns) -> list[bytes]:
        return [_written(schema, item) for item in given.to_pylist()]

    decoder = build_decoder("avro-confluent", columns, options, registry=registry)
    yield measure_decoder("avro_confluent_decode", decoder, columns, messages, by_fastavro, _READER)
    yield measure_encoder("avro_confluent_encode", encoder, columns, batch, to_fastavro, _WRITER)


def _written(schema: Any, item: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    out.write(_FRAME)
    fastavro.schemaless_writer(out, schema, item)
    return out.getvalue()


def _debezium_avro(rows: int) -> dict[str, Any]:
    """Updates with both images."""
    columns = columns_of(SIMPLE)
    image = {**derive_schema(columns, legacy=False), "name": "image", "namespace": "bench"}
    fields = [
        {"name": "before", "type": ["null", image]},
        {"name": "after", "type": ["null", "bench.image"]},
        {"name": "op", "type": "string"},
    ]
    declared = {"type": "record", "name": "envelope", "fields": fields}
    schema = fastavro.parse_schema(declared)
    images = batch_of(SIMPLE, rows).to_pylist()
    messages = [_written(schema, {"before": item, "after": item, "op": "u"}) for item in images]
    options = {"debezium-avro-confluent.url": "http://127.0.0.1:1"}
    decoder = build_decoder("debezium-avro-confluent", columns, options, registry=_Registry(json.dumps(declared)))
    assert decoder.decode(messages).rows.num_rows == 2 * rows
    theirs = seconds_of(lambda: [fastavro.schemaless_reader(io.BytesIO(message[5:]), schema) for message in messages])
    ours = seconds_of(lambda: decoder.decode(messages))
    name, peer = "debezium_avro_confluent_decode", f"{_READER} alone"
    return row(name, rows=rows, seconds=ours, ratio=theirs / ours, ratio_to=peer)


def _protobuf(rows: int) -> Iterator[dict[str, Any]]:
    columns, batch = columns_of(SIMPLE), batch_of(SIMPLE, rows)
    file = FileDescriptorProto(name="users.proto", package="bench", syntax="proto3")
    message = file.message_type.add(name="User")
    kinds = {"BIGINT": "int64", "STRING": "string", "DOUBLE": "double"}
    for name, kind in SIMPLE.items():
        add_field(message, name, kinds[kind], optional=name == "name")
    with tempfile.TemporaryDirectory() as folder:
        path = write_set(Path(folder) / "users.desc", file)
        options = {"protobuf.descriptor-file": path, "protobuf.message-class-name": "bench.User"}
        official = message_class(path, "bench.User")
        encoder = build_encoder("protobuf", columns, options)
        messages: list[bytes] = encoder.encode(batch)[0].to_pylist()
        decoder = build_decoder("protobuf", columns, options)

        def by_library(given: list[bytes], _: Columns) -> list[pa.Array]:
            found = [official.FromString(message) for message in given]
            return [pa.array([getattr(item, name) for item in found], arrow_type(kind)) for name, kind in columns]

        def to_library(given: pa.RecordBatch, _: Columns) -> list[bytes]:
            return [official(**item).SerializeToString() for item in given.to_pylist()]

        peer = "protobuf's own classes"
        yield measure_decoder("protobuf_decode", decoder, columns, messages, by_library, peer, "")
        yield measure_encoder("protobuf_encode", encoder, columns, batch, to_library, peer, "")
