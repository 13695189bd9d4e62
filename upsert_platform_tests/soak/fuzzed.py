"""Fuzzed records: well-formed ones of every format, and what chance makes of them, in key, value and headers."""

from __future__ import annotations

import base64
import json
import random
import string
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Headers = list[tuple[str, bytes | None]]
COLUMNS: Final = {
    "id": "STRING", "a": "INT", "b": "BIGINT", "c": "DOUBLE", "d": "DECIMAL(10, 2)", "e": "STRING", "f": "BOOLEAN",
    "g": "BYTES", "h": "DATE", "i": "TIMESTAMP(3)", "t": "TINYINT",
}  # fmt: skip
NESTED: Final = {"j": "ARRAY<INT>", "k": "MAP<STRING, INT>", "l": "ROW<x INT, y STRING>"}
_KEYS: Final = 3_000
_ODD: Final = (
    b"null", b"NaN", b"-Infinity", b"1e400", b"9" * 400, b'"\\ud800"', b"\xed\xa0\x80", b"\xc0\x80", b"\xff", b"\0",
    b"\xef\xbb\xbf", b"{}", b"[]", b"[[[[[", b'{"":{}}', b'"', b"\\", b"2024-02-30", b"24:00:00", b"0x1p3", b"1.5f",
    b"+5", b" 7 ", b"\xef\xbc\x97", b"true", b"TRUE", b"1e2147483647", b"-0", b"1_0", b"1e-400", b",", b";", b"\n",
    b"\r\n", b"#", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"\xfe\xff\xff\xff\x0f",
)  # fmt: skip


@dataclass(frozen=True)
class Fuzz:
    """A format under fuzz.

    Attributes:
        columns: of the declared table.
        options: of it.
        judged: whether the referee reads the format.
    """

    columns: Mapping[str, str]
    key: Callable[[random.Random, int], bytes]
    value: Callable[[random.Random, int], bytes]
    options: Mapping[str, str]
    judged: bool = True


def _cells(chance: random.Random, number: int) -> dict[str, Any]:
    """Values of the flat columns, some of them null."""
    cells: dict[str, Any] = {
        "id": f"k{number}",
        "a": chance.randint(-(2**31), 2**31 - 1),
        "b": chance.randint(-(2**63), 2**63 - 1),
        "c": chance.choice([chance.gauss(0, 1e9), chance.random(), 0.0, 1e-300]),
        "d": chance.randint(-(10**9), 10**9) / 100,
        "e": "".join(chance.choices(string.printable[:95] + "é漢😀", k=chance.randrange(9))),
        "f": chance.random() < 0.5,
        "g": chance.randbytes(chance.randrange(6)),
        "h": chance.randint(-20_000, 20_000),
        "i": chance.randint(0, 2_000_000_000_000),
        "t": chance.randint(-128, 127),
    }
    return {name: None if name != "id" and chance.random() < 0.1 else value for name, value in cells.items()}


def _date(days: int) -> str:
    from datetime import date, timedelta

    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()


def _stamp(millis: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(millis // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") + f".{millis % 1000:03}"


_TEXTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "g": lambda data: base64.b64encode(data).decode(),
    "h": _date,
    "i": _stamp,
}


def _texts(cells: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value if value is None else _TEXTS.get(name, lambda same: same)(value) for name, value in cells.items()
    }


def _json_value(chance: random.Random, number: int) -> bytes:
    row = _texts(_cells(chance, number))
    row |= {"j": [1, None, 2], "k": {"x": chance.randrange(9)}, "l": {"x": 1, "y": "z", "w": [{}]}}
    for name in chance.sample(sorted(row), chance.randrange(4)):
        row[name] = chance.choice([str(row[name]), row[name], None, [row[name]], {"x": 1}, 1.5, True, 10**20, "", "7"])
    if chance.random() < 0.9:
        row["id"] = f"k{number}"
    return json.dumps(row, ensure_ascii=chance.random() < 0.5).encode()


def _csv_value(chance: random.Random, number: int) -> bytes:
    cells = _texts(_cells(chance, number))
    texts = []
    for name, value in cells.items():
        if name == "id":
            continue
        text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        texts.append('"' + text.replace('"', '""') + '"' if name == "e" else text)
    return ",".join(texts).encode()


def _long(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    return bytes([*out, value])


def _sized(data: bytes) -> bytes:
    return _long(len(data)) + data


_AVRO: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "c": lambda value: struct.pack("<d", value),
    "d": lambda value: _sized(round(value * 100).to_bytes(6, "big", signed=True)),
    "e": lambda value: _sized(value.encode()),
    "f": lambda value: bytes([value]),
    "g": _sized,
}


def _avro_value(chance: random.Random, number: int) -> bytes:
    cells = _cells(chance, number)
    flat = [b"\0" if v is None else b"\2" + _AVRO.get(n, _long)(v) for n, v in cells.items() if n != "id"]
    nested = [
        b"\2" + _long(2) + b"\2" + _long(5) + b"\0" + b"\0",
        b"\2" + _long(1) + _sized(b"x") + b"\2\2" + b"\0",
        b"\0",
    ]
    return b"".join([*flat, *nested])


def _proto_value(chance: random.Random, number: int) -> bytes:
    return b"\x08" + bytes([chance.randrange(128)])


def _changed(form: Callable[[dict[str, Any], dict[str, Any], random.Random], dict[str, Any]]) -> Any:
    def value(chance: random.Random, number: int) -> bytes:
        rows = [_texts(_cells(chance, number)) for _ in range(2)]
        return json.dumps(form(rows[0], rows[1], chance)).encode()

    return value


_OPERATIONS: Final = ("c", "r", "u", "d")
FUZZES: Final[Mapping[str, Fuzz]] = {
    "json": Fuzz({**COLUMNS, **NESTED}, lambda _, n: b'{"id":"k%d"}' % n, _json_value, {}),
    "csv": Fuzz(
        COLUMNS, lambda chance, n: chance.choice([b"k%d", b'"k%d"']) % n, _csv_value,
        {"value.fields-include": "EXCEPT_KEY"},
    ),
    "raw": Fuzz(
        {"id": "STRING", "a": "INT"}, lambda _, n: b"k%d" % n, lambda chance, _: chance.randbytes(4),
        {"value.fields-include": "EXCEPT_KEY"},
    ),
    "avro": Fuzz(
        {**COLUMNS, **NESTED}, lambda _, n: _sized(b"k%d" % n), _avro_value, {"value.fields-include": "EXCEPT_KEY"}
    ),
    "avro-confluent": Fuzz(
        {"id": "INT", "number": "INT"}, lambda _, n: b"\0\0\0\0\1" + _long(n),
        lambda chance, _: b"\0\0\0\0\2" + b"\2" + _long(chance.randrange(1000)), {"value.fields-include": "EXCEPT_KEY"},
        judged=False,
    ),
    "protobuf": Fuzz(
        {"id": "INT", "number": "INT"}, lambda _, n: b"\x08" + bytes([n % 128]), _proto_value,
        {"value.fields-include": "EXCEPT_KEY"}, judged=False,
    ),
    "debezium-json": Fuzz(
        COLUMNS, lambda _, n: b"",
        _changed(lambda one, two, chance: {"before": one, "after": two, "op": chance.choice(_OPERATIONS)}),
        {}, judged=False,
    ),
    "canal-json": Fuzz(
        COLUMNS, lambda _, n: b"",
        _changed(lambda one, two, chance: {
            "data": [one, two], "old": [two, one], "type": chance.choice(["INSERT", "UPDATE", "DELETE", "CREATE"])}),
        {}, judged=False,
    ),
    "maxwell-json": Fuzz(
        COLUMNS, lambda _, n: b"",
        _changed(lambda one, two, chance: {
            "data": one, "old": {"e": two["e"]}, "type": chance.choice(["insert", "update", "delete"])}),
        {}, judged=False,
    ),
    "ogg-json": Fuzz(
        COLUMNS, lambda _, n: b"",
        _changed(lambda one, two, chance: {"before": one, "after": two, "op_type": chance.choice("IUDT")}),
        {}, judged=False,
    ),
}  # fmt: skip


def _spoiled(chance: random.Random, data: bytes) -> bytes:
    """What becomes of bytes on a bad day."""
    roll = chance.randrange(7)
    at = chance.randrange(len(data) + 1)
    if roll == 0:
        return data[:at]
    if roll == 1:
        flipped = bytearray(data)
        for _ in range(chance.randint(1, 3) if data else 0):
            flipped[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(flipped)
    if roll == 2:
        return data[:at] + chance.choice(_ODD) + data[at:]
    if roll == 3:
        return data[:at] + chance.choice(_ODD) + data[chance.randrange(at, len(data) + 1) :]
    if roll == 4:
        return chance.choice(_ODD)
    if roll == 5:
        return chance.randbytes(chance.randrange(40))
    return data + data[chance.randrange(len(data) + 1) :]


def _headers(chance: random.Random) -> Headers:
    if chance.random() < 0.7:
        return []
    names = ("trace", "", "a b", "é", "trace", "x" * 300)
    values = (None, b"", b"\xff\xfe", b"plain", chance.randbytes(5))
    return [(chance.choice(names), chance.choice(values)) for _ in range(chance.randrange(1, 5))]


def fuzzed(fuzz: Fuzz, seed: str, count: int) -> Iterator[tuple[bytes | None, bytes | None, Headers]]:
    """Key, value and headers of records."""
    chance = random.Random(seed)
    for _ in range(count):
        number = chance.randrange(_KEYS)
        key: bytes | None = fuzz.key(chance, number)
        value: bytes | None = fuzz.value(chance, number)
        roll = chance.random()
        if roll < 0.05:
            key = chance.choice([None, b"", _spoiled(chance, key or b"x")])
        elif roll < 0.15:
            value = None
        elif roll < 0.55:
            value = _spoiled(chance, value or b"")
        yield key, value, _headers(chance)
