"""Topics of thirty shapes by producers of Java and Python: declared without an edit, decoded whole, synced rightly."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
import requests
from click.testing import CliRunner
from confluent_kafka import Producer
from tablestore import INF_MAX, INF_MIN, OTSClient

from upsert_platform.changelog.lake import Lake
from upsert_platform.cli.main import main
from upsert_platform.graph.build import build_definitions
from upsert_platform.graph.resources import (
    KafkaResource,
    MaxComputeResource,
    PlatformResource,
    SparkResource,
    TablestoreResource,
)
from upsert_platform.local.registry import Registry
from upsert_platform.sync.binding import bind, load
from upsert_platform.sync.peek import peek
from upsert_platform_tests.interop.java import Java
from upsert_platform_tests.local.tablestore.server import ServerHandle as TablestoreServer

Pair = tuple[bytes | None, bytes | None]
LONG, TEXT = "LongSerializer", "StringSerializer"
SERIALIZERS = "org.apache.kafka.common.serialization"
USER = {
    "type": "record", "name": "User", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]},
        {"name": "spent", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}  # fmt: skip
ORDER = 'syntax = "proto3"; package shop; message Order { int64 id = 1; string what = 2; }'
KEY = {"type": "record", "name": "UserKey", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
CHANGE = {
    "type": "record", "name": "Envelope", "namespace": "shop",
    "fields": [
        {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": [
            {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]}]},
        {"name": "after", "type": ["null", "Value"]}, {"name": "op", "type": "string"},
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Topic:
    """A topic.

    Attributes:
        pairs: keys and values, of one partition.
        rows: what is read of it, oldest first, without the platform's own columns.
        doubtful: columns, or parts of what is told, that may be meant otherwise; a topic without any is right as it is.
        java: names of the serializers, where a Java client sends Java's own values.
        then: keys and values that are sent after the first sync.
        left: rows of the table after them.
        stored: rows of the table after the first sync, where they are not `rows`.
    """

    pairs: Sequence[tuple[Any, Any]]
    rows: Sequence[Mapping[str, Any]]
    doubtful: Sequence[str] = ()
    java: tuple[str, str] | None = None
    compacted: bool = True
    then: Sequence[tuple[Any, Any]] | None = None
    left: Sequence[Mapping[str, Any]] | None = None
    stored: Sequence[Mapping[str, Any]] | None = None

    @property
    def table(self) -> list[dict[str, Any]]:
        """Rows of the table after the first sync."""
        return [as_stored(row) for row in (self.rows if self.stored is None else self.stored)]

    @property
    def later(self) -> Sequence[tuple[Any, Any]]:
        """What is sent after the first sync: unless given, a tombstone of the first key of a compacted topic."""
        return [(self.pairs[0][0], None)] if self.then is None and self.compacted else self.then or []

    @property
    def table_later(self) -> list[dict[str, Any]]:
        """Rows of the table after the second sync."""
        if self.left is not None:
            return [as_stored(row) for row in self.left]
        return self.table[1:] if self.compacted else self.table


def as_stored(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as a table of Tablestore holds it: nulls are absent, nested values are JSON."""
    return {
        name: json.dumps(value, separators=(",", ":")) if isinstance(value, (list, dict)) else value
        for name, value in row.items()
        if value is not None
    }


def objects(key: Callable[[dict[str, Any]], bytes | None], *rows: dict[str, Any], **more: Any) -> Topic:
    """JSON objects that are read as they are."""
    pairs = [(key(row), json.dumps(row).encode()) for row in rows]
    return Topic(pairs, rows, **more)


def as_json(*names: str) -> Callable[[dict[str, Any]], bytes]:
    return lambda row: json.dumps({name: row[name] for name in names}).encode()


def placed(offset: int) -> dict[str, int]:
    """The place of a record, which is its key in a table where it has none."""
    return {"kafka_partition": 0, "kafka_offset": offset}


def as_text(name: str) -> Callable[[dict[str, Any]], bytes]:
    return lambda row: str(row[name]).encode()


def nothing(row: dict[str, Any]) -> None:
    return None


def canal(kind: str, row: dict[str, str], old: dict[str, str] | None = None) -> bytes:
    types = {"id": "bigint(20)", "name": "varchar(20)", "spent": "decimal(9,2)"}
    told = {"data": [row], "type": kind, "isDdl": False, "pkNames": ["id"], "mysqlType": types}
    told["old"] = None if old is None else [old]
    return json.dumps({**told, "database": "shop", "table": "users", "es": 1, "ts": 1}).encode()


def maxwell(kind: str, row: dict[str, Any], **more: Any) -> bytes:
    told = {"database": "d", "table": "t", "type": kind, "ts": 1, "data": row, "primary_key_columns": ["id"]}
    return json.dumps({**told, **more}).encode()


def debezium(operation: str, before: Any, after: Any) -> bytes:
    return json.dumps({"before": before, "after": after, "op": operation}).encode()


def framed(number: int, data: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + data


def avro(schema: dict[str, Any], value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@dataclass
class Schemas:
    """Registers schemas by the registry's own API."""

    url: str
    made: dict[str, int] = field(default_factory=dict)

    def id(self, subject: str, schema: str, kind: str = "AVRO") -> int:
        if subject not in self.made:
            body = {"schema": schema, "schemaType": kind}
            answer = requests.post(f"{self.url}/subjects/{subject}/versions", json=body, timeout=30)
            answer.raise_for_status()
            self.made[subject] = answer.json()["id"]
        return self.made[subject]


A, B = {"id": 1, "name": "ann"}, {"id": 2, "name": "bob"}
RENAMED = {"id": 1, "name": "anna"}
NESTED = {"id": 1, "at": {"city": "x", "geo": {"lat": 1, "lon": 2}}, "tags": ["a", "b"], "lines": [{"n": 1}, {"n": 2}]}


def plain_topics() -> dict[str, Topic]:
    """Topics without a registry."""
    return {
        "json-keys": objects(
            as_json("id"), A, B, then=[(b'{"id":1}', json.dumps(RENAMED).encode()), (b'{"id":2}', None)], left=[RENAMED]
        ),
        "json-key-and-tombstone": Topic(
            [(b'{"id":1}', b'{"id":1,"n":1}'), (b'{"id":1}', None)], [{"id": 1, "n": 1}, {"id": 1}],
            stored=[],
        ),
        "text-keys": objects(as_text("customer"), {"customer": "c-1", "n": 1}, {"customer": "c-2", "n": 2}),
        "number-keys": objects(as_text("id"), A, B),
        "keys-beside": Topic([(b"c-1", b'{"n":1}')], [{"key": "c-1", "n": 1}]),
        "keys-with-zeros": objects(as_text("zip"), {"zip": "01234", "n": 1}, {"zip": "99999", "n": 2}),
        "composite-keys": objects(as_json("shop", "id"), {"shop": "eu", "id": 1}, {"shop": "us", "id": 1}),
        "keyless": objects(
            nothing, A, B, compacted=False, then=[(None, json.dumps(A).encode())],
            stored=[{**A, **placed(0)}, {**B, **placed(1)}],
            left=[{**A, **placed(0)}, {**B, **placed(1)}, {**A, **placed(2)}],
        ),
        "dates": Topic(
            [(b'{"id":1}', b'{"id":1,"day":"2024-02-29","at":"2024-02-29 01:02:03.123","time":"01:02:03"}')],
            [{"id": 1, "day": "2024-02-29", "at": "2024-02-29T01:02:03.123", "time": "01:02:03"}],
        ),
        "iso-timestamps": objects(as_json("id"), {"id": 1, "at": "2024-02-29T01:02:03.123"}),
        "instants": objects(as_json("id"), {"id": 1, "at": "2024-02-29T01:02:03.123456Z"}),
        "offsets-of-zones": objects(as_json("id"), {"id": 1, "at": "2024-02-29T01:02:03+08:00"}, doubtful=["'at'"]),
        "milliseconds": objects(as_json("id"), {"id": 1, "at": 1_700_000_000_000}, doubtful=["'at'"]),
        "decimals": Topic(
            [(b'{"id":1}', b'{"id":1,"spent":"12.50"}'), (b'{"id":2}', b'{"id":2,"spent":"1.5"}')],
            [{"id": 1, "spent": 12.5}, {"id": 2, "spent": 1.5}],
            doubtful=["'spent'"],
            stored=[{"id": 1, "spent": "12.50"}, {"id": 2, "spent": "1.50"}],
        ),
        "large-numbers": objects(
            as_json("id"), {"id": 1, "n": 12345678901234567890}, stored=[{"id": 1, "n": "12345678901234567890"}]
        ),
        "nested": objects(as_json("id"), NESTED, {**NESTED, "id": 2}),
        "maps": objects(as_json("id"), {"id": 1, "by": {"7": 1}}, {"id": 2, "by": {"8": 2, "9": 3}}, doubtful=["'by'"]),
        "booleans-and-nulls": objects(as_json("id"), {"id": 1, "ok": True}, {"id": 2, "ok": None}),
        "missing-fields": Topic(
            [(b'{"id":1}', b'{"id":1,"a":1}'), (b'{"id":2}', b'{"id":2,"b":"x"}')],
            [{"id": 1, "a": 1, "b": None}, {"id": 2, "a": None, "b": "x"}],
        ),
        "csv-values": Topic([(b"k", b"1;x"), (b"l", b"2;y")], [
            {"key": "k", "value_1": 1, "value_2": "x"}, {"key": "l", "value_1": 2, "value_2": "y"}],
            doubtful=["'value_1'"]),
        "text-values": Topic([(b"k", b"hello there")], [{"key": "k", "value": "hello there"}]),
        "mixed": Topic([(b"k", b'{"a":1}'), (b"l", b"text")], [
            {"key": "k", "value": '{"a":1}'}, {"key": "l", "value": "text"}], doubtful=["JSON objects"]),
        "debezium": Topic(
            [(b'{"id":1}', debezium("c", None, A)), (b'{"id":2}', debezium("c", None, B)), (b'{"id":3}', None)], [A, B],
            compacted=False,
            then=[(b'{"id":1}', debezium("u", A, RENAMED)), (b'{"id":2}', debezium("d", B, None)), (b'{"id":2}', None)],
            left=[RENAMED],
        ),
        "debezium-with-schema": Topic(
            [(b'{"schema":{},"payload":{"id":1}}',
              json.dumps({"schema": {}, "payload": {"before": None, "after": A, "op": "c"}}).encode())],
            [A], compacted=False,
        ),
        "canal": Topic(
            [(None, canal("INSERT", {"id": "1", "name": "ann", "spent": "1.50"})),
             (None, canal("INSERT", {"id": "2", "name": "bob", "spent": "2.50"}))],
            [{"id": 1, "name": "ann", "spent": 1.5}, {"id": 2, "name": "bob", "spent": 2.5}], compacted=False,
            stored=[{"id": 1, "name": "ann", "spent": "1.50"}, {"id": 2, "name": "bob", "spent": "2.50"}],
            then=[(None, canal("UPDATE", {"id": "1", "name": "ann", "spent": "9.00"}, {"spent": "1.50"})),
                  (None, canal("DELETE", {"id": "2", "name": "bob", "spent": "2.50"}))],
            left=[{"id": 1, "name": "ann", "spent": "9.00"}],
        ),
        "maxwell": Topic(
            [(None, maxwell("insert", A)), (None, maxwell("insert", B))], [A, B], compacted=False,
            then=[(None, maxwell("update", RENAMED, old={"name": "ann"})), (None, maxwell("delete", B))],
            left=[RENAMED],
        ),
        "java-longs": Topic([(7 << 40, '{"n":1}')], [{"key": 7 << 40, "n": 1}], ["'key'"], (LONG, TEXT)),
        "java-strings": Topic([("c-1", '{"n":1}')], [{"key": "c-1", "n": 1}], (), (TEXT, TEXT)),
    }  # fmt: skip


def registered_topics(schemas: Schemas) -> dict[str, Topic]:
    """Topics whose schemas a registry has."""
    user = {"id": 1, "name": "ann", "spent": "1.50", "day": "2024-02-29", "tags": ["a"]}
    value = {**user, "spent": Decimal("1.50"), "day": date(2024, 2, 29)}
    key, users = schemas.id("users-key", json.dumps(KEY)), schemas.id("users-value", json.dumps(USER))
    change = schemas.id("changes-value", json.dumps(CHANGE))
    told = schemas.id("told-value", json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}}), "JSON")
    order = schemas.id("orders-value", ORDER, "PROTOBUF")
    return {
        "avro": Topic(
            [(framed(key, avro(KEY, {"id": 1})), framed(users, avro(USER, value)))],
            [{**user, "spent": 1.5}],
            stored=[user],
        ),
        "avro-changes": Topic(
            [
                (
                    framed(key, avro(KEY, {"id": 1})),
                    framed(change, avro(CHANGE, {"before": None, "after": A, "op": "c"})),
                )
            ],
            [A],
            compacted=False,
        ),
        "json-schema": Topic([(b"1", framed(told, json.dumps(A).encode()))], [{"key": 1, **A}]),
        "protobuf": Topic([(b"o-1", framed(order, b"\0\x08\x05\x12\x02hi"))], [{"key": "o-1", "id": 5, "what": "hi"}]),
    }


def send(topics: Mapping[str, Topic], servers: str, java: Java, *, later: bool = False) -> None:
    python = Producer({"bootstrap.servers": servers})
    for name, topic in topics.items():
        pairs = topic.later if later else topic.pairs
        if topic.java is None:
            for key, value in pairs:
                python.produce(name, key=key, value=value)
            continue
        given = {"bootstrap.servers": servers}
        given |= {
            f"{side}.serializer": f"{SERIALIZERS}.{of}" for side, of in zip(("key", "value"), topic.java, strict=True)
        }
        producer = java.classes.org.apache.kafka.clients.producer.KafkaProducer(java.map_of(given))
        record = java.classes.org.apache.kafka.clients.producer.ProducerRecord
        for key, value in pairs:
            producer.send(record(name, key, value)).get()
        producer.close()
    python.flush()


@dataclass(frozen=True)
class Found:
    """Topics of a cluster, and what `discover` says of them.

    Attributes:
        names: topic to its shape.
        said: topic to the object that `--json` prints.
    """

    folder: Path
    names: Mapping[str, Topic]
    said: Mapping[str, Mapping[str, Any]]
    servers: str
    tables: OTSClient

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """The rows of a topic's table, by the vendor's client, in the order of their keys."""
        table = f"{self.said[topic]['table']}_tablestore"
        key = [name for name, _ in self.tables.describe_table(table).table_meta.schema_of_primary_key]
        low, high = [(name, INF_MIN) for name in key], [(name, INF_MAX) for name in key]
        found = self.tables.get_range(table, "FORWARD", low, high, max_version=1)[2]
        return [dict(row.primary_key) | {name: value for name, value, _ in row.attribute_columns} for row in found]


@pytest.fixture(scope="module")
def found(
    tmp_path_factory: pytest.TempPathFactory,
    kafka_bootstrap: str,
    kafka_java: Java,
    schema_registry: Registry,
    shared_tablestore: TablestoreServer,
    make_topic: Callable[..., str],
) -> Iterator[Found]:
    folder = tmp_path_factory.mktemp("discover")
    topics = {**plain_topics(), **registered_topics(Schemas(schema_registry.url))}
    named = {f"shape.{name}": topic for name, topic in topics.items()}
    for name, topic in named.items():
        make_topic(name=name, config={"cleanup.policy": "compact" if topic.compacted else "delete"})
    send(named, kafka_bootstrap, kafka_java)
    server = shared_tablestore
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UPSERT_KAFKA_BOOTSTRAP_SERVERS", kafka_bootstrap)
        patch.setenv("UPSERT_SCHEMA_REGISTRY_URL", schema_registry.url)
        patch.setenv("UPSERT_TABLESTORE_ENDPOINT", server.endpoint)
        patch.setenv("UPSERT_TABLESTORE_INSTANCE", server.instance)
        patch.setenv("UPSERT_TABLESTORE_ACCESS_KEY_ID", server.access_key_id)
        patch.setenv("UPSERT_TABLESTORE_ACCESS_KEY_SECRET", server.access_key_secret)
        patch.setenv("UPSERT_PLATFORM_HOME", str(folder / "home"))
        words = ["discover", "--match", "shape.*", "--to", "tablestore", "--into", str(folder / "shop"), "--json"]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        said = {item["topic"]: item for item in map(json.loads, done.stdout.splitlines())}
        client = OTSClient(server.endpoint, server.access_key_id, server.access_key_secret, server.instance)
        yield Found(folder, named, said, kafka_bootstrap, client)


@pytest.mark.soak
def test_topics_of_thirty_shapes_are_declared_as_they_are(found: Found) -> None:
    assert len(found.names) >= 30
    assert set(found.said) == set(found.names)
    binding = bind(*load(found.folder / "shop"))
    wrong = {}
    for name, topic in found.names.items():
        item = found.said[name]
        shown = peek(binding, f"topics/{item['table']}", limit=100, lake=Lake(str(found.folder / "home")))
        rows = [
            {column: value for column, value in json.loads(text).items() if not column.startswith(("_", "kafka_"))}
            for text in shown.texts
        ]
        wanted = [{**row} for row in topic.rows]
        rows = [{column: row.get(column) for column in want} for row, want in zip(rows, wanted, strict=False)]
        doubts = " ".join(item["doubts"])
        told = all(part in doubts for part in topic.doubtful) and bool(topic.doubtful) == bool(doubts)
        if rows != wanted or item["decoded"] != item["looked_at"] or not told:
            wrong[name] = (rows, wanted, item["decoded"], item["doubts"], item["columns"])
    assert not wrong
    again = CliRunner().invoke(main, ["discover", "--match", "shape.*", "--into", str(found.folder / "shop")])
    assert again.exit_code == 1
    assert again.stderr.count("it is there already") == len(found.names)


@pytest.mark.soak
def test_their_tables_hold_what_was_produced_after_each_sync(found: Found, kafka_java: Java, spark: object) -> None:
    """Not one declaration is edited."""
    platform = PlatformResource(
        project=str(found.folder / "shop"),
        home=str(found.folder / "home"),
        kafka=KafkaResource(),
        tablestore=TablestoreResource(),
        maxcompute=MaxComputeResource(),
    )
    project, _ = load(found.folder / "shop", root=str(found.folder / "home"))
    job = build_definitions(project, platform=platform, spark=SparkResource()).resolve_job_def("sync")
    for later in (False, True):
        if later:
            send(found.names, found.servers, kafka_java, later=True)
        assert job.execute_in_process(raise_on_error=False).success
        wrong = {}
        for name, topic in found.names.items():
            rows, wanted = found.rows(name), topic.table_later if later else topic.table
            if rows != wanted:
                wrong[name] = (rows, wanted)
        assert not wrong
