"""The referee's own reading of json-registry and proto-registry, against Protobuf's own classes; and of a registry."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from upsert_platform.formats.registered.proto_schema import ProtoFile
from upsert_platform.formats.registered.registry import RegisteredSchema
from upsert_platform.referee.errors import RefereeError, UndecodableError, UnjudgedError
from upsert_platform.referee.formats import Side
from upsert_platform_tests.kafka.answering import Answering, Asked, answering

SHOP = """// what a shop keeps
syntax = "proto3";
package shop.v1;
import "m/money.proto";
import "google/protobuf/timestamp.proto";
option java_package = "com.example";
enum Size { option allow_alias = true; UNKNOWN = 0; S = 1; SMALL = 1; L = -2 [deprecated = true]; reserved 7; }
message Key { int64 id = 1; }
message Order {
  message Line { int64 number = 1; string what = 2; repeated sint32 marks = 3; }
  enum State { OPEN = 0; SHUT = 1; }
  reserved 40 to 50;
  int64 id = 1; optional string name = 2 [json_name = "n", deprecated = true]; string plain = 3;
  repeated Line lines = 4; map<string, int32> counts = 5; m.Money price = 6; Size size = 7; State state = 8;
  oneof kind { bool bulk = 9; fixed32 code = 10; }
  repeated Size sizes = 11; bytes raw = 12; double weight = 13; uint32 unsigned = 14; sfixed64 far = 15;
  google.protobuf.Timestamp at = 16; float light = 17; map<int64, Line> by_number = 18;
  /* no column: */ string other = 19;
}
"""
MONEY = 'syntax = "proto2"; package m; message Money { required int64 units = 1; optional uint64 nanos = 2; }'
COLUMNS = {
    "id": "BIGINT NOT NULL",
    "name": "STRING",
    "plain": "STRING",
    "lines": "ARRAY<ROW<number BIGINT, what STRING, marks ARRAY<INT>>>",
    "counts": "MAP<STRING, INT>",
    "price": "ROW<units BIGINT, nanos BIGINT>",
    "size": "STRING",
    "state": "INT",
    "bulk": "BOOLEAN",
    "code": "INT",
    "sizes": "ARRAY<STRING>",
    "raw": "BYTES",
    "weight": "DOUBLE",
    "unsigned": "INT",
    "far": "BIGINT",
    "light": "FLOAT",
    "by_number": "MAP<BIGINT, ROW<what STRING>>",
    "later": "INT",
}
SIZES = {0: "UNKNOWN", 1: "S", -2: "L"}
ORDER = ProtoFile(RegisteredSchema(SHOP, (MONEY,), ("m/money.proto",))).at((1,))
REFERENCE = {"name": "m/money.proto", "subject": "money value", "version": 3}
ANSWERS = {
    "/schemas/ids/1": {"schema": SHOP, "schemaType": "PROTOBUF", "references": [REFERENCE]},
    "/subjects/money%20value/versions/3": {"schema": MONEY, "schemaType": "PROTOBUF"},
    "/schemas/ids/2": {"schema": '{"type": "object"}', "schemaType": "JSON"},
    "/schemas/ids/3": {"schema": '"int"'},
}


@pytest.fixture(scope="module")
def shop_registry() -> Iterator[Answering]:
    def answer(asked: Asked) -> tuple[int, bytes]:
        if asked.path in ANSWERS:
            return 200, json.dumps(ANSWERS[asked.path]).encode()
        return 404, b'{"error_code": 40403}'

    with answering(answer) as server:
        yield server


def decode(server: Answering, format_id: str, columns: dict[str, str], message: bytes, **options: str) -> list[Any]:
    given = {f"{format_id}.url": server.url, **{f"{format_id}.{name}": text for name, text in options.items()}}
    return Side(format_id, columns, tuple(columns), given).decoder()(message)


def framed(number: int, data: bytes, head: bytes = b"") -> bytes:
    return struct.pack(">bi", 0, number) + head + data


def signed(value: int, bits: int) -> int:
    """What Java has of an unsigned number: the same bits."""
    return int.from_bytes(value.to_bytes(bits // 8, "big"), "big", signed=True)


def wanted(order: Any) -> list[Any]:
    """The values of an order, as the classes of Protobuf give them."""
    price = order.price if order.HasField("price") else None
    lines = [[line.number, line.what, list(line.marks) or None] for line in order.lines]
    return [
        order.id,
        order.name if order.HasField("name") else None,
        order.plain,
        lines or None,
        dict(order.counts) or None,
        None if price is None else [
            price.units if price.HasField("units") else None,
            signed(price.nanos, 64) if price.HasField("nanos") else None,
        ],
        SIZES.get(order.size),
        order.state,
        order.bulk if order.HasField("bulk") else None,
        signed(order.code, 32) if order.HasField("code") else None,
        [SIZES.get(size) for size in order.sizes] or None,
        order.raw,
        order.weight,
        signed(order.unsigned, 32),
        order.far,
        order.light,
        {number: [line.what] for number, line in order.by_number.items()} or None,
        None,
    ]  # fmt: skip


def plain(values: list[Any]) -> list[Any]:
    """Values of the referee with maps as dictionaries."""
    places = [place for place, kind in enumerate(COLUMNS.values()) if kind.startswith("MAP")]
    return [dict(value) if place in places and value else value for place, value in enumerate(values)]


def some_order(rng: random.Random) -> Any:
    """An order of which anything may be left out."""
    made = ORDER(id=rng.choice([0, 1, -5, 2**62]))
    if rng.random() < 0.5:
        made.name = rng.choice(["", "a", "äö"])
    for _ in range(rng.randrange(3)):
        made.lines.add(number=rng.randrange(9), what=rng.choice(["", "x"]), marks=[-1, 70_000][: rng.randrange(3)])
        made.counts[rng.choice(["", "k"])] = rng.randrange(-3, 3)
        made.by_number[rng.randrange(-2, 2)].what = rng.choice(["", "y"])
    if rng.random() < 0.5:
        made.price.units = rng.randrange(-9, 9)
        made.price.nanos = rng.choice([0, 2**64 - 1])
    made.size, made.state = rng.choice([0, 1, -2]), rng.randrange(2)
    if rng.random() < 0.7:
        setattr(made, *rng.choice([("bulk", False), ("bulk", True), ("code", 2**32 - 1)]))
    made.sizes.extend([1, -2, 0][: rng.randrange(4)])
    made.raw, made.weight, made.light = rng.choice([b"", b"\xff\0"]), rng.choice([0.0, -1.5]), 0.25
    made.unsigned, made.far, made.other = rng.choice([0, 2**32 - 1]), rng.choice([0, -(2**63)]), "o"
    made.at.seconds = 5
    return made


def test_protobuf_is_read_as_its_own_classes_read_it(shop_registry: Answering) -> None:
    rng = random.Random(20)
    for _ in range(200):
        order = some_order(rng)
        message = framed(1, order.SerializeToString(), b"\2\2")
        assert plain(decode(shop_registry, "proto-registry", COLUMNS, message)) == wanted(order)
    both = ORDER(bulk=True).SerializeToString() + ORDER(code=7).SerializeToString()
    found = decode(shop_registry, "proto-registry", {"bulk": "BOOLEAN", "code": "INT"}, framed(1, both, b"\2\2"))
    assert found == [None, 7]
    line = framed(1, b"\x08\x03", b"\4\2\0")
    assert decode(shop_registry, "proto-registry", {"number": "BIGINT"}, line) == [3]


def test_broken_protobuf_is_never_read_otherwise(shop_registry: Answering) -> None:
    rng = random.Random(21)
    counts = {"equal": 0, "broken": 0, "open": 0}
    given = {"proto-registry.url": shop_registry.url}
    read = Side("proto-registry", COLUMNS, tuple(COLUMNS), given).decoder()
    for _ in range(3_000):
        data = bytearray(some_order(rng).SerializeToString())
        if rng.random() < 0.4:
            del data[rng.randrange(len(data)) :]
        elif rng.random() < 0.5:
            data[rng.randrange(len(data))] = rng.randrange(256)
        else:
            at = rng.randrange(len(data))
            data[at:at] = rng.randbytes(rng.randrange(1, 4))
        try:
            official = wanted(ORDER.FromString(bytes(data)))
        except DecodeError:
            official = None
        try:
            found = plain(read(framed(1, bytes(data), b"\2\2")))
        except UnjudgedError:
            counts["open"] += 1
            continue
        except UndecodableError:
            assert official is None, bytes(data).hex()
            counts["broken"] += 1
            continue
        assert found == official or found != found or "nan" in repr(found), bytes(data).hex()
        counts["equal"] += 1
    assert counts["equal"] > 400, counts
    assert counts["broken"] > 1500, counts
    assert counts["open"] < 500, counts


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (b"\1\0\0\0\1\0", UndecodableError),
        (b"\0\0\0", UndecodableError),
        (framed(1, b"", b"\2\x10"), UndecodableError),  # no eighth message
        (framed(1, b"", b"\x80"), UndecodableError),
        (framed(1, b"", b"\1"), UndecodableError),
        (framed(2, b"", b"\0"), UndecodableError),  # a JSON Schema
        (framed(99, b"", b"\0"), UndecodableError),  # not in the registry
        (framed(1, b"\x0b", b"\0"), UnjudgedError),  # a group
    ],
)
def test_frames_that_say_nothing_of_a_message(shop_registry: Answering, message: bytes, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        decode(shop_registry, "proto-registry", {"id": "BIGINT"}, message)


def test_json_behind_the_number_of_a_schema(shop_registry: Answering) -> None:
    columns = {"id": "INT", "name": "STRING"}
    assert decode(shop_registry, "json-registry", columns, framed(2, b'{"id": 5, "more": 1}')) == [5, None]
    for message in (b'{"id": 5}', framed(2, b"{"), framed(3, b"{}"), framed(99, b"{}")):
        with pytest.raises(UndecodableError):
            decode(shop_registry, "json-registry", columns, message)
    option = {"fail-on-missing-field": "true"}
    with pytest.raises(UndecodableError, match="'name' is missing"):
        decode(shop_registry, "json-registry", columns, framed(2, b'{"id": 5}'), **option)


def test_what_is_beyond_the_referee_is_said(shop_registry: Answering) -> None:
    for format_id, option in (
        ("json-registry", "basic-auth.user-info"),
        ("proto-registry", "properties.proxy.host"),
        ("avro-confluent", "bearer-auth.token"),
        ("proto-registry", "read-default-values"),
    ):
        with pytest.raises(RefereeError, match=f"{format_id}.{option}"):
            decode(shop_registry, format_id, {"id": "INT"}, b"", **{option: "true"})
    with answering(lambda asked: (404, b"<html>")) as elsewhere, pytest.raises(RefereeError, match="/schemas/ids/1"):
        decode(elsewhere, "json-registry", {"id": "INT"}, framed(1, b"{}"))
    with pytest.raises(UnjudgedError, match="int64 for a STRING"):
        decode(shop_registry, "proto-registry", {"id": "STRING"}, framed(1, b"\x08\x01", b"\0"))
