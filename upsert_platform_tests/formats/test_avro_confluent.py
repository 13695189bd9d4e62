"""Format avro-confluent: framing, resolution of writers' schemas, and the registry over HTTP."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from upsert_platform.core.errors import DeclarationError, SourceLocation
from upsert_platform.formats import build_decoder, build_encoder, validate_format
from upsert_platform.formats.registered.registry import RegisteredSchema, SchemaNotFoundError
from upsert_platform.local.registry import Registry
from upsert_platform_tests.formats.support import columns_of, plain_rows

URL = {"avro-confluent.url": "http://127.0.0.1:1"}


class Shelf:
    """A registry in memory."""

    def __init__(self, *schemas: Any, first: int = 7) -> None:
        self.schemas = {first + place: json.dumps(schema) for place, schema in enumerate(schemas)}
        self.references: dict[int, tuple[str, ...]] = {}
        self.asked: list[Any] = []

    def schema(self, schema_id: int, *, kind: str = "AVRO") -> RegisteredSchema:
        self.asked.append(schema_id)
        if schema_id not in self.schemas:
            raise SchemaNotFoundError(f"schema id {schema_id} is not in the registry")
        return RegisteredSchema(self.schemas[schema_id], self.references.get(schema_id, ()))

    def register(self, subject: str, schema: str, *, kind: str = "AVRO") -> int:
        self.asked.append((subject, json.loads(schema)))
        return 7


def record(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def frame(schema_id: int, schema: Any, datum: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


def read(columns: str, shelf: Shelf, *messages: bytes) -> list[Any]:
    decoded = build_decoder("avro-confluent", columns_of(columns), URL, registry=shelf).decode(messages)
    rows = iter(plain_rows(decoded.rows, columns_of(columns)))
    assert decoded.message.to_pylist() == [at for at in range(len(messages)) if at not in decoded.errors]
    return [decoded.errors[at] if at in decoded.errors else next(rows) for at in range(len(messages))]


def test_known_bytes() -> None:
    shelf = Shelf()
    encoder = build_encoder(
        "avro-confluent", columns_of("r STRING NOT NULL"), URL, registry=shelf, topic="t", side="key"
    )
    messages, _ = encoder.encode(pa.record_batch([pa.array(["EU", "EU"])], names=["r"]))
    encoder.encode(pa.record_batch([pa.array(["EU"])], names=["r"]))
    assert messages.to_pylist() == [bytes.fromhex("0000000007044555")] * 2
    [(subject, schema)] = shelf.asked
    assert subject == "t-key"
    assert schema["name"] == "record"


@pytest.mark.parametrize(
    "message", [b"\5\0\0\0\7\2\2", b"", b"\0\0\0\0", b"\2\2"], ids=["116", "empty", "short", "117"]
)
def test_a_foreign_frame_is_refused(message: bytes) -> None:
    assert "schema registry" in read("a INT", Shelf(), message)[0]


def test_an_unknown_id_refuses_its_messages_only() -> None:
    schema = record(("a", "int"))
    found = read(
        "a INT", Shelf(schema), frame(7, schema, {"a": 1}), frame(9, schema, {"a": 2}), frame(7, schema, {"a": 3})
    )
    assert found[0] == [1]
    assert "schema id 9 is not in the registry" in found[1]
    assert found[2] == [3]


def test_a_schema_is_asked_for_once() -> None:
    schema = record(("a", "int"))
    shelf = Shelf(schema)
    decoder = build_decoder("avro-confluent", columns_of("a INT"), URL, registry=shelf)
    for _ in range(3):
        decoder.decode([frame(7, schema, {"a": 1})] * 5)
    assert shelf.asked == [7]


def test_writers_of_several_schemas_share_a_block() -> None:
    old = record(("a", "int"), ("gone", "string"))
    new = record(("b", ["null", "string"]), ("a", ["null", "long"]))
    found = read(
        "a BIGINT, b STRING",
        Shelf(old, new),
        frame(7, old, {"a": 1, "gone": "x"}),
        frame(8, new, {"a": 2, "b": "y"}),
        frame(7, old, {"a": 3, "gone": "z"}),
        frame(8, new, {"a": None, "b": None}),
    )
    assert found == [[1, None], [2, b"y"], [3, None], [None, None]]


MOMENT = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
MICROS = 1_714_979_289_123_456


@pytest.mark.parametrize(
    ("writer", "datum", "column", "want"),
    [
        ("int", 5, "BIGINT", 5),
        ("int", 5, "DOUBLE", "4014000000000000"),
        ("long", 5, "FLOAT", "40a00000"),
        ("float", 1.5, "DOUBLE", "3ff8000000000000"),
        ("bytes", b"x", "STRING", b"x"),
        ("string", "x", "BYTES", b"x"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", "STRING", b"B"),
        ({"type": "fixed", "name": "f", "size": 2}, b"ab", "BYTES", b"ab"),
        ({"type": "long", "logicalType": "timestamp-millis"}, MOMENT, "TIMESTAMP_LTZ(3)", MICROS - 456),
        ({"type": "long", "logicalType": "timestamp-micros"}, MOMENT, "TIMESTAMP_LTZ(6)", MICROS),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, MOMENT.replace(tzinfo=None), "TIMESTAMP(6)",
         MICROS),
        ("long", 1000, "TIMESTAMP(3)", 1_000_000),
        ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, MICROS, "TIMESTAMP(6)", MICROS),
        ({"type": "long", "connect.name": "io.debezium.time.Timestamp"}, 7, "TIMESTAMP(3)", 7000),
        ({"type": "int", "logicalType": "time-millis"}, 7, "TIME(3)", 7000),
        ({"type": "long", "logicalType": "time-micros"}, 7, "TIME(6)", 7),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("1.50"), "DECIMAL(9, 2)",
         Decimal("1.50")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1}, Decimal("1.5"), "DECIMAL(9, 2)",
         Decimal("1.50")),
        ({"type": "fixed", "name": "d", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2},
         Decimal("-1.50"), "DECIMAL(9, 2)", Decimal("-1.50")),
        (["null", "int", "string"], 5, "INT", 5),
        (["int", "null"], None, "INT", None),
        (["long", "int"], 5, "BIGINT", 5),
        ({"type": "array", "items": ["null", "int"]}, [1, None], "ARRAY<BIGINT>", [1, None]),
        ({"type": "map", "values": "int"}, {"k": 1}, "MAP<STRING, INT>", [(b"k", 1)]),
        ({"type": "map", "values": "int"}, {"k": 1}, "MULTISET<STRING>", [(b"k", 1)]),
        ({**record(("x", "int"), ("y", "string")), "name": "inner"}, {"x": 1, "y": "q"}, "ROW<y STRING, z INT, x INT>",
         [b"q", None, 1]),
    ],
)  # fmt: skip
def test_writers_types_are_resolved(writer: Any, datum: Any, column: str, want: Any) -> None:
    schema = record(("before", ["null", "string"]), ("a", writer), ("after", {"type": "array", "items": "int"}))
    message = frame(7, schema, {"before": "b", "a": datum, "after": [1, 2]})
    assert read(f"a {column}", Shelf(schema), message) == [[want]]


@pytest.mark.parametrize(
    ("writer", "datum", "column", "words"),
    [
        ("string", "x", "INT", ["field a", "string", "INT"]),
        (["null", "string"], "x", "INT", ["string", "INT"]),
        ("long", 5, "INT", ["long", "INT"]),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}, Decimal("1.005"), "DECIMAL(9, 2)",
         ["fraction digits"]),
    ],
)  # fmt: skip
def test_what_does_not_resolve_is_refused(writer: Any, datum: Any, column: str, words: list[str]) -> None:
    schema = record(("a", writer))
    [reason] = read(f"a {column}", Shelf(schema), frame(7, schema, {"a": datum}))
    assert all(word in reason for word in words), reason


def test_a_not_null_column_that_the_writer_lacks_is_refused() -> None:
    schema = record(("a", "int"))
    [reason] = read("a INT, b INT NOT NULL", Shelf(schema), frame(7, schema, {"a": 1}))
    assert "no field b" in reason


def test_named_types_and_references() -> None:
    point = {"type": "record", "name": "geo.Point", "fields": [{"name": "x", "type": "int"}]}
    schema = {
        "type": "record",
        "name": "geo.Line",
        "fields": [{"name": "a", "type": "Point"}, {"name": "b", "type": "geo.Point"}],
    }
    shelf = Shelf(schema)
    shelf.references[7] = (json.dumps(point),)
    assert read("a ROW<x INT>, b ROW<x INT>", shelf, b"\0\0\0\0\7\2\4") == [[[1], [2]]]


def test_28_a_declared_schema_must_be_of_the_columns() -> None:
    columns = columns_of("a INT")
    same = {"type": "record", "name": "Mine", "doc": "d", "fields": [{"name": "a", "type": ["null", "int"]}]}
    other = {"type": "record", "name": "Mine", "fields": [{"name": "a", "type": "long"}]}
    shelf = Shelf()
    options = {**URL, "avro-confluent.schema": json.dumps(same), "avro-confluent.subject": "s"}
    build_encoder("avro-confluent", columns, options, registry=shelf).encode(
        pa.record_batch([pa.array([1])], names=["a"])
    )
    assert shelf.asked == [("s", same)]
    with pytest.raises(DeclarationError, match=r"avro-confluent\.schema"):
        build_encoder(
            "avro-confluent", columns, {**options, "avro-confluent.schema": json.dumps(other)}, registry=shelf
        )


def test_119_a_writer_needs_a_subject() -> None:
    with pytest.raises(DeclarationError, match=r"avro-confluent\.subject"):
        build_encoder("avro-confluent", columns_of("a INT"), URL, registry=Shelf())


@pytest.mark.parametrize(
    ("options", "columns", "direction", "word"),
    [
        ({}, "a INT", "source", "required option 'avro-confluent.url'"),
        ({**URL, "avro-confluent.basic-auth.credentials-source": "USER_INFO"}, "a INT", "source", "user-info"),
        ({**URL, "avro-confluent.ssl.truststore.location": "/x/trust.jks"}, "a INT", "source", "PEM"),
        ({**URL, "avro-confluent.ssl.truststore.password": "hunter2"}, "a INT", "source", "truststore.password"),
        (URL, "a TIMESTAMP(6)", "sink", "3 fraction digits"),
        (URL, "a TIMESTAMP_LTZ(3)", "sink", "TIMESTAMP_LTZ"),
    ],
)
def test_declarations_are_checked(options: dict[str, str], columns: str, direction: Any, word: str) -> None:
    problems = validate_format(
        "avro-confluent", options, columns_of(columns), side="value", direction=direction, subject="table 't'",
        location=SourceLocation("t.sql", 1),
    )  # fmt: skip
    assert len(problems) == 1
    assert word in problems[0].message
    assert "hunter2" not in problems[0].message


def test_a_source_may_declare_every_timestamp() -> None:
    found = validate_format(
        "avro-confluent", URL, columns_of("a TIMESTAMP(6), b TIMESTAMP_LTZ(6)"), side="value", direction="source",
        subject="table 't'", location=SourceLocation("t.sql", 1),
    )  # fmt: skip
    assert found == []


def test_debezium_envelopes() -> None:
    value = {**record(("id", "int"), ("name", ["null", "string"])), "name": "Value", "namespace": "shop.users"}
    envelope = {
        "type": "record", "name": "Envelope", "namespace": "shop.users",
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": record(("db", "string"))},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }  # fmt: skip
    options = {"debezium-avro-confluent.url": "http://127.0.0.1:1"}
    columns = columns_of("name STRING, id INT")

    def message(op: str, before: Any, after: Any) -> bytes:
        return frame(7, envelope, {"before": before, "after": after, "source": {"db": "x"}, "op": op, "ts_ms": 5})

    old, new = {"id": 1, "name": "a"}, {"id": 1, "name": None}
    messages = [message("c", None, old), message("u", old, new), b"", message("d", new, None), message("u", None, new)]
    decoded = build_decoder("debezium-avro-confluent", columns, options, registry=Shelf(envelope)).decode(messages)
    assert decoded.kinds is not None
    assert decoded.kinds.to_pylist() == ["+I", "-U", "+U", "-D"]
    assert decoded.message.to_pylist() == [0, 1, 1, 3]
    assert plain_rows(decoded.rows, columns) == [[b"a", 1], [b"a", 1], [None, 1], [None, 1]]
    assert "REPLICA IDENTITY" in decoded.errors[4]
    with pytest.raises(DeclarationError, match="reading only"):
        build_encoder("debezium-avro-confluent", columns, options, registry=Shelf())
    problems = validate_format(
        "debezium-avro-confluent", {**options, "debezium-avro-confluent.basic-auth.credentials-source": "USER_INFO"},
        columns, side="value", direction="source", subject="table 't'", location=SourceLocation("t.sql", 1),
    )  # fmt: skip
    assert "debezium-avro-confluent.basic-auth.user-info" in problems[0].message


def test_118_round_trip_through_a_registry(schema_registry: Registry) -> None:
    columns = columns_of("id BIGINT NOT NULL, name STRING, at TIMESTAMP(3), tags ARRAY<STRING>")
    options = {"avro-confluent.url": schema_registry.url}
    rows = pa.record_batch(
        [pa.array([1, 2]), pa.array(["a", None]), pa.array([MICROS // 1000 * 1000, None], pa.timestamp("us")),
         pa.array([["x"], None], pa.list_(pa.string()))],
        names=[name for name, _ in columns],
    )  # fmt: skip
    first, _ = build_encoder("avro-confluent", columns, options, topic="formats").encode(rows)
    again, _ = build_encoder("avro-confluent", columns, options, topic="formats").encode(rows)
    assert first.equals(again)
    decoded = build_decoder("avro-confluent", columns, options).decode(first.to_pylist())
    assert decoded.errors == {}
    assert plain_rows(decoded.rows, columns) == plain_rows(rows, columns)
    unknown = build_decoder("avro-confluent", columns, options).decode([b"\0\x7f\0\0\0\2"])
    assert "not in the registry" in unknown.errors[0]
