"""A schema that cannot be read, or would take for ever, costs its records alone: they are quarantined with a reason."""

from __future__ import annotations

import json
import random
import re
import time
from typing import Any

import pytest

from upsert_platform.formats import build_decoder
from upsert_platform.formats.registered.registry import RegisteredSchema
from upsert_platform_tests.formats.hostile import Counts, Given, answers, fuzz, run_case
from upsert_platform_tests.formats.registered.test_registry import Fake, fake
from upsert_platform_tests.formats.support import columns_of

__all__ = ["fake"]

HEAD = b"\0\0\0\0\1"
URL = {"avro-confluent.url": "http://127.0.0.1:1"}


def decode(columns: str, schema: Any, *bodies: bytes) -> tuple[list[dict[str, Any]], dict[int, str]]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    registry = Given(RegisteredSchema(text))
    began = time.monotonic()
    found = build_decoder("avro-confluent", columns_of(columns), URL, registry=registry).decode(
        [HEAD + body for body in bodies]
    )
    assert time.monotonic() - began < 5
    return found.rows.to_pylist(), dict(found.errors)


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def tower(levels: int, leaf: Any) -> dict[str, Any]:
    """A record of records, each of which holds the next smaller one twice: 2 ** levels leaves."""
    made = record("R0", v=leaf)
    for level in range(1, levels):
        made = record(f"R{level}", a=made, b=f"R{level - 1}")
    return made


@pytest.mark.parametrize("levels", [26, 90])
@pytest.mark.parametrize("leaf", ["null", "int", record("Empty")], ids=str)
def test_a_named_type_is_resolved_once_however_often_the_schema_refers_to_it(levels: int, leaf: Any) -> None:
    rows, errors = decode(
        "id INT, more ROW<v INT>", record("Top", id="int", wide=tower(levels, leaf)), b"\2" + b"\4" * 9
    )
    assert rows == []
    assert "too early" in errors[0] or "more values without a byte" in errors[0]


def test_a_type_that_is_referred_to_often_is_still_read() -> None:
    inner = "ROW<v INT>"
    schema = record("Top", a=record("R", v="int"), b="R", c=["null", "R"], d={"type": "array", "items": "R"})
    rows, errors = decode(f"a {inner}, b {inner}, c {inner}, d ARRAY<{inner}>", schema, b"\2\4\2\6\4\x08\x0a\0")
    assert errors == {}
    assert rows == [{"a": {"v": 1}, "b": {"v": 2}, "c": {"v": 3}, "d": [{"v": 4}, {"v": 5}]}]


@pytest.mark.parametrize("scale", [2_000_000_000, -2_000_000_000, 10**40, "2", None, 1.5])
def test_a_scale_out_of_bounds_is_a_reason(scale: Any) -> None:
    schema = record("R", d={"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": scale})
    rows, errors = decode("d DECIMAL(10, 2)", schema, b"\2\1")
    assert rows == []
    assert "schema id 1: field d: the writer's decimal has a scale of" in errors[0]


@pytest.mark.parametrize("items", ["null", record("Empty"), {"type": "fixed", "name": "F", "size": 0}], ids=str)
def test_items_that_take_no_byte_are_counted_over_the_whole_message(items: Any) -> None:
    """A kilobyte of blocks of 8,000 items each."""
    schema = record("R", id="int", many={"type": "array", "items": items})
    few, many = b"\2\x06\0", b"\2" + b"\x80\x7d" * 500 + b"\0"
    rows, errors = decode("id INT", schema, few, many)
    assert rows == [{"id": 1}]
    assert list(errors) == [1]
    assert "more values without a byte" in errors[1]


def test_an_array_of_more_items_than_bytes_is_no_array() -> None:
    schema = record("R", many={"type": "array", "items": "int"})
    _, errors = decode("many ARRAY<INT>", schema, b"\x08\2\2")
    assert "a block of more items than the message can hold" in errors[0]


def test_a_length_that_passes_the_end_of_64_bits_is_a_broken_message() -> None:
    longest = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    rows, errors = decode("a STRING, b STRING", record("R", a="string", b="string"), longest + b"a", b"\2a\2b")
    assert rows == [{"a": "a", "b": "b"}]
    assert list(errors) == [0]


def test_a_branch_that_does_not_fit_its_column_costs_the_messages_that_take_it() -> None:
    schema = record("R", v=["null", "int", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}])
    rows, errors = decode("v INT", schema, b"\2\6", b"\0", b"\4\0", b"\6\0")
    assert rows == [{"v": 3}, {"v": None}]
    assert sorted(errors) == [2, 3]
    assert "the writer's array cannot be read as INT" in errors[2]


def nested(levels: int) -> str:
    within = '{"type":"array","items":' * levels + '"int"' + "}" * levels
    return f'{{"type":"record","name":"R","fields":[{{"name":"w","type":{within}}}]}}'


BROKEN = {
    "a number as type": ({"type": 5}, "5 where a type is expected"),
    "no type": ({}, "not an Avro schema"),
    "null": (None, "is not an Avro schema|where a type is expected"),
    "no JSON": ("{", "is not JSON"),
    "deep text": ("[" * 1_500 + "]" * 1_500, "nests types too deep"),
    "deep types": (nested(150), "deeper than 100"),
    "deeper types": (nested(1_500), "nests types too deep"),
    "fields that are none": ({"type": "record", "name": "R", "fields": 5}, "not an Avro schema"),
    "a name that is none": ({"type": "record", "name": 5, "fields": []}, "not an Avro schema"),
    "a negative size": (record("R", w={"type": "fixed", "name": "F", "size": -1}), "has no size from 0"),
    "symbols that are none": (record("R", w={"type": "enum", "name": "E", "symbols": "AB"}), "no list of symbols"),
    "a record in itself": (record("R", v=["null", "R"], w="R"), "contains itself"),
    "many types": (record("R", v=["null"] * 100_001), "more than 100000 types"),
    "a long name": (record("R", v="n" * 100_000), "unknown name 'nnn"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_schema_quarantines_its_records(case: str) -> None:
    schema, reason = BROKEN[case]
    rows, errors = decode("v INT", "null" if schema is None else schema, b"\2", b"\4")
    assert rows == []
    assert list(errors) == [0, 1]
    assert re.search(reason, errors[0]), errors[0]
    assert errors[0].startswith("schema id 1: ")
    assert len(errors[0]) <= 1_000


def test_a_broken_schema_is_read_once_and_a_missing_one_asked_for_again() -> None:
    columns = columns_of("v INT")
    broken = Given(RegisteredSchema('{"type": 5}'))
    decoder = build_decoder("avro-confluent", columns, URL, registry=broken)
    assert [decoder.decode([HEAD + b"\2"]).errors.keys() for _ in range(3)] == [{0}, {0}, {0}]
    assert broken.asked == 1


ANSWERS = {
    "in a circle": ([{"name": "a", "subject": "s", "version": 1}], "circle: a -> a"),
    "no list": ("all", "references are no list"),
    "a text": (["a"], "a reference of the schema is 'a'"),
    "without a subject": ([{"name": "a"}], "a reference of the schema is"),
    "a subject that is none": ([{"name": "a", "subject": 5, "version": 1}], "a reference of the schema is"),
    "a version that is none": ([{"name": "a", "subject": "s", "version": [1]}], "a reference of the schema is"),
    "not there": ([{"name": "a", "subject": "t", "version": 1}], "the schema 'a' referred to is not in the registry"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_references_that_cannot_be_followed_quarantine_the_records(fake: Fake, case: str) -> None:
    references, reason = ANSWERS[case]
    text = json.dumps(record("R", v="int"))
    fake.answers["/schemas/ids/1"] = [(200, {"schema": text, "references": references})]
    fake.answers["/subjects/s/versions/1"] = [
        (200, {"schema": text, "references": [{"name": "a", "subject": "s", "version": 1}]})
    ]
    decoder = build_decoder("avro-confluent", columns_of("v INT"), {"avro-confluent.url": fake.url})
    assert reason in decoder.decode([HEAD + b"\2"]).errors[0]
    assert len(fake.requests) <= 3


def test_more_references_than_bounds_quarantine_the_records(fake: Fake) -> None:
    def answer(number: int) -> tuple[int, Any]:
        return 200, {"schema": '"int"', "references": [{"name": f"n{number}", "subject": f"s{number}", "version": 1}]}

    fake.answers["/schemas/ids/1"] = [answer(0)]
    fake.answers |= {f"/subjects/s{number}/versions/1": [answer(number + 1)] for number in range(1_000)}
    decoder = build_decoder("avro-confluent", columns_of("v INT"), {"avro-confluent.url": fake.url})
    assert "refers to more than 200 others" in decoder.decode([HEAD + b"\2"]).errors[0]
    assert len(fake.requests) <= 202


def test_a_schema_that_is_no_text_and_one_that_has_no_end_quarantine_the_records(fake: Fake) -> None:
    for answer, reason in (
        ({"schema": 5}, "'5' where the schema's text"),
        (b'{"schema": "' + b"x" * (17 << 20), "16 MiB"),
    ):
        fake.answers["/schemas/ids/1"] = [(200, answer)]
        decoder = build_decoder("avro-confluent", columns_of("v INT"), {"avro-confluent.url": fake.url})
        assert reason in decoder.decode([HEAD + b"\2"]).errors[0]


def test_hostile_schemas_of_chance() -> None:
    """A slice of the campaign that `make soak` runs whole."""
    counts = Counts()
    fuzz(counts, 7, 1_500)
    assert counts.worst == []
    assert counts.cases == 1_500
    assert counts.decoded > 0
    assert counts.quarantined > counts.decoded


def test_hostile_answers_of_chance(fake: Fake) -> None:
    counts = Counts()
    for number in range(150):
        chance = random.Random(f"7/{number}")
        fake.answers = {path: [answer] for path, answer in answers(chance).items()}
        run_case(counts, f"7/{number}", "avro-confluent", fake.url, [HEAD + b"\2\0\0", HEAD])
    assert counts.worst == []
    assert counts.refused > 0
    assert counts.quarantined > 0
