"""Format protobuf: bytes of the official library both ways, nulls and defaults, and columns that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.types import arrow_type
from upsert_platform.formats import build_decoder, build_encoder, validate_format
from upsert_platform.formats.protobuf.schema import message_class
from upsert_platform_tests.formats.proto import shop, write_set
from upsert_platform_tests.formats.support import columns_of

ORDER = (
    "id BIGINT, small INT, wide BIGINT, narrow INT, fixed BIGINT, ok BOOLEAN, text STRING, data BYTES, ratio FLOAT,"
    " amount DOUBLE, state STRING, state_number INT, item ROW<sku STRING, count INT>, words ARRAY<STRING>,"
    " items ARRAY<ROW<sku STRING, count INT>>, scores MAP<STRING, INT>, by_sku MAP<INT, ROW<sku STRING, count INT>>,"
    " note STRING"
)
ROW = {
    "id": -(2**62), "small": -7, "wide": -1, "narrow": -2, "fixed": 5, "ok": True, "text": "žluť", "data": b"\0\xff",
    "ratio": 1.5, "amount": 2.25, "state": "PAID", "state_number": 1, "item": {"sku": "a", "count": 3},
    "words": ["x", ""], "items": [{"sku": "b", "count": 1}], "scores": [("s", 9)],
    "by_sku": [(4, {"sku": "c", "count": 2})], "note": "",
}  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_set(tmp_path_factory.mktemp("proto") / "shop.desc", shop())


def options(path: str, name: str = "shop.Order", **more: str) -> dict[str, str]:
    given = {"protobuf.descriptor-file": path, "protobuf.message-class-name": name}
    return given | {f"protobuf.{option.replace('_', '-')}": value for option, value in more.items()}


def encode(declared: str, given: dict[str, str], *rows: dict[str, Any]) -> tuple[list[bytes | None], dict[int, str]]:
    columns = columns_of(declared)
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in columns])
    batch = pa.RecordBatch.from_pylist([{name: row.get(name) for name, _ in columns} for row in rows], schema=schema)
    messages, errors = build_encoder("protobuf", columns, given).encode(batch)
    return messages.to_pylist(), errors


def decode(declared: str, given: dict[str, str], *messages: bytes) -> tuple[list[dict[str, Any]], dict[int, str]]:
    found = build_decoder("protobuf", columns_of(declared), given).decode(messages)
    assert found.message.to_pylist() == [place for place in range(len(messages)) if place not in found.errors]
    return found.rows.to_pylist(), found.errors


def test_every_kind_of_field_both_ways(path: str) -> None:
    (message,), errors = encode(ORDER, options(path), ROW)
    assert errors == {}
    assert message is not None
    official = message_class(path, "shop.Order").FromString(message)
    assert (official.wide, official.narrow, official.state) == (2**64 - 1, 2**32 - 2, 1)
    assert {sku: item.sku for sku, item in official.by_sku.items()} == {4: "c"}
    assert decode(ORDER, options(path), message) == ([ROW], {})


def test_known_bytes(path: str) -> None:
    assert encode("id INT", options(path, "shop.Key"), {"id": 300}) == ([b"\x08\xac\x02"], {})
    assert decode("id INT", options(path, "shop.Key"), b"\x08\xac\x02", b"") == ([{"id": 300}, {"id": 0}], {})


def test_nulls_and_defaults(path: str) -> None:
    (message,), _ = encode(ORDER, options(path), {})
    assert message == b""
    absent = {"item": None, "words": None, "items": None, "scores": None, "by_sku": None, "note": None}
    scalars = {
        "id": 0, "small": 0, "wide": 0, "narrow": 0, "fixed": 0, "ok": False, "text": "", "data": b"", "ratio": 0.0,
        "amount": 0.0, "state": "NEW", "state_number": 0,
    }  # fmt: skip
    assert decode(ORDER, options(path), b"")[0] == [scalars | absent]
    filled = {"item": {"sku": "", "count": 0}, "words": [], "items": [], "scores": [], "by_sku": [], "note": ""}
    assert decode(ORDER, options(path, read_default_values="true"), b"")[0] == [scalars | filled]


def test_texts_of_proto2_that_are_no_utf_8_are_the_fate_of_their_message(tmp_path: Path) -> None:
    """The library hands out their bytes."""
    given = options(write_set(tmp_path / "shop.desc", shop(syntax="proto2")))
    fine, _ = encode("id BIGINT, text STRING", given, {"id": 1, "text": "a"}, {"id": 2, "text": "b"})
    assert fine[0] is not None and fine[1] is not None
    odd = fine[0].replace(b"a", b"\xff")
    rows, errors = decode("id BIGINT, text STRING", given, fine[0], odd, fine[1])
    assert rows == [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]
    assert set(errors) == {1}


def test_proto2_knows_absent_scalars(tmp_path: Path) -> None:
    path = write_set(tmp_path / "shop.desc", shop(syntax="proto2"))
    assert decode("id BIGINT, state STRING", options(path), b"")[0] == [{"id": None, "state": None}]
    defaults = options(path, read_default_values="true")
    assert decode("id BIGINT, state STRING", defaults, b"")[0] == [{"id": 0, "state": "NEW"}]


def test_null_elements_are_written_as_defaults(path: str) -> None:
    declared = "words ARRAY<STRING>, items ARRAY<ROW<sku STRING, count INT>>, scores MAP<STRING, INT>"
    row = {"words": ["a", None], "items": [None], "scores": [("s", None)]}
    given = options(path, write_null_string_literal="NULL")
    (message,), _ = encode(declared, given, row)
    assert message is not None
    (found,), _ = decode(declared, options(path, read_default_values="true"), message)
    assert found == {"words": ["a", "NULL"], "items": [{"sku": "", "count": 0}], "scores": [("s", 0)]}


def test_what_cannot_be_read_or_written(path: str) -> None:
    rows, errors = decode("id BIGINT", options(path), b"\x08", b"\x08\x01")
    assert rows == [{"id": 1}]
    assert "not a message shop.Order" in errors[0]
    messages, errors = encode("state STRING", options(path), {"state": "LOST"}, {"state": "PAID"})
    assert messages == [None, b"X\x01"]
    assert "has no value 'LOST': NEW, PAID" in errors[0]


def test_maps_are_written_in_one_order(path: str) -> None:
    one = {"scores": [("a", 1), ("b", 2), ("c", 3)]}
    other = {"scores": [("c", 3), ("a", 1), ("b", 2)]}
    (first, second), _ = encode("scores MAP<STRING, INT>", options(path), one, other)
    assert first == second


@pytest.mark.parametrize("name", ["shop.Order", "com.example.shop.Orders$Order"])
def test_names_of_the_message(path: str, name: str) -> None:
    assert problems(path, "id BIGINT", name=name) == []


def test_an_option_without_effect_is_told(path: str) -> None:
    (message,) = problems(path, "id BIGINT", ignore_parse_errors="true")
    assert "'protobuf.ignore-parse-errors' changes nothing" in message


def problems(path: str, declared: str, *, name: str = "shop.Order", **more: str) -> list[str]:
    found = validate_format(
        "protobuf",
        options(path, name, **more),
        columns_of(declared),
        side="value",
        direction="source",
        subject="table 'orders'",
        location=SourceLocation("orders.sql", 1),
    )
    return [problem.message for problem in found]


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ("price DOUBLE", "column 'price' is not a field of message shop.Order: id, small"),
        ("id INT", "column 'id' is INT, but field 'shop.Order.id' is int64: declare BIGINT"),
        ("words STRING", "the field is repeated: declare an ARRAY"),
        ("scores ROW<s INT>", "the field is a map: declare a MAP"),
        ("item ROW<sku STRING, size INT>", "column 'size' is not a field of message shop.Item"),
        ("scores MAP<STRING, STRING>", "is int32: declare INT"),
    ],
)
def test_columns_that_do_not_fit(path: str, declared: str, text: str) -> None:
    (message,) = problems(path, declared)
    assert text in message


def test_descriptor_files_that_do_not_do(path: str, tmp_path: Path) -> None:
    assert "there are: shop.Item, shop.Key" in problems(path, "id BIGINT", name="shop.Orders")[0]
    assert "cannot be read: No such file" in problems(str(tmp_path / "none"), "id BIGINT")[0]
    (tmp_path / "broken").write_bytes(b"\xff\xff")
    assert "is not a complete descriptor set" in problems(str(tmp_path / "broken"), "id BIGINT")[0]
    lone = shop()
    lone.dependency.append("google/protobuf/elsewhere.proto")
    assert "--include_imports" in problems(write_set(tmp_path / "lone", lone), "id BIGINT")[0]


def test_long_blocks_keep_their_order_and_tell_what_is_broken(path: str) -> None:
    given = options(path, "shop.Key")
    official = message_class(path, "shop.Key")
    messages = [official(id=number).SerializeToString() for number in range(1300)]
    rows, errors = decode("id INT", given, *messages)
    assert ([row["id"] for row in rows], errors) == (list(range(1300)), {})
    messages[777] = b"\xff"
    rows, errors = decode("id INT", given, *messages)
    assert [row["id"] for row in rows] == [number for number in range(1300) if number != 777]
    assert list(errors) == [777]
