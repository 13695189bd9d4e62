"""Schemas, registry answers and messages that nobody would write on purpose, made by chance from a seed."""

from __future__ import annotations

import base64
import json
import random
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from upsert_platform.core.errors import EndpointError
from upsert_platform.formats import build_decoder
from upsert_platform.formats.registered.registry import BrokenSchemaError, Kind, RegisteredSchema, SchemaNotFoundError
from upsert_platform_tests.formats.proto import shop
from upsert_platform_tests.formats.support import columns_of

COLUMNS: Final = columns_of(
    "id BIGINT, name STRING, amount DECIMAL(10, 2), at TIMESTAMP(3), tags ARRAY<STRING>, sizes MAP<STRING, INT>,"
    " inner ROW<x INT, y STRING>, nothing ARRAY<INT>"
)
SECONDS: Final = 10.0
MEGABYTES: Final = 300
"""What one case may take at most, on a machine that others use as well."""
_WORDS: Final = ("id", "name", "amount", "at", "tags", "sizes", "inner", "nothing", "x", "y", "a.b", "", "A", "é" * 300)
_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_JUNK: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 5, 2_000_000_000, -2_000_000_000, 10**30, 1.5, 1e308, "", "x", "null", "record", "a" * 5_000, [],
    {}, [[]], [None], {"type": 5}, {"type": {"type": None}}, ["null", "null"], {"type": "record"}, {"items": 1},
)  # fmt: skip
_TOKENS: Final = (
    "message", "enum", "{", "}", ";", "=", "1", "0", "-1", "99999999999", "536870911", "optional", "repeated", "oneof",
    "map<string,int32>", "[default = 'x']", "[packed=true]", "option", "import", '"a.proto"', "string", "int32", "/*",
    "*/", "//", '"', "'\\", "reserved", "extend", "syntax", ".A.B", "group", "0x", "1e9", "\0", "é", "<", ">", "(",
)  # fmt: skip
_PROTO: Final = """syntax = "proto3";
message Inner { int32 x = 1; optional string y = 2; }
message Record {
  int64 id = 1; string name = 2; repeated string tags = 5; map<string, int32> sizes = 6; Inner inner = 7;
  enum Kind { NONE = 0; SOME = 1; } oneof either { Kind kind = 8; bytes raw = 9; }
}
"""


@dataclass
class Given:
    """A registry in memory, with one schema; or with what it raises."""

    schema_of: RegisteredSchema | ValueError
    asked: int = 0

    def schema(self, schema_id: int, *, kind: Kind = "AVRO") -> RegisteredSchema:
        self.asked += 1
        if isinstance(self.schema_of, ValueError):
            raise self.schema_of
        return self.schema_of

    def register(self, subject: str, schema: str, *, kind: Kind = "AVRO") -> int:
        raise AssertionError("nothing is written")

    lookup = register

    def latest(self, subject: str, *, kind: Kind = "AVRO") -> tuple[int, RegisteredSchema]:
        raise AssertionError("nothing is written")


@dataclass
class Counts:
    """What became of cases and of their messages."""

    cases: int = 0
    decoded: int = 0
    quarantined: int = 0
    refused: int = 0
    slowest: float = 0.0
    grown: float = 0.0
    worst: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.cases} cases: {self.decoded} messages decoded, {self.quarantined} quarantined, {self.refused} cases"
            f" refused as the endpoint's; slowest {self.slowest:.2f} s, most memory {self.grown:.0f} MB"
        )


def run_case(counts: Counts, case: str, format_id: str, registry: Any, messages: list[bytes]) -> None:
    """Decodes messages: each one is decoded or has a reason, in bounds of time and memory.

    Args:
        case: how to repeat it.
        registry: or the address of one.
    """
    options = {f"{format_id}.url": registry if isinstance(registry, str) else "http://127.0.0.1:1"}
    reached = None if isinstance(registry, str) else registry
    before, began = _peak(), time.monotonic()
    try:
        found = build_decoder(format_id, COLUMNS, options, registry=reached).decode(messages)
    except EndpointError:
        assert isinstance(registry, str), f"{case}: only an answer of a registry is an endpoint's fault"
        counts.refused += 1
    except BaseException as error:
        error.add_note(f"case {case}")
        raise
    else:
        decoded = set(found.message.to_pylist())
        assert decoded | set(found.errors) == set(range(len(messages))), case
        assert not decoded & set(found.errors), case
        assert all(0 < len(reason) <= 2_000 for reason in found.errors.values()), case
        counts.decoded += len(decoded)
        counts.quarantined += len(found.errors)
    seconds, grown = time.monotonic() - began, _peak() - before
    counts.cases += 1
    counts.slowest, counts.grown = max(counts.slowest, seconds), max(counts.grown, grown)
    if seconds > SECONDS or grown > MEGABYTES:
        counts.worst.append(f"{case}: {seconds:.1f} s, {grown:.0f} MB")


def _peak() -> float:
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fuzz(counts: Counts, seed: int, cases: int) -> None:
    """Runs cases against registries in memory."""
    for number in range(cases):
        chance = random.Random(f"{seed}/{number}")
        make = chance.choice(_MAKERS)
        format_id, schema, messages = make(chance)
        run_case(counts, f"{seed}/{number}", format_id, Given(schema), messages)


def framed(chance: random.Random, *bodies: bytes) -> list[bytes]:
    """Messages behind their frame; some without it, or with another id."""
    found = [b"\0\0\0\0\1" + body for body in bodies]
    if chance.random() < 0.1:
        found.append(chance.randbytes(chance.randrange(12)))
    return found


def _avro(chance: random.Random) -> tuple[str, RegisteredSchema | ValueError, list[bytes]]:
    names: list[str] = []
    schema: Any = _record(chance, names, depth=chance.choice((1, 2, 4, 12)))
    if chance.random() < 0.05:
        schema = _tower(chance)
    for _ in range(chance.choice((0, 0, 1, 1, 3))):
        schema = _spoiled(chance, schema)
    text = json.dumps(schema)
    if chance.random() < 0.1:
        at = chance.randrange(len(text))
        text = text[:at] + chance.choice(("", "[" * 3_000, "\0", '"')) + text[at + chance.randrange(3) :]
    known = [json.dumps(_record(chance, names, depth=1)) for _ in range(chance.choice((0, 0, 0, 2)))]
    given: RegisteredSchema | ValueError = RegisteredSchema(
        text, tuple(known), tuple(f"n{at}" for at in range(len(known)))
    )
    if chance.random() < 0.02:
        given = chance.choice((SchemaNotFoundError("none"), BrokenSchemaError("broken")))
    return "avro-confluent", given, framed(chance, *(_data(chance) for _ in range(chance.choice((1, 2, 5)))))


def _tower(chance: random.Random) -> Any:
    """Named records, each of which holds the one before several times."""
    levels, times = chance.choice((5, 26, 60, 140)), chance.choice((1, 2, 3))
    leaf = chance.choice(("null", "int", {"type": "array", "items": "null"}, {"type": "fixed", "name": "F", "size": 0}))
    made: Any = {"type": "record", "name": "R0", "fields": [{"name": "v", "type": leaf}]}
    for level in range(1, levels):
        inner = [{"name": "a", "type": made}] + [{"name": f"b{at}", "type": f"R{level - 1}"} for at in range(times - 1)]
        made = {"type": "record", "name": f"R{level}", "fields": inner}
    return {"type": "record", "name": "Top", "fields": [{"name": chance.choice(_WORDS[:8]), "type": made}]}


def _record(chance: random.Random, names: list[str], *, depth: int) -> Any:
    name = f"R{len(names)}"
    names.append(name)
    fields = [
        {"name": chance.choice(_WORDS), "type": _type(chance, names, depth - 1)} for _ in range(chance.randrange(1, 9))
    ]
    return {"type": "record", "name": name, "fields": fields}


def _type(chance: random.Random, names: list[str], depth: int) -> Any:
    draw = chance.random()
    if depth <= 0 or draw < 0.4:
        return chance.choice(_PRIMITIVES)
    if draw < 0.5:
        return ["null", _type(chance, names, depth - 1)]
    if draw < 0.6:
        return {"type": "array", "items": _type(chance, names, depth - 1)}
    if draw < 0.65:
        return {"type": "map", "values": _type(chance, names, depth - 1)}
    if draw < 0.75:
        scale = chance.choice((0, 2, 38, 2_000_000_000, -2_000_000_000, "2", None, 10**30))
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": chance.choice((10, 0, -1, 10**9)),
            "scale": scale,
        }
    if draw < 0.8:
        return {"type": "long", "logicalType": chance.choice(("timestamp-millis", "timestamp-micros", "x", 5))}
    if draw < 0.85:
        names.append(f"R{len(names)}")
        return {"type": "fixed", "name": names[-1], "size": chance.choice((0, 4, -1, 2**31, 10**30, "4"))}
    if draw < 0.9:
        return chance.choice(names)
    return _record(chance, names, depth=depth)


def _spoiled(chance: random.Random, schema: Any) -> Any:
    """The same with a part of it replaced by something else."""
    if chance.random() < 0.2 or not isinstance(schema, (dict, list)) or not schema:
        return chance.choice(_JUNK)
    if isinstance(schema, list):
        at = chance.randrange(len(schema))
        return [*schema[:at], _spoiled(chance, schema[at]), *schema[at + 1 :]]
    name = chance.choice(list(schema))
    if chance.random() < 0.1:
        return {key: value for key, value in schema.items() if key != name}
    return {**schema, name: _spoiled(chance, schema[name])}


def _data(chance: random.Random) -> bytes:
    match chance.randrange(5):
        case 0:
            return chance.randbytes(chance.randrange(200))
        case 1:  # small numbers: lengths, branches and counts that fit
            return bytes(chance.choice((0, 1, 2, 4, 6)) for _ in range(chance.randrange(200)))
        case 2:  # blocks of as many items as a number can say
            return b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" * chance.randrange(1, 100)
        case 3:  # many blocks of many items
            return b"\x80\xfa\x01" * chance.choice((10, 300, 3_000)) + b"\0"
    return b"\0" * chance.choice((0, 1, 50, 5_000))


def _proto(chance: random.Random) -> tuple[str, RegisteredSchema | ValueError, list[bytes]]:
    match chance.randrange(6):
        case 0:
            words = _PROTO.split(" ")
            for _ in range(chance.randrange(1, 6)):
                words[chance.randrange(len(words))] = chance.choice(_TOKENS)
            text = " ".join(words)
        case 1:
            text = " ".join(chance.choice(_TOKENS) for _ in range(chance.randrange(300)))
        case 2:
            levels = chance.choice((3, 99, 1_500))
            text = 'syntax = "proto3"; ' + "message A { " * levels + "int32 id = 1; " + "}" * levels
        case 3:
            whole = bytearray(shop().SerializeToString())
            for _ in range(chance.choice((0, 1, 5))):
                whole[chance.randrange(len(whole))] = chance.randrange(256)
            text = base64.b64encode(bytes(whole)).decode()
        case 4:
            text = _PROTO.replace('"proto3";', '"proto3"; import "a.proto"; import "google/protobuf/any.proto";')
        case _:
            text = _PROTO
    names = chance.choice(((), ("a.proto",), ("a.proto", "b.proto")))
    other = _PROTO.replace("Record", "Other").replace("Inner", "More")
    texts = tuple(chance.choice((other, 'import "b.proto";', 'import "a.proto";', text)) for _ in names)
    head = chance.choice((b"\0", b"\2\0", b"\2\2", b"\4\2\0", chance.randbytes(3)))
    body = chance.choice((b"", b"\x08\x05\x12\x01a", chance.randbytes(chance.randrange(60)), b"\x3a\x02" * 300))
    return "proto-registry", RegisteredSchema(text, texts, names), framed(chance, head + body, head)


def _json(chance: random.Random) -> tuple[str, RegisteredSchema | ValueError, list[bytes]]:
    schema = RegisteredSchema(json.dumps(chance.choice(_JUNK)))
    depth = chance.choice((1, 50, 5_000))
    body = chance.choice(
        (
            b'{"id": 1, "amount": 1e2147483647}', b"[" * depth, b'{"inner":' * depth, b'{"id": ' + b"9" * depth + b"}",
            json.dumps({"tags": chance.choice(_JUNK), "sizes": chance.choice(_JUNK)}).encode(), chance.randbytes(40),
        )
    )  # fmt: skip
    return "json-registry", schema, framed(chance, body)


_MAKERS: Final[tuple[Callable[[random.Random], tuple[str, RegisteredSchema | ValueError, list[bytes]]], ...]] = (
    _avro, _avro, _avro, _proto, _proto, _json,
)  # fmt: skip


def answers(chance: random.Random) -> dict[str, tuple[int, bytes]]:
    """What a registry answers by path: a schema with references, all of it spoiled by chance."""
    subjects = ("s0", "s1", "s2")
    found: dict[str, Any] = {"/schemas/ids/1": _answer(chance, subjects)}
    for name in subjects:
        found[f"/subjects/{name}/versions/1"] = _answer(chance, subjects)
    return {
        path: (
            chance.choice((200, 200, 200, 200, 404, 422)),
            json.dumps(answer).encode()
            if chance.random() < 0.95
            else chance.choice((b"", b"<html>", b"[" * 5_000, b"{}")),
        )
        for path, answer in found.items()
    }


def _answer(chance: random.Random, subjects: tuple[str, ...]) -> Any:
    names: list[str] = []
    references = [
        {
            "name": chance.choice("abc"),
            "subject": chance.choice(subjects),
            "version": chance.choice((1, 1, "1", None, [])),
        }
        for _ in range(chance.choice((0, 0, 1, 3)))
    ]
    answer: Any = {"schema": json.dumps(_record(chance, names, depth=2)), "references": references}
    return _spoiled(chance, answer) if chance.random() < 0.4 else answer
