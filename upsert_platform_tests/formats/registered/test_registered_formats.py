"""Formats json-registry and proto-registry against a real registry, and the subjects that they are registered under."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pyarrow as pa
import pytest
import requests

from upsert_platform.core.errors import DeclarationError, EndpointError, SourceLocation
from upsert_platform.core.types import arrow_type
from upsert_platform.formats import build_decoder, build_encoder, validate_format
from upsert_platform.formats.registered.proto_schema import ProtoFile
from upsert_platform.formats.registered.registry import RegisteredSchema
from upsert_platform.kafka.sink.encode import RecordEncoder
from upsert_platform.local.registry import Registry
from upsert_platform.referee.errors import UndecodableError
from upsert_platform.sync.audit import form_of
from upsert_platform_tests.formats.proto import add_field, shop
from upsert_platform_tests.formats.support import columns_of
from upsert_platform_tests.kafka.ranges import brief, run
from upsert_platform_tests.kafka.tables import FakeRecord, declare, read

SHOP = """syntax = "proto3"; package shop;
message Item { string sku = 1; int32 count = 2; }
message Order {
  map<string, Item> more = 9; message Line { int64 number = 1; string what = 2; }
  int64 id = 1; Item item = 2;
}
"""


def batch(declared: str, *rows: dict[str, Any]) -> pa.RecordBatch:
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in columns_of(declared)])
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)


def encode(format_id: str, declared: str, options: dict[str, str], *rows: dict[str, Any], **naming: Any) -> list[Any]:
    messages, errors = build_encoder(format_id, columns_of(declared), options, **naming).encode(batch(declared, *rows))
    assert errors == {}
    return list(messages.to_pylist())


def decode(format_id: str, declared: str, options: dict[str, str], *messages: bytes) -> list[Any]:
    found = build_decoder(format_id, columns_of(declared), options).decode(messages)
    rows = iter(found.rows.to_pylist())
    assert found.message.to_pylist() == [place for place in range(len(messages)) if place not in found.errors]
    return [found.errors[at] if at in found.errors else next(rows) for at in range(len(messages))]


def at(registry: Registry, format_id: str, **more: str) -> dict[str, str]:
    given = {"url": registry.url, **{name.replace("_", "-"): value for name, value in more.items()}}
    return {f"{format_id}.{name}": value for name, value in given.items()}


def register(registry: Registry, subject: str, schema: str, kind: str, references: list[Any] | None = None) -> int:
    body = {"schema": schema, "schemaType": kind, "references": references or []}
    answer = requests.post(f"{registry.url}/subjects/{subject}/versions", json=body, timeout=30)
    answer.raise_for_status()
    return int(answer.json()["id"])


def latest(registry: Registry, subject: str) -> dict[str, Any]:
    answer = requests.get(f"{registry.url}/subjects/{subject}/versions/latest", timeout=30)
    answer.raise_for_status()
    return dict(answer.json())


def subjects(registry: Registry) -> set[str]:
    return set(requests.get(f"{registry.url}/subjects", timeout=30).json())


def framed(schema_id: int, data: bytes, *, head: bytes = b"") -> bytes:
    return struct.pack(">bi", 0, schema_id) + head + data


def test_json_has_a_schema_that_describes_it(schema_registry: Registry) -> None:
    declared = "id BIGINT NOT NULL, name STRING, amount DECIMAL(10, 2), tags ARRAY<STRING NOT NULL>, r ROW<a INT>"
    options = at(schema_registry, "json-registry")
    row = {"id": 1, "name": "a", "amount": None, "tags": ["x"], "r": {"a": 2}}
    (message,) = encode("json-registry", declared, options, row, topic="js1")
    told = latest(schema_registry, "js1-value")
    assert message == framed(told["id"], b'{"id":1,"name":"a","amount":null,"tags":["x"],"r":{"a":2}}')
    assert told["schemaType"] == "JSON"
    schema = json.loads(told["schema"])
    assert schema["required"] == ["id"]
    assert schema["properties"]["id"] == {"type": "integer", "connect.type": "int64"}
    assert schema["properties"]["tags"]["oneOf"][1]["items"] == {"type": "string"}
    assert schema["properties"]["r"]["oneOf"][1]["properties"]["a"]["oneOf"][0] == {"type": "null"}
    assert decode("json-registry", declared, options, message) == [row]


def test_json_is_read_by_the_declared_columns_whoever_wrote_it(schema_registry: Registry) -> None:
    options = at(schema_registry, "json-registry", ignore_parse_errors="true")
    schema = '{"type": "object", "properties": {"id": {"type": "integer"}, "more": {"type": "string"}}}'
    known = register(schema_registry, "js2-value", schema, "JSON")
    avro = register(schema_registry, "js2-avro", '"int"', "AVRO")
    found = decode(
        "json-registry", "id INT, name STRING", options,
        framed(known, b'{"id": 5, "more": "x"}'), framed(known, b'{"id": "no"}'), framed(known, b"{"),
        framed(avro, b"{}"), framed(2**30, b"{}"), b'{"id": 5}',
    )  # fmt: skip
    assert found[:2] == [{"id": 5, "name": None}, {"id": None, "name": None}]
    assert "not JSON" in found[2]
    assert "is AVRO, not JSON" in found[3]
    assert "not in the registry" in found[4]
    assert "not framed" in found[5]


@pytest.mark.parametrize(("form", "place"), [("text", 0), ("compiled", 2)])
def test_messages_are_read_by_the_file_of_their_writer(schema_registry: Registry, form: str, place: int) -> None:
    """Java clients register the text of a proto file, Python's its compiled form, where entries of maps have places."""
    file = shop()
    add_field(file.message_type[1].nested_type.add(name="Line"), "number", "int64")
    schema = SHOP if form == "text" else base64.b64encode(file.SerializeToString()).decode()
    known = register(schema_registry, f"shop-{form}", schema, "PROTOBUF")
    own = ProtoFile(RegisteredSchema(schema))
    order, line = own.at((1,)), own.at((1, place))
    options = at(schema_registry, "proto-registry")
    data = order(id=7, item={"sku": "a", "count": 2}).SerializeToString()
    found = decode(
        "proto-registry", "id BIGINT, item ROW<sku STRING, count INT, later STRING>, later INT", options,
        framed(known, data, head=b"\2\2"), framed(known, b"\xff", head=b"\2\2"), framed(known, data, head=b"\2\x10"),
        framed(known, b"", head=b"\x80"), framed(known, data, head=b"\1"),
    )  # fmt: skip
    assert found[0] == {"id": 7, "item": {"sku": "a", "count": 2, "later": None}, "later": None}
    assert "not a message shop.Order" in found[1]
    assert "no message at the place [8]" in found[2]
    assert "ends before it says" in found[3]
    assert "is broken" in found[4]
    nested = framed(known, line(number=3).SerializeToString(), head=bytes([4, 2, 2 * place]))
    assert decode("proto-registry", "number BIGINT", options, nested) == [{"number": 3}]
    (refused,) = decode("proto-registry", "number STRING, gone INT NOT NULL", options, nested)
    assert "'number' is STRING, but field 'shop.Order.Line.number' is int64" in refused
    assert "column 'gone' is not a field" in refused


def test_a_proto_file_with_references(schema_registry: Registry) -> None:
    register(schema_registry, "money", 'syntax = "proto3"; package m; message Money { int64 units = 1; }', "PROTOBUF")
    schema = 'syntax = "proto3"; import "m/money.proto"; message Sale { m.Money price = 1; }'
    reference = {"name": "m/money.proto", "subject": "money", "version": 1}
    known = register(schema_registry, "sale-value", schema, "PROTOBUF", [reference])
    options = at(schema_registry, "proto-registry")
    message = framed(known, b"\x0a\x02\x08\x05", head=b"\0")
    assert decode("proto-registry", "price ROW<units BIGINT>", options, message) == [{"price": {"units": 5}}]


def test_messages_are_written_with_a_file_of_the_columns(schema_registry: Registry) -> None:
    declared = "id BIGINT NOT NULL, name STRING, tags ARRAY<STRING>, counts MAP<STRING, INT>, r ROW<a INT, b BYTES>"
    options = at(schema_registry, "proto-registry")
    row = {"id": 1, "name": None, "tags": ["x", "y"], "counts": [("k", 3)], "r": {"a": None, "b": b"\1"}}
    (message,) = encode("proto-registry", declared, options, row, topic="pr1", side="key")
    told = latest(schema_registry, "pr1-key")
    assert told["schemaType"] == "PROTOBUF"
    assert message[:6] == framed(told["id"], b"", head=b"\0")
    official = ProtoFile(RegisteredSchema(told["schema"])).at((0,)).FromString(message[6:])
    assert (official.id, official.HasField("name"), list(official.tags)) == (1, False, ["x", "y"])
    assert decode("proto-registry", declared, options, message) == [row]


def test_a_declared_file_and_message_are_written(schema_registry: Registry) -> None:
    options = at(schema_registry, "proto-registry", schema=SHOP, message_name="shop.Order.Line")
    name = "proto-registry.properties.value.subject.name.strategy"
    options[name] = "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy"
    (message,) = encode("proto-registry", "what STRING", options, {"what": "x"}, topic="pr2")
    known = latest(schema_registry, "pr2-shop.Order.Line")["id"]
    assert message == framed(known, b"\x12\x01x", head=b"\4\2\0")


def test_subjects_are_named_by_strategy(schema_registry: Registry) -> None:
    def written(format_id: str, side: str, **properties: str) -> set[str]:
        before = subjects(schema_registry)
        more = {f"{format_id}.properties.{name.replace('_', '.')}": value for name, value in properties.items()}
        encode(format_id, f"{side}{len(more)} INT", at(schema_registry, format_id) | more, {}, topic="named", side=side)
        return subjects(schema_registry) - before

    by_record = {"value_subject_name_strategy": "RecordNameStrategy"}
    assert written("avro-confluent", "value", **by_record) == {"org.apache.flink.avro.generated.record"}
    assert written("avro-confluent", "key", **by_record) == {"named-key"}
    both = {"key_subject_name_strategy": "TopicRecordNameStrategy"}
    assert written("json-registry", "key", **both) == {"named-Record"}
    assert written("proto-registry", "value", **by_record) == {"Record"}


def test_nothing_is_registered_where_it_must_not_be(schema_registry: Registry) -> None:
    options = at(schema_registry, "avro-confluent") | {"avro-confluent.properties.auto.register.schemas": "false"}
    with pytest.raises(EndpointError, match=r"subject 'fixed-value'.*auto\.register\.schemas"):
        encode("avro-confluent", "id INT", options, {"id": 1}, topic="fixed")
    assert "fixed-value" not in subjects(schema_registry)
    (first,) = encode("avro-confluent", "id INT", at(schema_registry, "avro-confluent"), {"id": 1}, topic="fixed")
    assert encode("avro-confluent", "id INT", options, {"id": 1}, topic="fixed") == [first]
    with pytest.raises(EndpointError, match="the schema to write is not registered"):
        encode("avro-confluent", "id BIGINT", options, {"id": 1}, topic="fixed")


def test_the_newest_schema_of_a_subject_is_written(schema_registry: Registry) -> None:
    def newest(format_id: str, subject: str) -> dict[str, str]:
        return at(schema_registry, format_id, subject=subject) | {f"{format_id}.properties.use.latest.version": "true"}

    register(schema_registry, "newest-proto", SHOP, "PROTOBUF")
    options = newest("proto-registry", "newest-proto")
    (message,) = encode("proto-registry", "count INT", options, {"count": 3})
    assert message[5:] == b"\0\x10\x03"
    with pytest.raises(EndpointError, match=r"column 'id' is not a field of message shop\.Item"):
        encode("proto-registry", "id BIGINT", options, {"id": 3})
    other = '{"type": "record", "name": "own.Name", "fields": [{"name": "id", "type": ["null", "int"]}]}'
    known = register(schema_registry, "newest-avro", other, "AVRO")
    options = newest("avro-confluent", "newest-avro")
    assert encode("avro-confluent", "id INT", options, {"id": 1}) == [framed(known, b"\2\2")]
    with pytest.raises(EndpointError, match="not one of the declared columns"):
        encode("avro-confluent", "id BIGINT", options, {"id": 1})
    with pytest.raises(EndpointError, match="it has no schema"):
        encode("avro-confluent", "id INT", newest("avro-confluent", "not-there"), {"id": 1})


@pytest.mark.parametrize(
    ("format_id", "columns", "options", "severity", "words"),
    [
        ("json-registry", "a INT", {"properties.value.subject.name.strategy": "com.example.Own"}, "error", "'subject'"),
        ("json-registry", "a INT", {"subject": "s", "properties.key.subject.name.strategy": "RecordNameStrategy"},
         "error", "both name the subject"),
        ("avro-confluent", "a INT", {"properties.use.latest.version": "true", "schema": "{}"}, "error", "keep one"),
        ("avro-confluent", "a INT", {"properties.context.name.strategy": "x"}, "error", "/contexts/<name>"),
        ("avro-confluent", "a INT", {"basic-auth.credentials-source": "SASL_INHERIT"}, "error", "user-info"),
        ("avro-confluent", "a INT", {"bearer-auth.credentials-source": "CUSTOM"}, "error", "with OAUTHBEARER"),
        ("avro-confluent", "a INT", {"bearer-auth.credentials-source": "OAUTHBEARER"}, "error", "issuer.endpoint.url"),
        ("json-registry", "a INT", {"properties.bearer.auth.client.id": "me"}, "error", "is not OAUTHBEARER"),
        ("json-registry", "a INT", {"properties.bearer.auth.logical.cluster": "lsrc"}, "error", "there is none"),
        ("json-registry", "a INT", {"properties.bearer.auth.custom.provider.class": "c"}, "error", "OAUTHBEARER"),
        ("avro-confluent", "a INT", {"properties.specific.avro.reader": "true"}, "warning", "changes nothing"),
        ("avro-confluent", "a INT", {"properties.use.latest.versio": "true"}, "error", "use.latest.version"),
        ("json-registry", "a INT", {"properties.json.fail.invalid.schema": "true"}, "error", "NOT NULL"),
        ("json-registry", "a INT", {"schema": "{"}, "error", "not JSON"),
        ("json-registry", "a INT", {"schema": '{"properties": {}, "additionalProperties": false}'}, "error", "'a'"),
        ("json-registry", "m MAP<INT, INT>", {}, "error", "JSON names are text"),
        ("json-registry", "a INT", {"map-null-key.mode": "X"}, "error", "json-registry.map-null-key.mode"),
        ("proto-registry", "a DECIMAL(5, 2)", {}, "error", "Protobuf holds"),
        ("proto-registry", "a ARRAY<ARRAY<INT>>", {}, "error", "Protobuf holds"),
        ("proto-registry", "a INT", {"schema": "message M { string a = 1; }"}, "error", "is string"),
        ("proto-registry", "a INT", {"schema": "message M { int32 a = 1; }", "message-name": "N"}, "error", "'N'"),
    ],
)  # fmt: skip
def test_declarations_are_checked(
    format_id: str, columns: str, options: dict[str, str], severity: str, words: str
) -> None:
    given = {f"{format_id}.{name}": value for name, value in {"url": "http://127.0.0.1:1", **options}.items()}
    problems = validate_format(
        format_id, given, columns_of(columns), side="value", direction="sink", subject="table 't'",
        location=SourceLocation("t.sql", 1),
    )  # fmt: skip
    assert [(problem.severity, words in problem.message) for problem in problems] == [(severity, True)]


def test_a_subject_is_needed_where_the_topic_names_none() -> None:
    for format_id in ("json-registry", "proto-registry"):
        with pytest.raises(DeclarationError, match=f"{format_id}.subject"):
            build_encoder(format_id, columns_of("a INT"), {f"{format_id}.url": "http://127.0.0.1:1"})


@pytest.mark.parametrize("format_id", ["json-registry", "proto-registry"])
def test_a_table_is_written_and_read_with_it(schema_registry: Registry, format_id: str) -> None:
    more = {f"{side}.{format_id}.url": schema_registry.url for side in ("key", "value")}
    more |= {f"{side}.format": format_id for side in ("key", "value")}
    table = read(declare(topic=f"whole-{format_id}", **more), writes=True)
    rows = pa.RecordBatch.from_pylist(
        [{"id": 1, "name": "a", "_op": "U"}, {"id": 2, "name": None, "_op": "D"}],
        schema=pa.schema([("id", pa.int32()), ("name", pa.string()), ("_op", pa.string())]),
    )
    block = RecordEncoder(table).encode(rows)
    assert block.refused == {}
    pairs = zip(block.keys.to_pylist(), block.values.to_pylist(), strict=True)
    given = [FakeRecord(offset, key, value) for offset, (key, value) in enumerate(pairs)]
    given.append(FakeRecord(2, given[0].key(), b"\0\xff\0\0\0{}"))
    found, account = run(read(declare(topic=f"whole-{format_id}", **more)), given)
    assert brief(found) == [("+U", 0, 1, "a"), ("-D", 1, 2, None), ("?", 2)]
    assert account.quarantined == 1
    form = form_of(table)  # what the referee is told of the table
    assert (form.key.decoder()(given[0].key()), form.value.decoder()(given[0].value())) == ([1], [1, "a"])
    with pytest.raises(UndecodableError):
        form.value.decoder()(given[2].value())


@pytest.mark.parametrize("format_id", ["avro-confluent", "json-registry", "proto-registry"])
@pytest.mark.parametrize(
    "name",
    [
        "basic-auth.user-info",
        "properties.basic.auth.user.info",
        "bearer-auth.token",
        "properties.bearer.auth.client.secret",
    ],
)
def test_credentials_of_a_registry_are_not_printed(format_id: str, name: str) -> None:
    declared = declare(**{f"value.{format_id}.{name}": "me:hunter2", "value.format": format_id})
    assert "hunter2" not in repr(declared)
    assert f"value.{format_id}.{name}" in repr(declared)
