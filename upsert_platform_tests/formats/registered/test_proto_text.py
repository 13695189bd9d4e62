"""Proto files as text: what is read of them is what they declare, and messages of the library are read by it."""

from __future__ import annotations

from typing import Any

import pytest

from upsert_platform.formats.registered.proto_schema import ProtoFile, derive_proto
from upsert_platform.formats.registered.proto_text import ProtoTextError, parse_proto
from upsert_platform.formats.registered.registry import RegisteredSchema
from upsert_platform_tests.formats.proto import shop
from upsert_platform_tests.formats.support import columns_of

SHOP = """
// The same file as shop() of the tests makes by hand.
syntax = "proto3";
package shop;
option java_package = 'com.example.shop';
option (some.file_option) = { name: "x" values: [1, 2] };

enum State { option (own) = true; NEW = 0; PAID = 0x1 [(label) = "paid"]; reserved 5, 7 to max; }
message Item { string sku = 1; int32 count = 2; }
/* A field
   of every kind. */
message Order {
  reserved 30 to 40, 50; reserved "old";
  int64 id = 1; sint32 small = 2; uint64 wide = 3; uint32 narrow = 4; sfixed64 fixed = 5; bool ok = 6;
  string text = 7 [deprecated = true, (rule).min_len = -1]; bytes data = 8; float ratio = 9; double amount = 10;
  State state = 11; shop.State state_number = 12; .shop.Item item = 13;
  repeated string words = 14; repeated Item items = 15;
  map<string, int32> scores = 16; map<int32, Item> by_sku = 17;
  optional string note = 18;
}
message Key { int32 id = 1; }
message Value { int32 number = 1; }
service Orders { rpc Get (Key) returns (Order) { option (http) = { get: "/x" }; } }
extend Order { string more = 100; }
"""


def fields(message: Any) -> list[tuple[Any, ...]]:
    return [
        (
            field.name, field.number, field.type, field.label, field.has_presence,
            field.message_type.full_name if field.message_type else None,
            field.enum_type.full_name if field.enum_type else None,
        )
        for field in message.fields
    ]  # fmt: skip


def test_a_text_says_the_same_as_the_compiled_file() -> None:
    import base64

    text = ProtoFile(RegisteredSchema(SHOP))
    compiled = ProtoFile(RegisteredSchema(base64.b64encode(shop().SerializeToString()).decode()))
    for place in range(4):
        read, made = text.at((place,)).DESCRIPTOR, compiled.at((place,)).DESCRIPTOR
        assert read.full_name == made.full_name
        assert fields(read) == fields(made)
        assert [fields(inner) for inner in read.nested_types] == [fields(inner) for inner in made.nested_types]
        assert [inner.GetOptions().map_entry for inner in read.nested_types] == [True for _ in made.nested_types]
    state = text.at((1,)).DESCRIPTOR.fields_by_name["state"].enum_type
    assert {value.name: value.number for value in state.values} == {"NEW": 0, "PAID": 1}


def test_nested_messages_oneofs_and_proto2() -> None:
    text = """
    syntax = "proto2";
    message Outer {
      repeated Pair pairs = 1;
      message Pair { option map_entry = true; optional string key = 1; optional string value = 2; }
      message First { required int32 a = 01; }
      message Second {
        enum Mood { option allow_alias = true; GOOD = 1; FINE = 1; BAD = -1; }
        optional Mood mood = 1 [default = BAD];
        optional string word = 2 [default = "a\\tb" "c", packed = false];
        optional bytes data = 3 [default = "\\001x"];
        optional double far = 4 [default = -inf];
        oneof choice { option (o) = 1; string left = 5; First right = 6; }
        extensions 100 to max;
        option message_set_wire_format = false;
      }
    }
    """
    file = ProtoFile(RegisteredSchema(text))
    assert file.path_of("Outer.Second") == (0, 2)
    second = file.at((0, 2))
    empty = second()
    assert (empty.mood, empty.word, empty.data, empty.far) == (-1, "a\tbc", b"\x01x", float("-inf"))
    assert second(left="x", mood=1).WhichOneof("choice") == "left"
    assert fields(file.at((0, 1)).DESCRIPTOR)[0][:2] == ("a", 1)
    assert dict(file.at((0,))(pairs={"k": "v"}).pairs) == {"k": "v"}


def test_imports_of_the_registry_and_of_google() -> None:
    money = 'syntax = "proto3"; package shared; message Money { int64 units = 1; }'
    text = """
    syntax = "proto3";
    import "shared/money.proto"; import public "google/protobuf/timestamp.proto"; import "confluent/meta.proto";
    message Sale { shared.Money price = 1 [(confluent.field_meta).doc = "paid"]; google.protobuf.Timestamp at = 2; }
    """
    sale = ProtoFile(RegisteredSchema(text, (money,), ("shared/money.proto",))).at((0,))
    one = sale.FromString(sale(price={"units": 3}, at={"seconds": 5}).SerializeToString())
    assert (one.price.units, one.at.seconds) == (3, 5)
    with pytest.raises(ValueError, match=r"imports 'shared/money.proto'"):
        ProtoFile(RegisteredSchema(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('syntax = "proto3";\nmessage M { int32 a = x; }', ["line 2", "a number expected"]),
        ('syntax = "proto3";\nmessage M { int32 a 1; }', ["line 2", "'=' expected"]),
        ('syntax = "proto3"; message M {', ["ends too early"]),
        ('edition = "2023"; message M {}', ["editions"]),
        ('syntax = "proto4";', ["proto4"]),
        ("message M { optional group G = 1 { } }", ["groups"]),
        ("what is this", ["'what' is not expected"]),
        ("message M { int32 a = 1; } §", ["line 1"]),
    ],
)
def test_what_is_no_proto_file_is_refused(text: str, words: list[str]) -> None:
    with pytest.raises(ProtoTextError) as refused:
        parse_proto(text, name="x.proto")
    for word in words:
        assert word in str(refused.value)


def test_derived_files_have_a_field_per_column() -> None:
    columns = columns_of(
        "id BIGINT NOT NULL, name STRING, tags ARRAY<STRING>, n MAP<STRING, ROW<a INT>>, r ROW<x BYTES, y ROW<z FLOAT>>"
    )
    record = ProtoFile(RegisteredSchema(derive_proto(columns))).at((0,)).DESCRIPTOR
    assert [(field.name, field.number) for field in record.fields] == [
        ("id", 1), ("name", 2), ("tags", 3), ("n", 4), ("r", 5)
    ]  # fmt: skip
    assert {field.name: field.has_presence for field in record.fields if field.label == 1} == {
        "id": False, "name": True, "r": True
    }  # fmt: skip
